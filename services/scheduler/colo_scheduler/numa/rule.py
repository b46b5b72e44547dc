"""What every rule answers by which zones and CPUs of a node are handed out to online work (`NodeRules.numa_rule`)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from colo_common.model.constraints import Constraints
from colo_common.model.cpuset import CpuSet
from colo_common.model.node_rules import NodeRules
from colo_common.model.reasons import Reason
from colo_scheduler.cpus.binding import NoCpus
from colo_scheduler.cpus.exclusive import HeldCpus
from colo_scheduler.cpus.topology import CpuTopology
from colo_scheduler.numa.amounts import ResourceList, ZoneAmounts
from colo_scheduler.numa.fit import FitContext, ZoneAssignment
from colo_scheduler.numa.policies import TopologyPolicy
from colo_scheduler.numa.refusal import ZoneRefusal

__all__ = ["CpuDemand", "NumaManager"]


class CpuDemand(NamedTuple):
    """CPUs by number that a fitted request still needs.

    `held` are the CPUs of all holders, `withheld` those that are given to no workload. `counts`: how many CPUs each zone was
    foreseen to give; `most`: how many each zone can give at all, both by zone id. `affinity`: the zones that the hints merged into,
    none for all.
    """

    topology: CpuTopology
    held: Sequence[HeldCpus]
    withheld: CpuSet
    counts: Mapping[int, int]
    most: Mapping[int, int]
    affinity: Sequence[int]


class NumaManager(Protocol):
    """The system that hands out zones and CPUs of a node, and by whose rules online work is placed there.

    A node takes only what that system would take, so that no work is refused there after it was placed. Every answer is a function
    of the arguments.
    """

    @property
    def aligns_devices(self) -> bool:
        """Whether devices and CPUs are put together where they can be, although no topology policy is asked for."""
        ...

    def takes_whole_cores(self, rules: NodeRules) -> bool:
        """Whether CPUs by number come in whole cores whatever the request says."""
        ...

    def conflict(self, place: Constraints, own_cpus: int, rules: NodeRules) -> Reason | None:
        """Why the system cannot promise what a request of these constraints and so many CPUs by number demands; None: it can."""
        ...

    def fit_zones(
        self,
        policy: TopologyPolicy,
        zones: Sequence[ZoneAmounts],
        request: ResourceList,
        fit_context: FitContext,
        rules: NodeRules,
    ) -> ZoneAssignment | ZoneRefusal:
        """The zones and parts of a request, or why there are none; arguments and errors are those of `numa.fit.fit_zones`."""
        ...

    def take_cpus(self, demand: CpuDemand, rules: NodeRules) -> CpuSet | NoCpus | None:
        """The CPUs that the system would number; None where it leaves that to colo."""
        ...
