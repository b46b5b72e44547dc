"""An attempt's hold on a node beside amounts of CPU and memory, and the cost of CPU on a node that claims more than it has."""

from typing import Final, NamedTuple

from colo_common.model.constraints import CpuExclusive
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_rules import NodeRules
from colo_common.model.placement import UNKNOWN_CPUS, DeviceShare, Placement, ZoneHugePages
from colo_common.model.qos import QosClass
from colo_scheduler.cpus.binding import ExclusivePolicy

__all__ = ["EXCLUSIVE", "Holding", "amplified", "holding_of", "published_of"]

EXCLUSIVE: Final = {
    CpuExclusive.NONE: ExclusivePolicy.NONE,
    CpuExclusive.PCPU_LEVEL: ExclusivePolicy.PCPU_LEVEL,
    CpuExclusive.NUMA_NODE_LEVEL: ExclusivePolicy.NUMA_NODE_LEVEL,
}
_PUBLISHED: Final = {policy: word for word, policy in EXCLUSIVE.items()}


def published_of(policy: ExclusivePolicy) -> CpuExclusive:
    """The policy's name in the contract."""
    return _PUBLISHED[policy]


class Holding(NamedTuple):
    """An attempt's hold beside amounts. `cpus` is a mask: LSE and LSR have these CPUs alone, other classes are only pinned to them.

    `problem`: why the ledger's hold cannot be read.
    """

    qos: QosClass
    cpus: int = 0
    devices: tuple[DeviceShare, ...] = ()
    huge_pages: tuple[ZoneHugePages, ...] = ()
    exclusive: ExclusivePolicy = ExclusivePolicy.NONE
    problem: str = ""

    @property
    def is_own(self) -> bool:
        """Whether no other attempt of a class above BE may run on the CPUs."""
        return self.cpus != 0 and self.qos.has_own_cpus


def holding_of(placement: Placement) -> Holding | None:
    """A placement's hold beside amounts, None when there is none."""
    if not (placement.cpus or placement.devices or placement.huge_pages):
        return None
    cpus, problem = 0, ""
    if placement.cpus == UNKNOWN_CPUS:
        return Holding(placement.qos, problem="which CPUs, devices or huge pages it has is known to its node alone")
    try:
        cpus = CpuSet.parse(placement.cpus).mask
    except InvalidInput as error:
        problem = str(error)
    exclusive = EXCLUSIVE[placement.cpu_exclusive]
    return Holding(placement.qos, cpus, placement.devices, placement.huge_pages, exclusive, problem)


def amplified(mcpu: int, rules: NodeRules) -> int:
    """CPU as the node claims it: times `amplification_pct`, rounded down."""
    return mcpu * rules.amplification_pct // 100
