"""How the amounts of a request are split over zones that were chosen: evenly, or the first zones filled."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from colo_common.model.invalid import InvalidInput
from colo_scheduler.numa.amounts import CPU, Amounts, ZoneAmounts

__all__ = ["Split", "ZonePart", "fill", "spread_evenly"]


class ZonePart(NamedTuple):
    """What a request takes of one zone: amounts above 0 only."""

    zone: int
    amounts: dict[str, int]


class Split(NamedTuple):
    """Parts in ascending zone id, and what no zone could take (amounts above 0 only)."""

    parts: tuple[ZonePart, ...]
    rest: dict[str, int]


def spread_evenly(request: Amounts, zones: Sequence[ZoneAmounts], cpu_unit_mcpu: int = 1) -> Split:
    """Koordinator's split (resource_manager.go tryBestToDistributeEvenly): every zone about the same, the scarcest first.

    For each resource the zones are visited by free amount ascending (ties: lower id); the i-th of m takes at most the
    remainder divided by the m - i zones left, rounded down (CPU to whole units of `cpu_unit_mcpu`: 1000 when CPUs are bound,
    1000 times the threads of a core when whole cores are), and never more than is free. Raises InvalidInput for a unit below 1.
    """
    if cpu_unit_mcpu < 1:
        raise InvalidInput("cpu_unit_mcpu", "must be at least 1", cpu_unit_mcpu)
    taken: dict[int, dict[str, int]] = {}
    rest: dict[str, int] = {}
    for name in sorted(request):
        unit = cpu_unit_mcpu if name == CPU else 1
        ordered = sorted(zones, key=lambda zone: (zone.free.get(name, 0), zone.zone))
        remaining = request[name]
        for index, zone in enumerate(ordered):
            share = remaining // (len(ordered) - index) // unit * unit
            amount = min(share, max(0, zone.free.get(name, 0)))
            if amount:
                taken.setdefault(zone.zone, {})[name] = amount
                remaining -= amount
        if remaining:
            rest[name] = remaining
    return Split(_parts(taken), rest)


def fill(request: Amounts, zones: Sequence[ZoneAmounts]) -> Split:
    """Each resource from the zones in their given order, as much as is free in each."""
    taken: dict[int, dict[str, int]] = {}
    rest: dict[str, int] = {}
    for name in sorted(request):
        remaining = request[name]
        for zone in zones:
            amount = min(remaining, max(0, zone.free.get(name, 0)))
            if amount:
                taken.setdefault(zone.zone, {})[name] = amount
                remaining -= amount
        if remaining:
            rest[name] = remaining
    return Split(_parts(taken), rest)


def _parts(taken: Mapping[int, dict[str, int]]) -> tuple[ZonePart, ...]:
    return tuple(ZonePart(zone, taken[zone]) for zone in sorted(taken))
