"""Whether the zones of a node take a pod of several containers: the NodeResourceTopology filter of scheduler-plugins.

Only nodes with the single-numa-node policy are filtered (noderesourcetopology/filter.go). A replica of colo has no containers of
its own, so a service aligns one request (`colo_scheduler.peers.kubelet.zone_filter.align`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from colo_common.model.resource_list import ResourceList
from colo_scheduler.numa.amounts import ZoneAmounts, is_native
from colo_scheduler.numa.least_zones import KubeQos, is_aligned
from colo_scheduler.numa.policies import TopologyPolicy
from colo_scheduler.peers.kubelet.zone_filter import align


class Scope(StrEnum):
    """What the kubelet aligns: each container, or the pod as a whole."""

    CONTAINER = "container"
    POD = "pod"


class PodRequest(NamedTuple):
    """Requests of the init containers, which run one after the other before the others, and of the containers."""

    qos: KubeQos
    containers: tuple[ResourceList, ...]
    init_containers: tuple[ResourceList, ...] = ()


def effective_request(pod: PodRequest) -> dict[str, int]:
    """What a pod needs at any time: the larger of the containers' sum and every init container, resource by resource."""
    total: dict[str, int] = {}
    for container in pod.containers:
        for name, amount in container.items():
            total[name] = total.get(name, 0) + amount
    for container in pod.init_containers:
        for name, amount in container.items():
            total[name] = max(total.get(name, 0), amount)
    return total


def refuse_pod(
    policy: TopologyPolicy,
    scope: Scope,
    pod: PodRequest,
    zones: Sequence[ZoneAmounts] | None,
    node_allocatable: ResourceList,
) -> str | None:
    """None when the pod passes, else what cannot be aligned: "cannot align pod", "... container", "... init container".

    Containers take from the zone of the lowest id that has everything, one after the other; init containers give theirs back.
    A node that tells no zones at all (None) passes.
    """
    if policy is not TopologyPolicy.SINGLE or zones is None:
        return None
    every = (*pod.containers, *pod.init_containers)
    asks_devices = any(not is_native(name) for container in every for name in container)
    if pod.qos is KubeQos.BEST_EFFORT and not asks_devices:
        return None
    free = {zone.zone: dict(zone.free) for zone in zones}
    if scope is Scope.POD:
        return (
            None if align(pod.qos, effective_request(pod), free, node_allocatable) is not None else "cannot align pod"
        )
    for container in pod.init_containers:
        if align(pod.qos, container, free, node_allocatable) is None:
            return "cannot align init container"
    for container in pod.containers:
        zone = align(pod.qos, container, free, node_allocatable)
        if zone is None:
            return "cannot align container"
        _take(pod.qos, container, free.get(zone, {}))
    return None


def _take(qos: KubeQos, request: ResourceList, free: dict[str, int]) -> None:
    for name, need in request.items():
        if name in free and (qos is KubeQos.GUARANTEED or not is_aligned(name)):
            free[name] -= need
