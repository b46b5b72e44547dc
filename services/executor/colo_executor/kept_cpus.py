"""The CPUs of this node that colo gives to nobody, as the collector reports them: one list for every service."""

from msgspec import Struct

from colo_common.events.node import NodeTopologyReported
from colo_common.model.cpuset import CpuSet
from colo_common.model.withheld import index_of, lasting_rules, withheld_cpus

__all__ = ["KeptCpus", "OwnCpus", "kept_of"]


class KeptCpus(Struct, frozen=True, kw_only=True):
    """`withheld` CPUs are given to no work at all; of the `pinned` ones, a kubelet's, batch work may use what is idle."""

    withheld: CpuSet = CpuSet()
    pinned: CpuSet = CpuSet()

    @property
    def taken(self) -> CpuSet:
        """The CPUs that no online work gets."""
        return self.withheld | self.pinned


class OwnCpus(Struct, frozen=True, kw_only=True):
    """The CPUs that LSE and LSR work has as its own, and those that a kubelet pinned, which stay with its pods."""

    cpus: CpuSet = CpuSet()
    pinned: CpuSet = CpuSet()


def kept_of(report: NodeTopologyReported) -> KeptCpus:
    """The CPUs by the rules of the report. Raises InvalidInput for CPUs that no machine can have."""
    pinned = CpuSet.parse(report.rules.kubelet_pinned_cpus, "rules.kubelet_pinned_cpus")
    withheld = withheld_cpus(lasting_rules(report.rules), index_of(report.topology.cpus))
    return KeptCpus(withheld=withheld, pinned=pinned - withheld)
