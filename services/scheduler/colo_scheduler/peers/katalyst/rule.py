"""Katalyst's rule: its agent stands behind the kubelet's topology manager, so zones are the kubelet's and CPUs its own."""

from collections.abc import Sequence

from colo_common.model.constraints import Constraints
from colo_common.model.cpuset import CpuSet
from colo_common.model.node_rules import NodeRules
from colo_common.model.reasons import Reason
from colo_common.model.resource_list import ResourceList
from colo_scheduler.cpus.available import available_cpus
from colo_scheduler.cpus.binding import NOT_ENOUGH, NoCpus
from colo_scheduler.cpus.exclusive import sum_holders
from colo_scheduler.numa.amounts import ZoneAmounts
from colo_scheduler.numa.policies import TopologyPolicy
from colo_scheduler.numa.refusal import ZoneRefusal
from colo_scheduler.numa.rule import CpuDemand, FitContext, NumaManager, ZoneAssignment
from colo_scheduler.peers.katalyst.assignment import take_by_topology

__all__ = ["KatalystRule"]


class KatalystRule:
    """A `NumaManager` whose zones are those of the `topology_manager`, the kubelet's."""

    aligns_devices = False

    def __init__(self, topology_manager: NumaManager) -> None:
        self._topology_manager = topology_manager

    def takes_whole_cores(self, rules: NodeRules) -> bool:
        """Never by itself."""
        return False

    def conflict(self, place: Constraints, own_cpus: int, rules: NodeRules) -> Reason | None:
        """What the topology manager cannot promise."""
        return self._topology_manager.conflict(place, own_cpus, rules)

    def fit_zones(
        self,
        policy: TopologyPolicy,
        zones: Sequence[ZoneAmounts],
        request: ResourceList,
        fit_context: FitContext,
        rules: NodeRules,
    ) -> ZoneAssignment | ZoneRefusal:
        """The zones of the topology manager."""
        return self._topology_manager.fit_zones(policy, zones, request, fit_context, rules)

    def take_cpus(self, demand: CpuDemand, rules: NodeRules) -> CpuSet | NoCpus | None:
        """In each zone whole sockets, then the caches that fit best, then cores, then single CPUs."""
        topology = demand.topology
        free = CpuSet(available_cpus(topology, sum_holders(demand.held), demand.withheld))
        taken = CpuSet()
        for zone, count in sorted(demand.counts.items()):
            here = topology.cpus_of_zone(zone)
            caches = [mask & here.mask for mask in topology.l3_masks]
            numbered = take_by_topology(topology, free & here, count, caches=[mask for mask in caches if mask])
            if numbered is None:
                return NoCpus(reason=Reason.CPUS_SHORT, detail=NOT_ENOUGH, short_count=count - len(free & here))
            taken |= numbered
        return taken
