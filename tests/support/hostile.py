"""Messages of any registered type as an enemy or a broken program would send them: legal bytes, senseless content.

Made from the annotations of the types and a seed. Names come from a small pool, so that messages contradict each other.
"""

from __future__ import annotations

import base64
import json
from random import Random
from typing import Any, Final

import msgspec
from msgspec import Struct, inspect

from colo_common.events.fact import Fact
from colo_common.events.registry import event_of
from colo_common.events.wire import decode
from colo_common.model.invalid import InvalidInput
from tests.support.builders import a_topology

__all__ = ["hostile_fact", "hostile_struct", "hostile_value"]

NODES: Final = ("n1", "n2", "n1", "", "N1", "n1.", "*", "n_1", "a" * 254, "n1\n")
REPLICAS: Final = ("a/main/0", "a/main/1", "b/main/0", "a/main/0", "", "a/main", "a/main/-1", "../../0", "a\r\nb/m/0")
TEXTS: Final = (
    "",
    "a",
    "b",
    "default",
    "\0",
    "a\r\nX: y",
    "x" * 300,
    "\ud800".encode("utf-16", "surrogatepass").hex(),
    "{}",
)
TRACES: Final = ("", "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "00-zz", "00-\r\nX: y", "x" * 10_000)
CPUS: Final = ("", "0-3", "0-15", "16-31", "0-8191", "0-99999999", "all", "-1", "0,0,0", "3-1")
SMALL: Final = (0, 1, 2, 3, 1, 2, 1_000, 2_000, 16_000, 1 << 30, 1 << 36)
ABSURD: Final = (-1, -(10**18), 10**18, 2**31, 2**53, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, 10**30)
BY_NAME: Final[dict[str, tuple[str, ...]]] = {
    "node": NODES,
    "replica": REPLICAS,
    "traceparent": TRACES,
    "cpus": CPUS,
    "boot_id": ("b1", "b1", "b2", "", "b\r\nX: y", "b" * 5_000),
    "job": ("a", "b", "", "A", "a/main"),
    "state": ("Running", "Pending", "", "x"),
}
_SENSE_OF_8: Final = 6


def hostile_fact(kind: type[Fact], seed: int) -> Fact | None:
    """What a service hears of such a message: the decoded fact, or None when the bytes or the subject are refused."""
    value = hostile_value(kind, seed)
    event = event_of(kind)
    names = {name: value[name] for name in event.subject.parameters}
    try:
        subject = event.subject.of(**names)
        return decode(subject, _bytes_of(value, event.encoding))
    except (InvalidInput, OverflowError):
        # The subject cannot be written, or MessagePack has no such number: nobody can send this.
        return None


def hostile_struct(kind: type[Struct], seed: int) -> Any:
    """A value that never crosses the bus, or None when the type itself refuses it."""
    try:
        return msgspec.convert(hostile_value(kind, seed), kind)
    except msgspec.ValidationError:
        return None


def hostile_value(kind: type[Struct], seed: int) -> Any:
    """Plain values in the shape of the type."""
    rng = Random(seed)
    # Most messages have one or two senseless places; some are nothing else.
    return _Maker(rng, absurd_pct=rng.choice((0, 2, 10, 50))).value(inspect.type_info(kind), "")


def _bytes_of(value: Any, encoding: str) -> bytes:
    return msgspec.msgpack.encode(value) if encoding == "msgpack" else json.dumps(value).encode()


class _Maker:
    def __init__(self, rng: Random, absurd_pct: int) -> None:
        self._rng = rng
        self._absurd_pct = absurd_pct

    def value(self, shape: inspect.Type, name: str) -> Any:
        rng = self._rng
        match shape:
            case inspect.StructType(cls=cls, fields=fields):
                if cls.__name__ == "NodeTopology" and rng.randrange(8) < _SENSE_OF_8:
                    return self._topology()
                return {
                    field.encode_name: self.value(field.type, field.encode_name)
                    for field in fields
                    if field.required or rng.randrange(8) < _SENSE_OF_8
                }
            case inspect.BoolType():
                return rng.random() < 0.5
            case inspect.IntType():
                return rng.choice(ABSURD if self._absurd() else SMALL)
            case inspect.FloatType():
                return rng.choice((0.0, -1.0, 0.5, 1e308))
            case inspect.StrType():
                pool = BY_NAME.get(name, TEXTS)
                return rng.choice(pool) if self._absurd() else pool[0 if name == "node" else rng.randrange(2)]
            case inspect.BytesType():
                # JSON has them in base64; what is none is refused.
                return rng.choice(TEXTS) if self._absurd() else base64.b64encode(rng.randbytes(8)).decode()
            case inspect.LiteralType(values=values):
                return rng.choice(values)
            case inspect.EnumType(cls=cls):
                return rng.choice([each.value for each in cls])
            case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
                return self._several(item, name)
            case inspect.TupleType(item_types=items):
                # The only pairs on the wire are a replica or a node with a number.
                names = ("node" if name == "avoid" else "replica", "number")
                return [self.value(each, part) for each, part in zip(items, names, strict=True)]
            case inspect.DictType(key_type=key, value_type=value):
                return {str(self.value(key, "key")): self.value(value, "value") for _ in range(rng.choice((0, 1, 2)))}
            case inspect.UnionType(types=types):
                return self.value(rng.choice(types), name)
            case inspect.NoneType():
                return None
            case _:
                raise TypeError(f"{name}: no hostile value for {shape!r}")

    def _absurd(self) -> bool:
        return self._rng.randrange(100) < self._absurd_pct

    def _several(self, item: inspect.Type, name: str) -> list[Any]:
        count = self._rng.choice((0, 1, 1, 2, 2, 3, 70 if self._absurd() else 2))
        if isinstance(item, inspect.StructType) and "zone" in item.cls.__struct_fields__ and not self._absurd():
            # Zones in their order, so that what follows is more than a refusal.
            return [{**self.value(item, name), "zone": number} for number in range(2)]
        made = [self.value(item, name) for _ in range(count)]
        return made + made[:1] if self._absurd() else made

    def _topology(self) -> Any:
        zones, cpus = self._rng.choice(((2, 16), (2, 16), (2, 16), (1, 2), (4, 8)))
        plain = msgspec.to_builtins(a_topology(zones_per_socket=zones, cpus=cpus))
        if self._absurd():
            zone = self._rng.choice(plain["zones"])
            field = self._rng.choice(("zone", "socket", "memory_bytes", "cpus"))
            zone[field] = self._rng.choice(CPUS) if field == "cpus" else self._rng.choice(ABSURD)
        if self._absurd():
            cpu = self._rng.choice(plain["cpus"])
            cpu[self._rng.choice(("cpu", "core", "socket", "zone", "l3"))] = self._rng.choice(ABSURD)
        return plain
