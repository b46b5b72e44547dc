"""The holders of CPUs, and the CPUs that a request with an exclusive policy avoids."""

from collections.abc import Iterable

from msgspec import Struct

from colo_common.model.cpu_topology import CpuTopology, cpus_of_mask
from colo_common.model.cpuset import CpuSet
from colo_scheduler.cpus.binding import ExclusivePolicy

__all__ = ["HeldCpus", "Holders", "kept_away", "sum_holders"]


class HeldCpus(Struct, frozen=True, kw_only=True):
    """CPUs that one workload, or one reservation, holds by number, and what it keeps away from."""

    cpus: CpuSet
    exclusive: ExclusivePolicy = ExclusivePolicy.NONE


class Holders(Struct, frozen=True, kw_only=True):
    """All holders of a machine together, as masks.

    `planes[i]` are the CPUs with more than i holders, so each plane lies within the one before. `pcpu_level` and `zone_level` are
    the CPUs of holders that want their cores or zones alone; a CPU in two holders' sets keeps both policies (Koordinator
    remembers one of them only).
    """

    planes: tuple[int, ...] = ()
    pcpu_level: int = 0
    zone_level: int = 0

    def held_by(self, count: int) -> int:
        """The CPUs that `count` or more hold; `count` is at least 1."""
        return self.planes[count - 1] if count <= len(self.planes) else 0


def sum_holders(held: Iterable[HeldCpus], released: Iterable[CpuSet] = ()) -> Holders:
    """The holders of a machine, less one holder of each CPU of every `released` set.

    `released` is what the request may take although it is held: the rest of its reservation, CPUs of replicas that would be
    preempted. A CPU whose last holder is released counts as not held (node_allocation.go:192).
    """
    planes: list[int] = []
    pcpu_level = zone_level = 0
    for holder in held:
        mask = holder.cpus.mask
        if holder.exclusive is ExclusivePolicy.PCPU_LEVEL:
            pcpu_level |= mask
        elif holder.exclusive is ExclusivePolicy.NUMA_NODE_LEVEL:
            zone_level |= mask
        for level, plane in enumerate(planes):
            planes[level], mask = plane | mask, plane & mask
        if mask:
            planes.append(mask)
    for cpus in released:
        mask = cpus.mask
        for level in range(len(planes) - 1, -1, -1):
            deleted = planes[level] & mask
            planes[level] &= ~deleted
            mask &= ~deleted
    still_held = planes[0] if planes else 0
    while planes and not planes[-1]:
        planes.pop()
    return Holders(planes=tuple(planes), pcpu_level=pcpu_level & still_held, zone_level=zone_level & still_held)


def kept_away(topology: CpuTopology, policy: ExclusivePolicy, holders: Holders) -> int:
    """The CPUs that a request of this policy would rather not take: all of the cores, or zones, where such a holder is."""
    if policy is ExclusivePolicy.PCPU_LEVEL:
        return _widen(topology.core_of_cpu, topology.core_masks, holders.pcpu_level & topology.all_mask)
    if policy is ExclusivePolicy.NUMA_NODE_LEVEL:
        return _widen(topology.zone_of_cpu, topology.zone_masks, holders.zone_level & topology.all_mask)
    return 0


def _widen(index_of_cpu: tuple[int, ...], masks: tuple[int, ...], cpus: int) -> int:
    wide = 0
    for cpu in cpus_of_mask(cpus):
        wide |= masks[index_of_cpu[cpu]]
    return wide
