"""Which CPUs one more owner of a reservation gets from Koordinator (nodenumaresource/reservation.go).

A CPU that a reservation holds and one of its owners uses is held twice. For an owner each CPU that is left in its reservation
counts one holder less, and these are taken first.
"""

from __future__ import annotations

from collections.abc import Sequence

from colo_common.model.cpu_topology import CpuTopology
from colo_common.model.cpuset import CpuSet
from colo_common.model.reasons import Reason
from colo_common.model.reservation import AllocatePolicy
from colo_scheduler.cpus.accumulate import Wish
from colo_scheduler.cpus.binding import NOT_ENOUGH, NoCpus
from colo_scheduler.cpus.exclusive import HeldCpus, sum_holders
from colo_scheduler.reservations.held_cpus import cpus_left
from tests.parity.peers.shared_cpus import take_shared_cpus


def choose_reserved_cpus(
    topology: CpuTopology,
    wish: Wish,
    *,
    held_by_others: Sequence[HeldCpus],
    reserved: HeldCpus,
    owners: Sequence[HeldCpus],
    need: int,
    policy: AllocatePolicy,
    max_ref_count: int = 1,
) -> CpuSet | NoCpus:
    """`need` CPUs for one more owner of a reservation.

    `held_by_others` have nothing to do with the reservation; `owners` use it already, inside its CPUs or beyond. Under `default`
    and `aligned` the rest of the reservation is taken first and free CPUs of the node after it. Under `restricted` all must come
    from the reservation, once the same choice without that rule has succeeded.
    """
    left = cpus_left(reserved.cpus, [owner.cpus for owner in owners])
    holders = sum_holders([*held_by_others, reserved, *owners], released=[left])
    free = topology.all_mask & ~holders.held_by(max_ref_count)
    chosen = take_shared_cpus(topology, free, left.mask, need, wish, holders, max_ref_count)
    if isinstance(chosen, NoCpus):
        return chosen
    if not policy.is_bounded:
        return CpuSet(chosen)
    if need > len(left):
        return NoCpus(reason=Reason.CPUS_SHORT, detail=NOT_ENOUGH, short_count=need - len(left))
    inside = take_shared_cpus(topology, free & left.mask, left.mask, need, wish, holders, max_ref_count)
    return inside if isinstance(inside, NoCpus) else CpuSet(inside)
