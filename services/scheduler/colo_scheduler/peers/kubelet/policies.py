"""What each topology policy admits of merged hints as the kubelet's topology manager decides it.

The merge of hint lists is that of topologymanager/policy.go (HintMerger).
"""

from collections.abc import Sequence

from colo_scheduler.numa.mask import mask_of
from colo_scheduler.numa.policies import (
    NO_AFFINITY,
    HintList,
    Merged,
    PolicyVerdict,
    ProviderHints,
    TopologyPolicy,
    agreed_masks,
    hint_lists,
    one_zone_hints,
    reachable_masks,
    verdict_of,
    without_all_zones,
)

__all__ = [
    "decide_kubelet",
    "merge_kubelet",
]


def merge_kubelet(
    all_zones: int, lists: Sequence[HintList], distances: Sequence[Sequence[int]] | None = None
) -> Merged:
    """The best merged hint: preferred first, then fewer zones, then the smaller mask.

    `distances[i][j]` between zones i and j stands for prefer-closest-numa-nodes: between equally many zones the smaller sum
    of distances over all ordered pairs, each with itself included, comes before the smaller mask. Not preferred sets are
    measured against B, the most zones that any list needs at least: B zones first, then fewer (the most of them), then more
    (the fewest).
    """

    def fitter(mask: int) -> tuple[int, int, int]:
        return (mask.bit_count(), _distance(mask, distances) if distances else 0, mask)

    agreed = agreed_masks(all_zones, lists)
    if agreed:
        return Merged(min(agreed, key=fitter), True)
    needed = max((_narrowest(each) for each in lists), default=0)

    def nearest(mask: int) -> tuple[int, int, tuple[int, int, int]]:
        size = mask.bit_count()
        if size <= needed:
            return (0, needed - size, fitter(mask))
        return (1, size - needed, fitter(mask))

    reachable = reachable_masks(all_zones, lists)
    return Merged(min(reachable, key=nearest) if reachable else all_zones, False)


def _narrowest(each: HintList) -> int:
    return min((hint.mask.bit_count() for hint in each.hints if hint.mask is not None), default=0)


def _distance(mask: int, distances: Sequence[Sequence[int]]) -> int:
    zones = [zone for zone in range(len(distances)) if mask >> zone & 1]
    return sum(distances[one][other] for one in zones for other in zones)


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
