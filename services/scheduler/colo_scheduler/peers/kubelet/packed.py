"""The kubelet's packing: whole zones and sockets first, then whole caches and cores, then single CPUs of begun ones.

The rules are those of kubernetes/kubernetes:pkg/kubelet/cm/cpumanager/cpu_assignment.go (static policy).
"""

from colo_common.model.reasons import Reason
from colo_scheduler.cpus.accumulator import CpuAccumulator
from colo_scheduler.cpus.assignment import free_cpus_in
from colo_scheduler.cpus.binding import FAILED, NOT_ENOUGH, NoCpus
from colo_scheduler.cpus.topology import CpuTopology
from colo_scheduler.peers.kubelet.packing import PackingOrder
from colo_scheduler.peers.kubelet.uncore import take_caches

__all__ = ["take_packed"]


def take_packed(
    topology: CpuTopology, free: int, need: int, *, is_across_cores: bool = False, is_by_l3: bool = False
) -> int | NoCpus:
    """`need` CPUs of the mask `free`, as a mask, packed as tightly as they go. A need below 1 gives no CPU.

    `is_across_cores` (distribute-cpus-across-cores) takes no whole cores, but the lowest CPUs of a socket; `is_by_l3`
    (prefer-align-cpus-by-uncorecache) looks for whole, then partial last-level caches before cores.
    """
    if need < 1:
        return 0
    accumulator = CpuAccumulator(topology, free, need)
    if accumulator.short_count:
        return NoCpus(reason=Reason.CPUS_SHORT, detail=NOT_ENOUGH, short_count=accumulator.short_count)
    order = PackingOrder(accumulator)
    if order.is_zone_first:
        accumulator.take_whole([topology.zone_masks[zone] for zone in order.zones()])
        accumulator.take_whole([topology.socket_masks[socket] for socket in order.sockets()])
    else:
        accumulator.take_whole([topology.socket_masks[socket] for socket in order.sockets()])
        accumulator.take_whole([topology.zone_masks[zone] for zone in order.zones()])
    if accumulator.need and is_by_l3:
        take_caches(accumulator, order)
    if not accumulator.need:
        return accumulator.taken
    if is_across_cores:
        pieces = [topology.socket_masks[socket] for socket in order.sockets()]
    else:
        accumulator.take_whole([topology.core_masks[core] for core in order.cores()])
        pieces = [topology.core_masks[core] for core in order.cores()]
    accumulator.take_cpus(free_cpus_in(accumulator, pieces))
    if accumulator.need:
        return NoCpus(reason=Reason.CPUS_SHORT, detail=FAILED, short_count=accumulator.need)
    return accumulator.taken
