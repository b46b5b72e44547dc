"""Records today's bytes of every message type: python -m tests.contract.record_wire

A recording is never rewritten: what was once on the wire must decode for ever. A type that has none gets one; a type that has
grown fields which no recording of it shows gets a further one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from colo_common.events.registry import EVENTS, REQUESTS
from colo_common.events.wire import encode, encode_reply, encode_request
from tests.support.examples import example_of

__all__ = ["FOLDER", "missing", "recordings", "shown", "types"]

FOLDER: Final = Path(__file__).parent / "wire" / "v1"


def types() -> dict[str, type[Struct]]:
    """Every type on the wire by the name of its recordings; a reply is recorded as its whole answer."""
    found: dict[str, type[Struct]] = {event.body.__name__: event.body for event in EVENTS}
    for request_spec in REQUESTS:
        found[request_spec.body.__name__] = request_spec.body
        found[f"{request_spec.body.__name__}.reply"] = request_spec.reply
    return found


def recordings(name: str) -> list[Path]:
    """The recordings of a type, oldest first."""
    return sorted(path for path in FOLDER.glob(f"{name}-*") if path.stem.rpartition("-")[0] == name)


def shown(path: Path) -> Any:
    """What a recording holds, as plain values."""
    data = path.read_bytes()
    return msgspec.msgpack.decode(data) if path.suffix == ".bin" else json.loads(data)


def missing() -> dict[Path, bytes]:
    """What has to be recorded, and where."""
    wanted: dict[Path, bytes] = {}
    for name, kind in types().items():
        suffix, data = _encoded(name, kind)
        present = recordings(name)
        now = _keys(msgspec.msgpack.decode(data) if suffix == ".bin" else json.loads(data))
        if not any(now <= _keys(shown(path)) for path in present):
            wanted[FOLDER / f"{name}-{len(present) + 1}{suffix}"] = data
    return wanted


def _encoded(name: str, kind: type[Struct]) -> tuple[str, bytes]:
    value = example_of(kind)
    if name.endswith(".reply"):
        return ".json", encode_reply(value)
    for event in EVENTS:
        if event.body is kind:
            return (".bin" if event.encoding == "msgpack" else ".json"), encode(value)
    return ".json", encode_request(value)


def _keys(value: Any, path: str = "") -> set[str]:
    """The path of every field; what a map is keyed by is content, not shape."""
    match value:
        case dict():
            found: set[str] = set()
            for key, inner in value.items():
                step = f"{path}.{key.rpartition('-')[0] if key.startswith('key-') else key}"
                found |= {step} | _keys(inner, step)
            return found
        case list():
            return {each for inner in value for each in _keys(inner, f"{path}[]")}
    return set()


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, data in missing().items():
        path.write_bytes(data)
        sys.stdout.write(f"recorded {path.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
