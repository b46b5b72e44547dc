"""How many CPUs each pool of a machine gets when they want more, or less, than there are.

After Katalyst (kubewharf/katalyst-core:pkg/agent/sysadvisor/plugin/qosaware/resource/cpu/assembler/provisionassembler/helper.go).
Where the original leaves a draw to the order of a hash map, the pool whose name sorts first wins here.

For comparing with what others decide: colo sizes no pools, they are what CPUs of one's own leave.
"""

from collections.abc import Mapping

from msgspec import Struct

from colo_common.model.invalid import InvalidInput
from colo_common.model.quantity import ceil_div

__all__ = ["PoolSizes", "overlap_reclaim", "regulate_pool_sizes"]


class PoolSizes(Struct, frozen=True, kw_only=True):
    """CPUs of each pool, by name. `is_throttled`: together they wanted more than is available.

    The sizes sum to at most what is available, except when there are fewer CPUs than pools that want one: then every pool has all
    of them, and the pools overlap.
    """

    sizes: Mapping[str, int]
    is_throttled: bool


def regulate_pool_sizes(
    expandable: Mapping[str, int], unexpandable: Mapping[str, int], available: int, *, allow_expand: bool
) -> PoolSizes:
    """Fit the pools' wanted CPUs into `available`.

    When they want more, all are scaled down in proportion. When they want no more, each has what it wants, and with `allow_expand`
    the expandable ones share all that the others leave, in proportion to what they want. Shares are rounded up, and then the pool
    with the largest ratio of share to want gives one back (between equal ratios the larger share) until they fit; no pool falls
    below 1 so. Raises InvalidInput for a negative number, and for a pool that is in both maps.
    """
    _check("expandable", expandable)
    _check("unexpandable", unexpandable)
    _check("pools", {"available": available})
    for name in sorted(expandable.keys() & unexpandable.keys()):
        raise InvalidInput(f"unexpandable.{name}", "must not be an expandable pool, too", name)
    wanted, fixed = sum(expandable.values()), sum(unexpandable.values())
    if wanted + fixed > available:
        pools = {**expandable, **unexpandable}
        scaled = _scaled(pools, available)
        return PoolSizes(sizes=dict.fromkeys(pools, available) if scaled is None else scaled, is_throttled=True)
    grown = _scaled(expandable, available - fixed if allow_expand else wanted)
    sizes = dict.fromkeys(expandable, available) if grown is None else grown
    return PoolSizes(sizes={**sizes, **unexpandable}, is_throttled=False)


def overlap_reclaim(shared: Mapping[str, int], required: int) -> dict[str, int]:
    """How many CPUs of each shared pool the reclaimed pool of size `required` overlaps; their sum is `required`.

    The largest pool first: min(ceil(required * size / sum of sizes), what is still required). Pools that give none are left out.
    Raises InvalidInput when more is required than the pools have, and for a negative number.
    """
    _check("shared", shared)
    _check("pools", {"required": required})
    total = sum(shared.values())
    if required > total:
        raise InvalidInput("required", f"must be at most {total}, what the shared pools have", required)
    overlap: dict[str, int] = {}
    left = required
    for name in sorted(shared, key=lambda pool: (-shared[pool], pool)):
        if left == 0:
            break
        overlap[name] = min(ceil_div(required * shared[name], total), left)
        left -= overlap[name]
    return overlap


def _check(field: str, numbers: Mapping[str, int]) -> None:
    for name in sorted(numbers):
        if numbers[name] < 0:
            raise InvalidInput(f"{field}.{name}", "must be at least 0", numbers[name])


def _scaled(pools: Mapping[str, int], target: int) -> dict[str, int] | None:
    """Sizes in proportion to what the pools want, summing to `target`; None when that leaves a pool without a CPU."""
    total = sum(pools.values())
    if total in (0, target):
        return dict(pools)
    sizes = {name: ceil_div(wanted * target, total) for name, wanted in pools.items()}
    excess = sum(sizes.values()) - target
    while excess > 0:
        giver = _next_to_give(pools, sizes)
        if giver is None:
            return None
        sizes[giver] -= 1
        excess -= 1
    return sizes


def _next_to_give(wanted: Mapping[str, int], sizes: Mapping[str, int]) -> str | None:
    """The pool with the largest size / wanted among those above 1, then the largest size, then the first name."""
    best: str | None = None
    for name in sorted(sizes):
        if sizes[name] <= 1:
            continue
        if best is None:
            best = name
            continue
        # size / wanted compared without division: both wanted are positive, since the sizes are.
        ratio, best_ratio = sizes[name] * wanted[best], sizes[best] * wanted[name]
        if ratio > best_ratio or (ratio == best_ratio and sizes[name] > sizes[best]):
            best = name
    return best
