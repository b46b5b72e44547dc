"""The rule of Crane's agent: work with whole CPUs gets the freest zones, or the one freest zone."""

from collections.abc import Callable, Sequence

from colo_common.model.constraints import Constraints, NumaExclusive, NumaPolicy
from colo_common.model.cpuset import CpuSet
from colo_common.model.node_rules import NodeRules
from colo_common.model.reasons import Reason
from colo_common.model.resource_list import CPU, ResourceList
from colo_scheduler.cpus.binding import NoCpus
from colo_scheduler.numa.amounts import ZoneAmounts, ZonePart
from colo_scheduler.numa.policies import TopologyPolicy
from colo_scheduler.numa.refusal import Miss, ZoneRefusal, nearest_zone_refusal
from colo_scheduler.numa.rule import CpuDemand, FitContext, ZoneAssignment, fit_own, fit_zones
from colo_scheduler.peers.crane.awareness import AwareNode, AwarePod, AwareZone, PodContainer, filter_aware

__all__ = ["CraneRule"]


class CraneRule:
    """A `NumaManager`. It knows NONE and SINGLE; every other policy counts as NONE. `take_by_zone` numbers CPUs in each zone as
    the kubelet's static policy without options does, which the agent has taken over.
    """

    aligns_devices = False

    def __init__(self, take_by_zone: Callable[[CpuDemand], CpuSet | NoCpus]) -> None:
        self._take_by_zone = take_by_zone

    def takes_whole_cores(self, rules: NodeRules) -> bool:
        """Never by itself."""
        return False

    def conflict(self, place: Constraints, own_cpus: int, rules: NodeRules) -> Reason | None:
        """What the agent does not know: it lets each request choose between one zone and any, and binds CPUs as it likes."""
        if place.numa_policy not in (NumaPolicy.NONE, NumaPolicy.SINGLE_NUMA_NODE):
            return Reason.NUMA_POLICY_CONFLICT
        if place.numa_exclusive is NumaExclusive.REQUIRED:
            return Reason.NUMA_POLICY_CONFLICT
        return Reason.CPU_BIND_CONFLICT if place.cpu_bind_required else None

    def fit_zones(
        self,
        policy: TopologyPolicy,
        zones: Sequence[ZoneAmounts],
        request: ResourceList,
        fit_context: FitContext,
        rules: NodeRules,
    ) -> ZoneAssignment | ZoneRefusal:
        """NONE pours the request into the freest zones, SINGLE takes the freest zone.

        Refused is, unlike there, also what the zones cannot take as a whole. Work without whole CPUs, which the agent leaves
        alone, gets zones by colo's own rule.
        """
        return fit_zones(policy, zones, request, fit_context, _fit)

    def take_cpus(self, demand: CpuDemand, rules: NodeRules) -> CpuSet | NoCpus | None:
        """The CPUs of each zone, packed as the kubelet packs them."""
        return self._take_by_zone(demand)


def _fit(
    policy: TopologyPolicy, zones: Sequence[ZoneAmounts], request: ResourceList, fit_context: FitContext
) -> ZoneAssignment | ZoneRefusal:
    container = PodContainer(request, request)
    if not (fit_context.is_guaranteed and container.is_target):
        return fit_own(policy, zones, request, fit_context)
    pod = AwarePod((container,), is_aware=policy is TopologyPolicy.SINGLE)
    named = {f"node{zone.zone}": zone for zone in sorted(zones, key=lambda zone: zone.zone)}
    node = AwareNode(
        is_static=True,
        is_one_zone=False,
        zones=tuple(
            AwareZone(name, {each: max(0, free) for each, free in zone.free.items()}) for name, zone in named.items()
        ),
    )
    verdict = filter_aware(pod, node, {*request, CPU})
    if verdict.reason:
        return nearest_zone_refusal(request, zones)
    if verdict.unassigned:
        ids = tuple(sorted(zone.zone for zone in zones))
        left = sorted(verdict.unassigned.items())
        misses = tuple(Miss(ids, each, request[each], request[each] - amount) for each, amount in left)
        return ZoneRefusal(Reason.ZONE_FIT_SHORT, misses)
    parts = [ZonePart(named[name].zone, dict(amounts)) for name, amounts in verdict.result or ()]
    return ZoneAssignment(tuple(sorted(parts, key=lambda part: part.zone)))
