"""Why the zones of a node do not hold a request, and the nearest miss in numbers."""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from colo_common.model.reasons import Reason
from colo_common.model.resource_list import CPU, MEMORY, ResourceList
from colo_scheduler.numa.amounts import ZoneAmounts, total_of
from colo_scheduler.numa.choice import ZoneDemand
from colo_scheduler.numa.zones import by_freedom

__all__ = ["Miss", "ZoneRefusal", "apart_refusal", "nearest_zone_refusal", "set_refusal", "short_misses"]


class Miss(NamedTuple):
    """These zones together lack `need - have` of one resource, in its unit."""

    zones: tuple[int, ...]
    resource: str
    need: int
    have: int

    @property
    def lack(self) -> int:
        """How much more would be enough, above 0."""
        return self.need - self.have

    def sentence(self) -> str:
        """For people: "1200 cpu short in zone 1: 800 of 2000"."""
        where = f"zone {self.zones[0]}" if len(self.zones) == 1 else f"zones {','.join(map(str, self.zones))}"
        return f"{self.lack} {self.resource} short in {where}: {self.have} of {self.need}"


class ZoneRefusal(NamedTuple):
    """The reason, and for reasons of quantity the misses of the set of zones that came closest. `details`: which hints
    clash."""

    reason: Reason
    misses: tuple[Miss, ...] = ()
    details: tuple[str, ...] = ()


def short_misses(request: ResourceList, zones: Sequence[ZoneAmounts]) -> tuple[Miss, ...]:
    """The amounts that these zones lack in sum, in order of resource name."""
    ids = tuple(sorted(zone.zone for zone in zones))
    misses = []
    for name in sorted(request):
        have = total_of(name, (zone.free for zone in zones))
        if have < request[name]:
            misses.append(Miss(ids, name, request[name], have))
    return tuple(misses)


def nearest_zone_refusal(request: ResourceList, zones: Sequence[ZoneAmounts]) -> ZoneRefusal:
    """No zone alone holds the request: the zone lacking the fewest resources, then the smallest share of one, then the freer."""
    tried = [(zone, short_misses(request, (zone,))) for zone in zones]
    nearest = min(tried, key=lambda each: (len(each[1]), _worst(each[1]), by_freedom(each[0])))
    return ZoneRefusal(Reason.ZONE_FIT_SHORT, nearest[1])


def _worst(misses: Sequence[Miss]) -> Fraction:
    return max((Fraction(miss.lack, miss.need) for miss in misses), default=Fraction(0))


def apart_refusal(demand: ZoneDemand, zones: Sequence[ZoneAmounts]) -> ZoneRefusal:
    """Enough in sum, but CPU is free where memory is not: how much CPU can be held together with its memory, rounded down.

    A request of memory alone is told in memory.
    """
    split = demand.split
    total = min(split.whole, sum(demand.part(zone) for zone in zones))
    name, need = (CPU, split.cpu_mcpu) if split.cpu_mcpu else (MEMORY, split.memory_bytes)
    have = need * total // (split.whole or 1)
    ids = tuple(sorted(zone.zone for zone in zones))
    return ZoneRefusal(Reason.ZONE_FIT_SHORT, (Miss(ids, name, need, have),))


def set_refusal(demand: ZoneDemand, request: ResourceList, zones: Sequence[ZoneAmounts], size: int) -> ZoneRefusal:
    """No set of `size` zones holds the request: what the zones that can take most of it lack."""
    leading = sorted(zones, key=lambda zone: (-demand.part(zone), by_freedom(zone)))[:size]
    misses = short_misses(request, leading)
    return ZoneRefusal(Reason.ZONE_FIT_SHORT, misses) if misses else apart_refusal(demand, leading)
