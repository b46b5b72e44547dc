"""The CPUs still free and those already taken, in the middle of one choice."""

from colo_scheduler.cpus.binding import ExclusivePolicy
from colo_scheduler.cpus.topology import CpuTopology

__all__ = ["CpuAccumulator"]


class CpuAccumulator:
    """Free and taken CPUs as masks, the number still needed, and what orders them. Lives as long as one choice.

    `taken | free` never changes, `need` falls by one with every CPU taken and never below 0.
    """

    def __init__(
        self,
        topology: CpuTopology,
        free: int,
        need: int,
        *,
        is_most_first: bool,
        exclusive: ExclusivePolicy,
        kept_away: int,
    ) -> None:
        self.topology = topology
        self.free = free & topology.all_mask
        self.taken = 0
        self.need = need
        self.exclusive = exclusive
        self.kept_away = kept_away
        self.sign = 1 if is_most_first else -1
        """Multiplies a count of free CPUs in a sort key: fewest first for MostAllocated, else most first."""

    def take(self, cpus: list[int]) -> None:
        """Take these CPUs; the cores or zones they lie in are from now on kept away from, as those of other holders are."""
        mask = 0
        for cpu in cpus:
            mask |= 1 << cpu
        self.free &= ~mask
        self.taken |= mask
        self.need -= len(cpus)
        topology = self.topology
        if self.exclusive is ExclusivePolicy.PCPU_LEVEL:
            for cpu in cpus:
                self.kept_away |= topology.core_masks[topology.core_of_cpu[cpu]]
        elif self.exclusive is ExclusivePolicy.NUMA_NODE_LEVEL:
            for cpu in cpus:
                self.kept_away |= topology.zone_masks[topology.zone_of_cpu[cpu]]

    def passes(self, *levels: ExclusivePolicy) -> tuple[int, int]:
        """The free CPUs to try first, without those kept away if the request's policy is one of `levels`; then all of them."""
        return (self.free & ~self.kept_away if self.exclusive in levels else self.free, self.free)
