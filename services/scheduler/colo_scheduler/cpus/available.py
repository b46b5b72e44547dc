"""Which CPUs of a machine may be given out, and what a required bind policy leaves of them."""

from colo_common.model.cpu_topology import CpuTopology
from colo_common.model.cpuset import CpuSet
from colo_scheduler.cpus.accumulator import full_cores, one_a_core
from colo_scheduler.cpus.binding import BindPolicy
from colo_scheduler.cpus.exclusive import Holders

__all__ = ["available_cpus", "keep_bindable", "satisfies_binding"]


def available_cpus(topology: CpuTopology, holders: Holders, reserved: CpuSet) -> int:
    """CPUs that may be given out, as a mask: all, less the reserved, less those that are held.

    `reserved` is the union of what the kubelet keeps and pinned itself, what the node's owner keeps back, and the node's system
    CPUs if they are exclusive (koordinator-sh/koordinator:pkg/scheduler/plugins/nodenumaresource/node_allocation.go:192).
    """
    return topology.all_mask & ~reserved.mask & ~holders.held_by(1)


def keep_bindable(topology: CpuTopology, free: int, bind: BindPolicy) -> int:
    """The CPUs of the mask that a required policy can use: those of full cores, or the lowest free one of each core
    (resource_manager.go:659).
    """
    return one_a_core(topology, free) if bind is BindPolicy.SPREAD_BY_PCPUS else full_cores(topology, free)


def satisfies_binding(topology: CpuTopology, cpus: int, bind: BindPolicy) -> bool:
    """Whether these CPUs are whole cores, or no two of one core, as the policy says (resource_manager.go:701)."""
    for mask in topology.core_masks:
        in_core = cpus & mask
        if bind is BindPolicy.SPREAD_BY_PCPUS:
            if in_core & (in_core - 1):
                return False
        elif in_core and in_core != mask:
            return False
    return True
