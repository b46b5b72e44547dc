"""Fewer zones score higher, close ones a little more: scheduler-plugins' LeastNUMANodes
(noderesourcetopology/least_numa.go)."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from colo_common.model.invalid import InvalidInput
from colo_scheduler.numa.amounts import Amounts, total_of
from colo_scheduler.numa.zone_filter import ZONE_ID_END, FilterScope, KubeQos, PodRequest, effective_request, is_enough

__all__ = [
    "DISTANCE_UNKNOWN",
    "MAX_ZONES_LISTED",
    "DistantZone",
    "LeastZones",
    "least_zones",
    "score_least_zones",
    "score_of_count",
]

DISTANCE_UNKNOWN: Final = 255
"""ACPI's value for a distance nobody told."""
MAX_ZONES_LISTED: Final = 16
"""Every set of zones may be looked at, so a node may have at most this many."""
_MAX_SCORE: Final = 100


class DistantZone(NamedTuple):
    """A zone, what is free in it, and its distance to each zone by id."""

    zone: int
    free: Amounts
    distances: Mapping[int, int]


class LeastZones(NamedTuple):
    """The smallest set that holds a request. `is_closest`: no set of its size, fitting or not, is closer together."""

    zones: tuple[int, ...]
    is_closest: bool


def least_zones(qos: KubeQos, request: Amounts, zones: Sequence[DistantZone]) -> LeastZones | None:
    """The smallest set of zones whose amounts together hold the request, of those the closest, then the lowest ids; None: no
    set.

    A set with a zone that does not tell a requested resource does not count. Closeness is the mean distance over all ordered
    pairs, each with itself included. Zones from ZONE_ID_END on do not count. Raises InvalidInput above MAX_ZONES_LISTED zones.
    """
    if len(zones) > MAX_ZONES_LISTED:
        raise InvalidInput("zones", f"at most {MAX_ZONES_LISTED} zones are tried in every combination", len(zones))
    needs = {name: amount for name, amount in request.items() if amount}
    ordered = sorted((zone for zone in zones if zone.zone < ZONE_ID_END), key=lambda zone: zone.zone)
    for size in range(1, len(ordered) + 1):
        closest = DISTANCE_UNKNOWN * size * size
        best: tuple[int, tuple[DistantZone, ...]] | None = None
        for chosen in combinations(ordered, size):
            distance = _distance(chosen)
            closest = min(closest, distance)
            if (best is None or distance < best[0]) and _holds(qos, needs, chosen):
                best = (distance, chosen)
        if best is not None:
            return LeastZones(tuple(zone.zone for zone in best[1]), best[0] == closest)
    return None


def score_least_zones(scope: FilterScope, pod: PodRequest, zones: Sequence[DistantZone], max_zones: int = 8) -> int:
    """100 less a step for each zone, and half a step back for the closest; `step = 100 // max_zones`.

    In container scope init and app containers take what they need one after the other (lowest ids first), the largest number of
    zones counts, and all must be closest. 100 when nothing of a zone is requested, and for pods that are not guaranteed; 0 when
    something does not fit.
    """
    if pod.qos is not KubeQos.GUARANTEED:
        return _MAX_SCORE
    free = {zone.zone: dict(zone.free) for zone in zones}
    requests = [effective_request(pod)] if scope is FilterScope.POD else [*pod.init_containers, *pod.containers]
    count, is_closest = 0, True
    for request in requests:
        if not any(name in amounts for name in request for amounts in free.values()):
            continue
        found = least_zones(pod.qos, request, [zone._replace(free=free[zone.zone]) for zone in zones])
        if found is None:
            return 0
        count = max(count, len(found.zones))
        is_closest = is_closest and found.is_closest
        _take(request, found.zones, free)
    return score_of_count(count, is_closest, max_zones) if count else _MAX_SCORE


def score_of_count(count: int, is_closest: bool, max_zones: int = 8) -> int:
    """The score of that many zones: all divisions round down."""
    if max_zones < 1:
        raise InvalidInput("max_zones", "must be at least 1", max_zones)
    step = _MAX_SCORE // max_zones
    return _MAX_SCORE - count * step + (step // 2 if is_closest else 0)


def _distance(chosen: Sequence[DistantZone]) -> int:
    return sum(one.distances.get(other.zone, DISTANCE_UNKNOWN) for one in chosen for other in chosen)


def _holds(qos: KubeQos, needs: Amounts, chosen: Sequence[DistantZone]) -> bool:
    if any(name not in zone.free for zone in chosen for name in needs):
        return False
    return all(
        is_enough(qos, name, need, total_of(name, (zone.free for zone in chosen))) for name, need in needs.items()
    )


def _take(request: Amounts, zones: Sequence[int], free: Mapping[int, dict[str, int]]) -> None:
    for name, amount in request.items():
        for zone in zones:
            taken = min(amount, max(0, free[zone].get(name, 0)))
            if taken:
                free[zone][name] -= taken
                amount -= taken
