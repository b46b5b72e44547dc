"""Which single zone a container gets, as the NodeResourceTopology filter of scheduler-plugins foresees the kubelet
(noderesourcetopology/filter.go)."""

from collections.abc import Mapping
from typing import Final

from colo_common.model.resource_list import CPU, MEMORY, ResourceList
from colo_scheduler.numa.amounts import is_native
from colo_scheduler.numa.least_zones import ZONE_ID_END, KubeQos, is_enough

__all__ = ["align"]

_HOST_LEVEL: Final = ("ephemeral-storage", "storage")
_EVERY_NODE: Final = (CPU, MEMORY, "ephemeral-storage", "pods")
"""What the scheduler's view of a node names even where the node does not, then as none of it."""


def align(
    qos: KubeQos, request: ResourceList, free: Mapping[int, ResourceList], node_allocatable: ResourceList
) -> int | None:
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
