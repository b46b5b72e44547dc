"""What a row of the ledger holds, read from its raw fields."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from colo_common.model.placement import Placement
from colo_common.model.qos import PriorityBand, QosClass

__all__ = ["Held", "cpus_of", "holds_in", "own_cpus", "promised_to_batch"]

_HOLD: Final = "h:"


class Held(Struct, frozen=True, kw_only=True):
    """One hold. `generation` is the revision that its node's row got by accepting it."""

    placement: Placement
    generation: int


_DECODER: Final = msgspec.json.Decoder(Held)


def holds_in(fields: dict[str, str]) -> list[Held]:
    """Every hold of a row, the newest last. Raises msgspec.MsgspecError for a value that is no hold."""
    found = [_DECODER.decode(value) for name, value in fields.items() if name.startswith(_HOLD)]
    return sorted(found, key=lambda hold: (hold.generation, hold.placement.replica))


def promised_to_batch(hold: Held) -> bool:
    """Whether it takes of what batch work is promised; online work takes of the machine itself."""
    return hold.placement.band is not PriorityBand.PROD


def own_cpus(hold: Held) -> frozenset[int]:
    """The CPUs that no other online work may have: those of its own, of classes LSE and LSR."""
    return cpus_of(hold.placement.cpus) if hold.placement.qos in (QosClass.LSE, QosClass.LSR) else frozenset()


def cpus_of(text: str) -> frozenset[int]:
    """The numbers of a kernel CPU list ("0-3,8")."""
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)
