"""An accumulator with what orders CPUs by Koordinator's rules."""

from colo_common.model.cpu_accumulator import CpuAccumulator
from colo_common.model.cpu_topology import CpuTopology, cpus_of_mask
from colo_scheduler.cpus.binding import ExclusivePolicy

__all__ = ["ExclusiveAccumulator"]


class ExclusiveAccumulator(CpuAccumulator):
    """An accumulator with what orders CPUs by Koordinator's rules.

    `kept_away`: the CPUs that the request's exclusive policy would rather not take.
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
        super().__init__(topology, free, need)
        self.exclusive = exclusive
        self.kept_away = kept_away
        self.sign = 1 if is_most_first else -1
        """Multiplies a count of free CPUs in a sort key: fewest first for MostAllocated, else most first."""

    def take(self, cpus: int) -> None:
        """Take a mask; the cores or zones its CPUs lie in are from now on kept away from, as those of other holders are."""
        super().take(cpus)
        topology = self.topology
        if self.exclusive is ExclusivePolicy.PCPU_LEVEL:
            for cpu in cpus_of_mask(cpus):
                self.kept_away |= topology.core_masks[topology.core_of_cpu[cpu]]
        elif self.exclusive is ExclusivePolicy.NUMA_NODE_LEVEL:
            for cpu in cpus_of_mask(cpus):
                self.kept_away |= topology.zone_masks[topology.zone_of_cpu[cpu]]

    def passes(self, *levels: ExclusivePolicy) -> tuple[int, int]:
        """The free CPUs to try first, without those kept away if the request's policy is one of `levels`; then all of them."""
        return (self.free & ~self.kept_away if self.exclusive in levels else self.free, self.free)
