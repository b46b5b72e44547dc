"""How the amounts of a request are split over zones that were chosen: the first zones filled, resource by resource."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from colo_scheduler.numa.amounts import ResourceList, ZoneAmounts

__all__ = ["Split", "ZonePart", "fill", "parts_of"]


class ZonePart(NamedTuple):
    """What a request takes of one zone: amounts above 0 only."""

    zone: int
    amounts: dict[str, int]


class Split(NamedTuple):
    """Parts in ascending zone id, and what no zone could take (amounts above 0 only)."""

    parts: tuple[ZonePart, ...]
    rest: dict[str, int]


def fill(request: ResourceList, zones: Sequence[ZoneAmounts]) -> Split:
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
    return Split(parts_of(taken), rest)


def parts_of(taken: Mapping[int, dict[str, int]]) -> tuple[ZonePart, ...]:
    """What was taken by zone id, as parts in ascending zone id."""
    return tuple(ZonePart(zone, taken[zone]) for zone in sorted(taken))
