"""Which single zone a pod's containers get, as the NodeResourceTopology filter of scheduler-plugins foresees the kubelet.

Only nodes with the single-numa-node policy are filtered (noderesourcetopology/filter.go).

`refuse_pod` is for comparing with what others decide: a replica has no containers of its own, and `fit` finds its zones.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from colo_scheduler.numa.amounts import CPU, HUGE_PAGES, MEMORY, Amounts, ZoneAmounts, is_native
from colo_scheduler.numa.policies import TopologyPolicy

__all__ = [
    "ZONE_ID_END",
    "KubeQos",
    "PodRequest",
    "FilterScope",
    "align",
    "effective_request",
    "is_aligned",
    "is_enough",
    "refuse_pod",
]

ZONE_ID_END: Final = 64
"""Zones from this id on are never chosen: the foreseen mask has 64 bits."""
_HOST_LEVEL: Final = ("ephemeral-storage", "storage")
_EVERY_NODE: Final = (CPU, MEMORY, "ephemeral-storage", "pods")
"""What the scheduler's view of a node names even where the node does not, then as none of it."""


class FilterScope(StrEnum):
    """What the kubelet aligns: each container, or the pod as a whole."""

    CONTAINER = "container"
    POD = "pod"


class KubeQos(StrEnum):
    """Kubernetes' own QoS classes."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class PodRequest(NamedTuple):
    """Requests of the init containers, which run one after the other before the others, and of the containers."""

    qos: KubeQos
    containers: tuple[Amounts, ...]
    init_containers: tuple[Amounts, ...] = ()


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


def is_aligned(name: str) -> bool:
    """Whether the kubelet must take the resource from zones: CPU, memory, huge pages."""
    return name in (CPU, MEMORY) or name.startswith(HUGE_PAGES)


def is_enough(qos: KubeQos, name: str, need: int, have: int) -> bool:
    """Whether a zone serves a resource; CPU, memory and huge pages of pods that are not guaranteed are not taken from zones."""
    return (qos is not KubeQos.GUARANTEED and is_aligned(name)) or have >= need


def refuse_pod(
    policy: TopologyPolicy,
    scope: FilterScope,
    pod: PodRequest,
    zones: Sequence[ZoneAmounts] | None,
    node_allocatable: Amounts,
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
    if scope is FilterScope.POD:
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


def align(qos: KubeQos, request: Amounts, free: Mapping[int, Amounts], node_allocatable: Amounts) -> int | None:
    """The lowest zone below ZONE_ID_END that serves every resource; None when there is none, or the node does not name one.

    `free` by zone id; a resource that no zone tells does not mind zones when it is storage, or not one of Kubernetes' own.
    """
    zones = set(range(ZONE_ID_END))
    for name in sorted(request):
        need = request[name]
        if need == 0:
            continue
        if name not in node_allocatable and name not in _EVERY_NODE:
            return None
        having = {zone: amounts[name] for zone, amounts in free.items() if name in amounts}
        if not having and (name in _HOST_LEVEL or not is_native(name)):
            continue
        zones &= {zone for zone, have in having.items() if is_enough(qos, name, need, have)}
    return min(zones, default=None)


def _take(qos: KubeQos, request: Amounts, free: dict[str, int]) -> None:
    for name, need in request.items():
        if name in free and (qos is KubeQos.GUARANTEED or not is_aligned(name)):
            free[name] -= need
