"""The ceilings of single NUMA zones, whichever rule decides them: their floors, their sum, and what of them moved.

The ceiling of a zone is in whole CPUs, because the kernel keeps it by a CPU set.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from colo_common.events.enforcement import ZoneCeiling
from colo_common.model.invalid import InvariantBroken

__all__ = [
    "CPU_MCPU",
    "SharedCores",
    "DecidedZone",
    "ZoneReading",
    "ceilings_of",
    "check_zones",
    "moved_zones",
    "sum_mcpu",
    "whole_cpus",
    "zone_floor_mcpu",
]

CPU_MCPU: Final = 1_000


class SharedCores(NamedTuple):
    """How batch work shares cores with online work: so many `threads` of one, 1 where it shares none or cannot be kept off them.

    `held` are the zones that some batch work cannot leave.
    """

    threads: int = 1
    held: frozenset[int] = frozenset()


class ZoneReading(Struct, frozen=True, kw_only=True):
    """What a NUMA zone has for batch work, and what batch work uses of it: at most so much, where the kernel does not tell.

    `online_used_mcpu` is the use of these CPUs by anything but batch work; None: not known. `reserved_mcpu` are the zone's CPUs
    that the node's rules withhold, which are not in `capacity_mcpu`. `threads`: so many CPUs of a core batch work may share with
    online work. `may_leave`: it can leave the zone, because none of it has to run there.
    """

    zone: int
    capacity_mcpu: int
    batch_used_mcpu: int
    online_used_mcpu: int | None = None
    reserved_mcpu: int = 0
    threads: int = 1
    may_leave: bool = False


class DecidedZone(Protocol):
    """The state of a rule in one zone: `ceiling_mcpu` is what batch work may use of `capacity_mcpu`, and `floor_mcpu` the least."""

    @property
    def zone(self) -> int: ...
    @property
    def capacity_mcpu(self) -> int: ...
    @property
    def floor_mcpu(self) -> int: ...
    @property
    def ceiling_mcpu(self) -> int: ...


def ceilings_of(states: Sequence[DecidedZone]) -> tuple[ZoneCeiling, ...]:
    """The ceilings that are below the capacity of their zones."""
    return tuple(
        ZoneCeiling(zone=state.zone, ceiling_mcpu=state.ceiling_mcpu, capacity_mcpu=state.capacity_mcpu)
        for state in states
        if state.ceiling_mcpu < state.capacity_mcpu
    )


def sum_mcpu(states: Sequence[DecidedZone]) -> int | None:
    """What all zones together leave batch work; None where none is below its capacity."""
    if all(state.ceiling_mcpu >= state.capacity_mcpu for state in states):
        return None
    return sum(state.ceiling_mcpu for state in states)


def moved_zones(
    before: Sequence[ZoneCeiling], after: Sequence[ZoneCeiling]
) -> tuple[int | None, tuple[ZoneCeiling, ...], bool]:
    """The first zone whose ceiling moved (None: none did), what to tell of the zones, and whether they have more than before.

    Told are the ceilings below the capacity, and those that were and are no longer.
    """
    now = {each.zone: each for each in after}
    named = dict(now)
    gained_mcpu = 0
    moved = []
    for each in before:
        if each.zone not in now:
            named[each.zone] = replace(each, ceiling_mcpu=each.capacity_mcpu)
    was = {each.zone: each.ceiling_mcpu for each in before}
    for zone, each in named.items():
        more_mcpu = each.ceiling_mcpu - was.get(zone, each.capacity_mcpu)
        gained_mcpu += more_mcpu
        if more_mcpu:
            moved.append(zone)
    return min(moved, default=None), tuple(named[zone] for zone in sorted(named)), gained_mcpu > 0


def check_zones(states: Sequence[DecidedZone]) -> None:
    """Raise InvariantBroken for a ceiling that is above the capacity of its zone or below its floor, and where no zone has any."""
    if states and not any(state.ceiling_mcpu for state in states):
        raise InvariantBroken("no zone has a CPU for batch work")
    for state in states:
        if not state.floor_mcpu <= state.ceiling_mcpu <= state.capacity_mcpu:
            raise InvariantBroken(
                "ceiling of a zone out of bounds",
                zone=state.zone,
                ceiling_mcpu=state.ceiling_mcpu,
                capacity_mcpu=state.capacity_mcpu,
            )


def whole_cpus(ceiling_mcpu: int, floor_mcpu: int, capacity_mcpu: int) -> int:
    """The ceiling in whole CPUs, rounded down, from the floor to the capacity."""
    return max(floor_mcpu, min(capacity_mcpu, ceiling_mcpu // CPU_MCPU * CPU_MCPU))


def zone_floor_mcpu(zone_mcpu: int, capacity_mcpu: int, floor_mcpu: int) -> int:
    """The zone's part of the node's floor, in whole CPUs, rounded up; one at least, because no replica's CPU set may be empty."""
    part = -(-floor_mcpu * zone_mcpu // max(1, capacity_mcpu))
    return min(zone_mcpu, max(1, -(-part // CPU_MCPU)) * CPU_MCPU)
