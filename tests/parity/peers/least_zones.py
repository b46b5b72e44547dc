"""Fewer zones score higher, close ones a little more: the score of scheduler-plugins' LeastNUMANodes
(noderesourcetopology/least_numa.go). A service takes the zones that `colo_scheduler.numa.least_zones` finds and scores none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from colo_common.model.invalid import InvalidInput
from colo_common.model.resource_list import ResourceList
from colo_scheduler.numa.least_zones import DistantZone, KubeQos, least_zones
from tests.parity.peers.zone_filter import PodRequest, Scope, effective_request

_MAX_SCORE = 100


def score_least_zones(scope: Scope, pod: PodRequest, zones: Sequence[DistantZone], max_zones: int = 8) -> int:
    """100 less a step for each zone, and half a step back for the closest; `step = 100 // max_zones`.

    In container scope init and app containers take what they need one after the other (lowest ids first), the largest number of
    zones counts, and all must be closest. 100 when nothing of a zone is requested, and for pods that are not guaranteed; 0 when
    something does not fit.
    """
    if pod.qos is not KubeQos.GUARANTEED:
        return _MAX_SCORE
    free = {zone.zone: dict(zone.free) for zone in zones}
    requests = [effective_request(pod)] if scope is Scope.POD else [*pod.init_containers, *pod.containers]
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


def _take(request: ResourceList, zones: Sequence[int], free: Mapping[int, dict[str, int]]) -> None:
    for name, amount in request.items():
        for zone in zones:
            taken = min(amount, max(0, free[zone].get(name, 0)))
            if taken:
                free[zone][name] -= taken
                amount -= taken
