"""Who holds which CPUs, and which of them a request with an exclusive policy would rather not touch."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from colo_common.model.cpuset import CpuSet
from colo_scheduler.cpus.binding import ExclusivePolicy
from colo_scheduler.cpus.topology import CpuTopology, cpus_of_mask

__all__ = ["HeldCpus", "Holders", "is_apart", "kept_away", "sum_holders"]


class HeldCpus(Struct, frozen=True, kw_only=True):
    """CPUs that one workload, or one reservation, holds by number, and what it keeps away from."""

    cpus: CpuSet
    exclusive: ExclusivePolicy = ExclusivePolicy.NONE


class Holders(Struct, frozen=True, kw_only=True):
    """All holders of a machine together: how many hold each CPU, and the CPUs (masks) of those that want a core or zone alone.

    A CPU in two holders' sets keeps both their policies; Koordinator remembers one of them only.
    """

    refs: Mapping[int, int]
    pcpu_level: int = 0
    zone_level: int = 0


def sum_holders(held: Iterable[HeldCpus], released: Iterable[CpuSet] = ()) -> Holders:
    """The holders of a machine, less one holder of each CPU of every `released` set.

    `released` is what the request may take although it is held: the rest of its reservation, CPUs of replicas that would be
    preempted. A CPU whose last holder is released counts as held by nobody (node_allocation.go:192).
    """
    refs: dict[int, int] = {}
    pcpu_level = zone_level = 0
    for holder in held:
        for cpu in holder.cpus:
            refs[cpu] = refs.get(cpu, 0) + 1
        if holder.exclusive is ExclusivePolicy.PCPU_LEVEL:
            pcpu_level |= holder.cpus.mask
        elif holder.exclusive is ExclusivePolicy.NUMA_NODE_LEVEL:
            zone_level |= holder.cpus.mask
    for cpus in released:
        for cpu in cpus:
            count = refs.get(cpu, 0)
            if count > 1:
                refs[cpu] = count - 1
            elif count == 1:
                del refs[cpu]
                pcpu_level &= ~(1 << cpu)
                zone_level &= ~(1 << cpu)
    return Holders(refs=refs, pcpu_level=pcpu_level, zone_level=zone_level)


def kept_away(topology: CpuTopology, policy: ExclusivePolicy, holders: Holders) -> int:
    """The CPUs that a request of this policy would rather not take: all of the cores, or zones, where such a holder is."""
    if policy is ExclusivePolicy.PCPU_LEVEL:
        return _widen(topology.core_of_cpu, topology.core_masks, holders.pcpu_level & topology.all_mask)
    if policy is ExclusivePolicy.NUMA_NODE_LEVEL:
        return _widen(topology.zone_of_cpu, topology.zone_masks, holders.zone_level & topology.all_mask)
    return 0


def is_apart(topology: CpuTopology, policy: ExclusivePolicy, holders: Holders, cpus: int) -> bool:
    """Whether these CPUs keep the distance the policy asks for; always so without a policy."""
    return cpus & kept_away(topology, policy, holders) == 0


def _widen(index_of_cpu: tuple[int, ...], masks: tuple[int, ...], cpus: int) -> int:
    wide = 0
    for cpu in cpus_of_mask(cpus):
        wide |= masks[index_of_cpu[cpu]]
    return wide
