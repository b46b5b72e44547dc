"""How well a pod of several containers suits the zones of a node, 0-100: the NodeResourceTopology score of scheduler-plugins.

(noderesourcetopology/score.go). A service scores one request in one zone, and by balance only (`colo_scheduler.numa.zone_scores`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

from colo_common.model.resource_list import ResourceList
from colo_scheduler.numa.amounts import NO_AMOUNTS, ZoneAmounts
from colo_scheduler.numa.least_zones import KubeQos
from colo_scheduler.numa.policies import TopologyPolicy
from colo_scheduler.numa.zone_scores import MAX_SCORE, balanced_score
from tests.parity.peers.zone_filter import PodRequest, Scope, effective_request


class Strategy(StrEnum):
    """What a zone is rewarded for."""

    LEAST = "LeastAllocated"
    MOST = "MostAllocated"
    BALANCED = "BalancedAllocation"


def score_node(
    policy: TopologyPolicy,
    scope: Scope,
    strategy: Strategy,
    pod: PodRequest,
    zones: Sequence[ZoneAmounts],
    weights: ResourceList = NO_AMOUNTS,
) -> int:
    """The lowest score of a zone that is not 0; in container scope the mean over init and app containers, rounded down.

    100 for pods that are not guaranteed, 0 for nodes of another policy than single-numa-node. A weight below 1 or absent is 1.
    """
    if pod.qos is not KubeQos.GUARANTEED:
        return MAX_SCORE
    if policy is not TopologyPolicy.SINGLE:
        return 0
    if scope is Scope.POD:
        return _lowest(strategy, effective_request(pod), zones, weights)
    containers = (*pod.init_containers, *pod.containers)
    scores = [_lowest(strategy, container, zones, weights) for container in containers]
    return sum(scores) // len(scores) if scores else 0


def _lowest(strategy: Strategy, request: ResourceList, zones: Sequence[ZoneAmounts], weights: ResourceList) -> int:
    scores = [score for zone in zones if (score := score_zone(strategy, request, zone.free, weights))]
    return min(scores, default=0)


def score_zone(
    strategy: Strategy, request: ResourceList, free: ResourceList, weights: ResourceList = NO_AMOUNTS
) -> int:
    """How well one zone suits a request; 0 for an empty one. A weight below 1 or absent is 1."""
    if not request:
        return 0
    match strategy:
        case Strategy.LEAST:
            return _weighted(lambda need, have: (have - need) * MAX_SCORE // have, request, free, weights)
        case Strategy.MOST:
            return _weighted(lambda need, have: need * MAX_SCORE // have, request, free, weights)
        case Strategy.BALANCED:
            return balanced_score(request, free)


def _weighted(
    score: Callable[[int, int], int], request: ResourceList, free: ResourceList, weights: ResourceList
) -> int:
    """Weighted mean over the requested resources, rounded down; what the zone lacks or has too little of scores 0."""
    total = weight_sum = 0
    for name, need in request.items():
        weight = max(1, weights.get(name, 1))
        have = free.get(name, 0)
        total += weight * (score(need, have) if 0 < have >= need else 0)
        weight_sum += weight
    return total // weight_sum
