"""The zones colo itself takes: one zone if one is enough, else the fewest of one socket, else the fewest; then the freer.

CPU and memory are cut together (`numa.split`). A set holds a request when its parts reach the whole and every other resource (huge
pages, devices) is there in sum; one zone alone is measured to the byte. Sets of equal size are tried with the largest parts first.
Up to EXHAUSTIVE_ZONES zones every set is tried; above, for requests with other resources, only the zones that have most of the
parts or of one such resource, which may miss a fit.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import NamedTuple

from colo_common.model.resource_list import CPU, MEMORY, ResourceList
from colo_scheduler.numa.amounts import ZoneAmounts, ZonePart, total_of
from colo_scheduler.numa.mask import EXHAUSTIVE_ZONES
from colo_scheduler.numa.zones import Ranked, SplitDemand, by_freedom, choose_several, fewest_leading, rank, set_order

__all__ = ["ZoneDemand", "choose_zones", "cut", "demand_of", "fewest_zones", "holds", "sets_in_order"]


class ZoneDemand(NamedTuple):
    """A request, prepared: CPU and memory, and the `others`, the resources besides, all amounts above 0."""

    split: SplitDemand
    others: tuple[tuple[str, int], ...]

    def part(self, zone: ZoneAmounts) -> int:
        """What the zone can take of CPU and memory together, of `split.whole`; 0 when neither is asked for."""
        return self.split.part(zone.free_cpu_mcpu, zone.free_memory_bytes)


def demand_of(request: ResourceList) -> ZoneDemand:
    """Prepare a request without negative amounts."""
    others = tuple((name, request[name]) for name in sorted(request) if request[name] and name not in (CPU, MEMORY))
    return ZoneDemand(SplitDemand.of(request.get(CPU, 0), request.get(MEMORY, 0)), others)


def holds(demand: ZoneDemand, zones: Sequence[ZoneAmounts]) -> bool:
    """Whether these zones together hold the request, memory with its CPU."""
    if len(zones) == 1:
        free = zones[0].free
        if max(0, free.get(CPU, 0)) < demand.split.cpu_mcpu or max(0, free.get(MEMORY, 0)) < demand.split.memory_bytes:
            return False
        return all(free.get(name, 0) >= amount for name, amount in demand.others)
    return sum(demand.part(zone) for zone in zones) >= demand.split.whole and _others_fit(demand, zones)


def choose_zones(
    demand: ZoneDemand, zones: Sequence[ZoneAmounts], widest: int | None = None
) -> tuple[ZoneAmounts, ...] | None:
    """The zones to take, at most `widest` of them (None: any number), in the order they are filled; None: none hold it."""
    alone = [zone for zone in zones if holds(demand, (zone,))]
    if alone:
        return (min(alone, key=by_freedom),)
    widest = len(zones) if widest is None else min(widest, len(zones))
    return choose_several(rank(demand.split, zones), widest, partial(_fewest, demand))


def fewest_zones(demand: ZoneDemand, zones: Sequence[ZoneAmounts]) -> int | None:
    """The size of the smallest set that holds the request, whatever its sockets; None when none does."""
    if any(holds(demand, (zone,)) for zone in zones):
        return 1
    chosen = _fewest(demand, rank(demand.split, zones), len(zones))
    return None if chosen is None else len(chosen)


def sets_in_order(
    demand: ZoneDemand, zones: Sequence[ZoneAmounts], widest: int | None = None
) -> list[tuple[ZoneAmounts, ...]]:
    """Every set of at most `widest` zones that holds the request, what `choose_zones` takes first, then on one socket, fewer
    zones, freer. Above EXHAUSTIVE_ZONES zones only the leading sets of each size on each socket and over all."""
    best = choose_zones(demand, zones, widest)
    if best is None:
        return []
    ranked = rank(demand.split, zones)
    groups = [ranked]
    if len(zones) > EXHAUSTIVE_ZONES:
        sockets = sorted({zone.socket for zone in zones})
        groups += [[each for each in ranked if each[1].socket == socket] for socket in sockets]
    found: dict[frozenset[int], tuple[ZoneAmounts, ...]] = {}
    for group in groups:
        for size in range(1, min(len(group), widest or len(group)) + 1):
            for chosen in _candidates(demand, group, size):
                members = tuple(zone for _, zone in chosen)
                if holds(demand, members):
                    found[frozenset(zone.zone for zone in members)] = members
    found.pop(frozenset(zone.zone for zone in best), None)
    rest = sorted(found.values(), key=lambda each: (len({zone.socket for zone in each}) > 1, set_order(each)))
    return [best, *rest]


def cut(demand: ZoneDemand, zones: Sequence[ZoneAmounts]) -> tuple[ZonePart, ...]:
    """The parts of a request in zones that hold it, filled in their given order; ascending by id, empty parts left out.

    CPU and memory are cut as `SplitDemand.cut` says; other resources are taken from each zone as far as they go.
    """
    taken: dict[int, dict[str, int]] = {zone.zone: {} for zone in zones}
    if len(zones) == 1:
        shares = [(demand.split.cpu_mcpu, demand.split.memory_bytes)]
    else:
        shares = demand.split.cut(demand.part(zone) for zone in zones)
    for zone, (cpu, memory) in zip(zones, shares, strict=True):
        if cpu:
            taken[zone.zone][CPU] = cpu
        if memory:
            taken[zone.zone][MEMORY] = memory
    for name, amount in demand.others:
        for zone in zones:
            part = min(amount, max(0, zone.free.get(name, 0)))
            if part:
                taken[zone.zone][name] = part
                amount -= part
    return tuple(ZonePart(zone_id, taken[zone_id]) for zone_id in sorted(taken) if taken[zone_id])


def _fewest(demand: ZoneDemand, ranked: Ranked[ZoneAmounts], widest: int) -> tuple[ZoneAmounts, ...] | None:
    """The first of the smallest sets of two zones or more that holds the request."""
    if not demand.others:
        return fewest_leading(demand.split, ranked, widest)
    whole = demand.split.whole
    for size in range(2, min(widest, len(ranked)) + 1):
        # The leading zones have the largest sum of parts.
        if sum(part for part, _ in ranked[:size]) < whole:
            continue
        for chosen in _candidates(demand, ranked, size):
            zones = tuple(zone for _, zone in chosen)
            if sum(part for part, _ in chosen) >= whole and _others_fit(demand, zones):
                return zones
    return None


def _candidates(
    demand: ZoneDemand, ranked: Ranked[ZoneAmounts], size: int
) -> Iterator[Sequence[tuple[int, ZoneAmounts]]]:
    if len(ranked) <= EXHAUSTIVE_ZONES:
        yield from combinations(ranked, size)
        return
    yield ranked[:size]
    for name, _ in demand.others:
        richest = sorted(range(len(ranked)), key=lambda at: (-ranked[at][1].free.get(name, 0), at))
        yield [ranked[at] for at in sorted(richest[:size])]


def _others_fit(demand: ZoneDemand, zones: Sequence[ZoneAmounts]) -> bool:
    return all(total_of(name, (zone.free for zone in zones)) >= amount for name, amount in demand.others)
