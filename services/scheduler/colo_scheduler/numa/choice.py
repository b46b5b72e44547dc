"""The zones colo itself takes: one zone if one is enough, else the fewest of one socket, else the fewest; then the freer.

CPU and memory are cut at the same shares, so that no replica computes in one zone on memory of another by plan. What a zone
can take of them is one number, its `part`, exact over the `whole` (memory in MiB here: the request rounded up, free rounded
down):

    whole = request_mcpu * request_mib
    part = min(free_mcpu * request_mib, free_mib * request_mcpu, whole)

A set holds a request when its parts reach the whole and every other resource (huge pages, devices) is there in sum; one zone
alone is measured to the byte. Sets of equal size are tried with the largest parts first. Up to EXHAUSTIVE_ZONES zones every
set is tried; above, for requests with other resources, only the zones that have most of the parts or of one such resource,
which may miss a fit.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from colo_scheduler.numa.amounts import CPU, MEMORY, Amounts, ZoneAmounts, total_of
from colo_scheduler.numa.assign import ZonePart
from colo_scheduler.numa.mask import EXHAUSTIVE_ZONES

__all__ = ["ZoneDemand", "by_freedom", "choose_zones", "cut", "demand_of", "fewest_zones", "holds", "sets_in_order"]

_MIB: Final = 1 << 20


class ZoneDemand(NamedTuple):
    """A request, prepared: `others` are the resources besides CPU and memory, all amounts above 0."""

    cpu_mcpu: int
    memory_bytes: int
    mib: int
    whole: int
    others: tuple[tuple[str, int], ...]

    def part(self, zone: ZoneAmounts) -> int:
        """What the zone can take of CPU and memory together, of `whole`; 0 when neither is asked for."""
        part = self.whole
        if self.cpu_mcpu:
            part = min(part, zone.free.get(CPU, 0) * (self.mib or 1))
        if self.mib:
            part = min(part, zone.free.get(MEMORY, 0) // _MIB * (self.cpu_mcpu or 1))
        return max(part, 0)


class _Ranked(NamedTuple):
    part: int
    zone: ZoneAmounts


def demand_of(request: Amounts) -> ZoneDemand:
    """Prepare a request without negative amounts. A request of only CPU or only memory is cut by that one."""
    cpu, memory = request.get(CPU, 0), request.get(MEMORY, 0)
    mib = -(-memory // _MIB)
    whole = (cpu or 1) * (mib or 1) if cpu or mib else 0
    others = tuple((name, request[name]) for name in sorted(request) if request[name] and name not in (CPU, MEMORY))
    return ZoneDemand(cpu, memory, mib, whole, others)


def by_freedom(zone: ZoneAmounts) -> tuple[int, int, int]:
    """Sorts the freer zone first: more free CPU, then memory, then the lower id."""
    return (-zone.free.get(CPU, 0), -zone.free.get(MEMORY, 0), zone.zone)


def holds(demand: ZoneDemand, zones: Sequence[ZoneAmounts]) -> bool:
    """Whether these zones together hold the request, memory with its CPU."""
    if len(zones) == 1:
        free = zones[0].free
        if not max(0, free.get(CPU, 0)) >= demand.cpu_mcpu or not max(0, free.get(MEMORY, 0)) >= demand.memory_bytes:
            return False
        return all(free.get(name, 0) >= amount for name, amount in demand.others)
    return sum(demand.part(zone) for zone in zones) >= demand.whole and _others_fit(demand, zones)


def choose_zones(
    demand: ZoneDemand, zones: Sequence[ZoneAmounts], widest: int | None = None
) -> tuple[ZoneAmounts, ...] | None:
    """The zones to take, at most `widest` of them (None: any number), in the order they are filled; None: none hold it."""
    alone = [zone for zone in zones if holds(demand, (zone,))]
    if alone:
        return (min(alone, key=by_freedom),)
    widest = len(zones) if widest is None else min(widest, len(zones))
    if widest < 2:
        return None
    ranked = _rank(demand, zones)
    groups = [[each for each in ranked if each.zone.socket == socket] for socket in sorted({z.socket for z in zones})]
    for size in range(2, widest + 1):
        found = [chosen for group in groups if (chosen := _first(demand, group, size))]
        if found:
            return min(found, key=_set_order)
    for size in range(2, widest + 1):
        if chosen := _first(demand, ranked, size):
            return chosen
    return None


def fewest_zones(demand: ZoneDemand, zones: Sequence[ZoneAmounts]) -> int | None:
    """The size of the smallest set that holds the request, whatever its sockets; None when none does."""
    if any(holds(demand, (zone,)) for zone in zones):
        return 1
    ranked = _rank(demand, zones)
    return next((size for size in range(2, len(zones) + 1) if _first(demand, ranked, size)), None)


def sets_in_order(
    demand: ZoneDemand, zones: Sequence[ZoneAmounts], widest: int | None = None
) -> list[tuple[ZoneAmounts, ...]]:
    """Every set of at most `widest` zones that holds the request, what `choose_zones` takes first, then on one socket, fewer
    zones, freer. Above EXHAUSTIVE_ZONES zones only the leading sets of each size on each socket and over all."""
    best = choose_zones(demand, zones, widest)
    if best is None:
        return []
    ranked = _rank(demand, zones)
    groups = [ranked]
    if len(zones) > EXHAUSTIVE_ZONES:
        sockets = sorted({zone.socket for zone in zones})
        groups += [[each for each in ranked if each.zone.socket == socket] for socket in sockets]
    found: dict[frozenset[int], tuple[ZoneAmounts, ...]] = {}
    for group in groups:
        for size in range(1, min(len(group), widest or len(group)) + 1):
            for chosen in _candidates(demand, group, size):
                members = tuple(each.zone for each in chosen)
                if holds(demand, members):
                    found[frozenset(zone.zone for zone in members)] = members
    found.pop(frozenset(zone.zone for zone in best), None)
    rest = sorted(
        found.values(), key=lambda each: (len({zone.socket for zone in each}) > 1, len(each), _set_order(each))
    )
    return [best, *rest]


def cut(demand: ZoneDemand, zones: Sequence[ZoneAmounts]) -> tuple[ZonePart, ...]:
    """The parts of a request in zones that hold it, filled in their given order; ascending by id, empty parts left out.

    CPU and memory are cut at the same cumulative shares, rounded down, so each is within 1 of its zone's share and none exceeds
    what is free; other resources are taken from each zone as far as they go.
    """
    taken: dict[int, dict[str, int]] = {zone.zone: {} for zone in zones}
    if len(zones) == 1:
        shares = [(zones[0].zone, demand.cpu_mcpu, demand.memory_bytes)]
    else:
        shares = _shares(demand, zones)
    for zone_id, cpu, memory in shares:
        if cpu:
            taken[zone_id][CPU] = cpu
        if memory:
            taken[zone_id][MEMORY] = memory
    for name, amount in demand.others:
        for zone in zones:
            part = min(amount, max(0, zone.free.get(name, 0)))
            if part:
                taken[zone.zone][name] = part
                amount -= part
    return tuple(ZonePart(zone, taken[zone]) for zone in sorted(taken) if taken[zone])


def _shares(demand: ZoneDemand, zones: Sequence[ZoneAmounts]) -> list[tuple[int, int, int]]:
    shares = []
    whole = demand.whole or 1
    reached = cpu_before = memory_before = 0
    for zone in zones:
        reached = min(demand.whole, reached + demand.part(zone))
        cpu_until = demand.cpu_mcpu * reached // whole
        memory_until = demand.memory_bytes * reached // whole
        shares.append((zone.zone, cpu_until - cpu_before, memory_until - memory_before))
        cpu_before, memory_before = cpu_until, memory_until
    return shares


def _rank(demand: ZoneDemand, zones: Sequence[ZoneAmounts]) -> list[_Ranked]:
    ranked = [_Ranked(demand.part(zone), zone) for zone in zones]
    ranked.sort(key=lambda each: (-each.part, by_freedom(each.zone)))
    return ranked


def _first(demand: ZoneDemand, ranked: Sequence[_Ranked], size: int) -> tuple[ZoneAmounts, ...] | None:
    """The first set of that size that holds the request. The leading zones have the largest sum of parts, so they decide
    first."""
    if size > len(ranked) or sum(each.part for each in ranked[:size]) < demand.whole:
        return None
    for chosen in _candidates(demand, ranked, size):
        zones = tuple(each.zone for each in chosen)
        if sum(each.part for each in chosen) >= demand.whole and _others_fit(demand, zones):
            return zones
    return None


def _candidates(demand: ZoneDemand, ranked: Sequence[_Ranked], size: int) -> Iterator[Sequence[_Ranked]]:
    if len(ranked) <= EXHAUSTIVE_ZONES:
        yield from combinations(ranked, size)
        return
    yield ranked[:size]
    for name, _ in demand.others:
        richest = sorted(range(len(ranked)), key=lambda at: (-ranked[at].zone.free.get(name, 0), at))
        yield [ranked[at] for at in sorted(richest[:size])]


def _others_fit(demand: ZoneDemand, zones: Sequence[ZoneAmounts]) -> bool:
    return all(total_of(name, (zone.free for zone in zones)) >= amount for name, amount in demand.others)


def _set_order(zones: Sequence[ZoneAmounts]) -> tuple[int, int, int]:
    cpu = sum(zone.free.get(CPU, 0) for zone in zones)
    memory = sum(zone.free.get(MEMORY, 0) for zone in zones)
    return (-cpu, -memory, min(zone.zone for zone in zones))
