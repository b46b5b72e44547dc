"""The CPU and memory that the operator of a node keeps back, by zone, computed from the node's rules."""

from collections.abc import Mapping

from msgspec import Struct

from colo_common.model.cpuset import CpuSet
from colo_common.model.node_rules import UNRULED, NodeRules
from colo_common.model.quantity import ceil_div
from colo_common.model.topology import NodeTopology

__all__ = ["Reserved", "reserved_by_zone"]

_MCPU = 1_000


class Reserved(Struct, frozen=True, kw_only=True):
    """The CPU and memory that are kept back in one zone."""

    cpu_mcpu: int = 0
    memory_bytes: int = 0


def reserved_by_zone(topology: NodeTopology, rules: NodeRules) -> Mapping[int, Reserved]:
    """Zone -> the CPU and memory kept back in it; {} without rules. Raises InvalidInput for rules that do not fit the topology.

    Listed CPUs (reserved, the kubelet's, SYSTEM work's) count 1000 mcpu each in their zone. A quantity of CPU counts only where no
    reserved CPUs are listed; it is rounded up to whole CPUs and shared by the zones, as memory is; each share rounds up.
    `reserved_cpus_only` makes no difference here (Koordinator's applyPolicy concerns the scheduler).
    """
    rules.validate(topology)
    if rules == UNRULED:
        return {}
    listed = CpuSet.parse(rules.reserved_cpus, "rules.reserved_cpus")
    kept = listed | CpuSet.parse(rules.kubelet_reserved_cpus) | CpuSet.parse(rules.system_cpus)
    count = len(topology.zones)
    quantity_mcpu = 0 if listed else ceil_div(ceil_div(rules.reserved_mcpu, _MCPU) * _MCPU, count)
    memory_bytes = ceil_div(rules.reserved_memory_bytes, count)
    return {
        zone.zone: Reserved(
            cpu_mcpu=quantity_mcpu + len(CpuSet.parse(zone.cpus) & kept) * _MCPU, memory_bytes=memory_bytes
        )
        for zone in topology.zones
    }
