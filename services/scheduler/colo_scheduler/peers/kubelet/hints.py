"""The kubelet's hints (topologymanager): which sets of zones have enough of each resource."""

from collections.abc import Sequence

from colo_common.model.resource_list import ResourceList
from colo_scheduler.numa.amounts import ZoneAmounts
from colo_scheduler.numa.policies import Hint
from colo_scheduler.numa.zone_sets import ZoneSets

__all__ = ["kubelet_hints"]


def kubelet_hints(zones: Sequence[ZoneAmounts], request: ResourceList) -> dict[str, list[Hint]]:
    """The hints of every requested resource that some zone has: the sets with enough free of it, resource by resource.

    Preferred are sets as small as the machine could do with when empty (by capacity). Raises InvalidInput above
    EXHAUSTIVE_ZONES zones.
    """
    sets = ZoneSets(zones)
    hints: dict[str, list[Hint]] = {}
    for name in sets.resources_in(request):
        amount, capacity, free = request[name], sets.capacity(name), sets.free(name)
        least = min((mask.bit_count() for mask, places in sets.masks if capacity[places] >= amount), default=0)
        hints[name] = [Hint(mask, mask.bit_count() == least) for mask, places in sets.masks if free[places] >= amount]
    return hints
