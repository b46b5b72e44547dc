"""What is free in a zone: amplified capacity less what is allocated, re-priced for bound CPUs (Koordinator, topology-aware
nodes).

Ratios are integers in percent (150 is 1.5); at or below 100 nothing is amplified.
"""

from colo_scheduler.numa.amounts import CPU, NO_AMOUNTS, Amounts

__all__ = ["amplified", "bound_price", "zone_free"]


def amplified(amount: int, ratio_pct: int) -> int:
    """`amount` times the ratio, rounded up (util.go Amplify); the plain amount for a ratio of 100 or less."""
    return -(-amount * ratio_pct // 100) if ratio_pct > 100 else amount


def bound_price(requested_mcpu: int, bound_cpus: int, ratio_pct: int) -> int:
    """What is requested once every bound CPU costs its amplified 1000 mcpu: requested - 1000 n + amplified(1000 n).

    Unchanged unless requested >= 1000 n > 0 (node_allocation.go:221).
    """
    bound_mcpu = 1000 * bound_cpus
    if not requested_mcpu >= bound_mcpu > 0:
        return requested_mcpu
    return requested_mcpu - bound_mcpu + amplified(bound_mcpu, ratio_pct)


def zone_free(
    capacity: Amounts,
    allocated: Amounts,
    *,
    ratios_pct: Amounts = NO_AMOUNTS,
    bound_cpus: int = 0,
    reusable: Amounts = NO_AMOUNTS,
    usable_cpus: int | None = None,
) -> dict[str, int]:
    """Free amounts of one zone for every resource that `capacity` (amplified already) names, at least 0.

    Allocated CPU is priced with its bound CPUs and each allocated amount is lessened by what may be used again (reservations,
    preemptible holders), not below 0. Under a required bind policy CPU is at most 1000 for each CPU usable under it.
    """
    free: dict[str, int] = {}
    for name, amount in capacity.items():
        held = allocated.get(name, 0)
        if name == CPU:
            held = bound_price(held, bound_cpus, ratios_pct.get(CPU, 100))
        free[name] = max(0, amount - max(0, held - reusable.get(name, 0)))
    if usable_cpus is not None and free.get(CPU):
        free[CPU] = min(free[CPU], 1000 * usable_cpus)
    return free
