"""The kubelet's packing: whole zones and sockets first, then whole caches and cores, then single CPUs of begun ones.

The rules are those of kubernetes/kubernetes:pkg/kubelet/cm/cpumanager/cpu_assignment.go (static policy).
"""

from collections.abc import Sequence

from colo_common.model.reasons import Reason
from colo_scheduler.cpus.binding import FAILED, NOT_ENOUGH, NoCpus
from colo_scheduler.cpus.topology import CpuTopology, cpus_of_mask
from colo_scheduler.peers.kubelet.packing import Packing
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
    packing = Packing(topology, free, need)
    available = packing.free.bit_count()
    if need > available:
        return NoCpus(reason=Reason.CPUS_SHORT, detail=NOT_ENOUGH, short_count=need - available)
    if packing.is_zone_first:
        _take_whole(packing, topology.zone_masks, packing.zones())
        _take_whole(packing, topology.socket_masks, packing.sockets())
    else:
        _take_whole(packing, topology.socket_masks, packing.sockets())
        _take_whole(packing, topology.zone_masks, packing.zones())
    if packing.need and is_by_l3:
        take_caches(packing)
    if not packing.need:
        return packing.taken
    if is_across_cores:
        cpus = [
            cpu for socket in packing.sockets() for cpu in cpus_of_mask(packing.free & topology.socket_masks[socket])
        ]
    else:
        _take_whole(packing, topology.core_masks, packing.cores())
        if not packing.need:
            return packing.taken
        cpus = [cpu for core in packing.cores() for cpu in cpus_of_mask(packing.free & topology.core_masks[core])]
    packing.take_cpus(cpus)
    if packing.need:
        return NoCpus(reason=Reason.CPUS_SHORT, detail=FAILED, short_count=packing.need)
    return packing.taken


def _take_whole(packing: Packing, masks: Sequence[int], order: list[int]) -> None:
    """Take each completely free unit that is not larger than what is still needed, in this order."""
    for unit in order:
        if not packing.need:
            return
        mask = masks[unit]
        if not mask & ~packing.free and mask.bit_count() <= packing.need:
            packing.take(mask)
