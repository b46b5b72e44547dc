"""Memory of a simulated machine: growth of replicas, use by zone, and reclaim stalls near the top."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from colo_sim.machine_replica import Replica

__all__ = ["grow_memory", "memory_by_zone", "memory_stall_permille"]

_PERMILLE = 1_000
_MEMORY_SOME_FROM_PERMILLE = 950
_MEMORY_FULL_FROM_PERMILLE = 980


def grow_memory(replicas: Collection[Replica], now_ms: int, ramp_ms: int) -> tuple[int, bool]:
    """Set the present memory of each replica: its request times its age over the ramp, rounded down.

    Returns their sum, and whether any still grows.
    """
    total_bytes = 0
    is_ramping = False
    for replica in replicas:
        age_ms = now_ms - replica.started_ms
        if age_ms < ramp_ms:
            replica.memory_now_bytes = replica.memory_bytes * age_ms // ramp_ms
            is_ramping = True
        else:
            replica.memory_now_bytes = replica.memory_bytes
        total_bytes += replica.memory_now_bytes
    return total_bytes, is_ramping


def memory_by_zone(
    online_bytes: int, weights: Sequence[int], replicas: Collection[Replica], capacity_bytes: int
) -> list[int]:
    """Return memory in use by zone: online by weight, replicas evenly over their zones; the excess of a zone goes to others.

    The sum is all memory in use, or the capacity of all zones where more is wanted.
    """
    weight_sum = sum(weights)
    used = [online_bytes * weight // weight_sum for weight in weights]
    used[-1] += online_bytes - sum(used)
    for replica in replicas:
        part, rest = divmod(replica.memory_now_bytes, len(replica.zones))
        for position, zone in enumerate(replica.zones):
            used[zone] += part + (position < rest)
    over = sum(max(0, one - capacity_bytes) for one in used)
    used = [min(one, capacity_bytes) for one in used]
    for zone, one in enumerate(used):
        more = min(over, capacity_bytes - one)
        used[zone] += more
        over -= more
    return used


def memory_stall_permille(used_bytes: int, capacity_bytes: int) -> tuple[int, int]:
    """Return the some and full stall shares of a memory in use: from 95 % and 98 % linearly to the whole at 100 %.

    Full is at most half the time. MODELLED: reclaim starts near the top and grows steeply; both round down.
    """
    used_permille = min(used_bytes * _PERMILLE // capacity_bytes, _PERMILLE)
    some = (used_permille - _MEMORY_SOME_FROM_PERMILLE) * _PERMILLE // (_PERMILLE - _MEMORY_SOME_FROM_PERMILLE)
    full = (used_permille - _MEMORY_FULL_FROM_PERMILLE) * _PERMILLE // (_PERMILLE - _MEMORY_FULL_FROM_PERMILLE)
    return max(0, some), max(0, full) // 2
