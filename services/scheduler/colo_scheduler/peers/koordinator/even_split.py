"""Koordinator's split of a request over zones that were chosen: every zone about the same."""

from collections.abc import Sequence

from colo_common.model.invalid import InvalidInput
from colo_common.model.resource_list import CPU, ResourceList
from colo_scheduler.numa.amounts import Split, ZoneAmounts, parts_of

__all__ = ["spread_evenly"]


def spread_evenly(request: ResourceList, zones: Sequence[ZoneAmounts], cpu_unit_mcpu: int = 1) -> Split:
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
    return Split(parts_of(taken), rest)
