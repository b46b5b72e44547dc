"""What each topology policy admits of merged hints as the kubelet's topology manager decides it."""

from collections.abc import Sequence

from colo_scheduler.numa.mask import mask_of
from colo_scheduler.numa.merge import ProviderHints, hint_lists
from colo_scheduler.numa.policies import (
    NO_AFFINITY,
    PolicyVerdict,
    TopologyPolicy,
    one_zone_hints,
    verdict_of,
    without_all_zones,
)
from colo_scheduler.peers.kubelet.merge import merge_kubelet

__all__ = ["decide_kubelet"]


def decide_kubelet(
    policy: TopologyPolicy,
    zones: Sequence[int],
    providers: Sequence[ProviderHints],
    distances: Sequence[Sequence[int]] | None = None,
) -> PolicyVerdict:
    """The kubelet's policies. `distances` switches prefer-closest-numa-nodes on; single-numa-node has no use for it."""
    if policy is TopologyPolicy.NONE:
        return NO_AFFINITY
    all_zones = mask_of(zones)
    lists = hint_lists(all_zones, providers)
    match policy:
        case TopologyPolicy.BEST_EFFORT:
            return verdict_of(merge_kubelet(all_zones, lists, distances), True)
        case TopologyPolicy.RESTRICTED:
            merged = merge_kubelet(all_zones, lists, distances)
            return verdict_of(merged, merged.preferred, lists)
        case TopologyPolicy.SINGLE:
            merged = merge_kubelet(all_zones, one_zone_hints(lists))
            return without_all_zones(verdict_of(merged, merged.preferred, lists), all_zones)
