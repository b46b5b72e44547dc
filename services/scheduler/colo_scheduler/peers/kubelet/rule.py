"""The kubelet's rule for zones and CPUs: its topology manager, and the static policy of its CPU manager."""

from collections.abc import Sequence
from typing import Final

from colo_common.model.constraints import Constraints, CpuBind, CpuPolicy, NumaExclusive, NumaPolicy
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvariantBroken
from colo_common.model.node_rules import NodeRules
from colo_common.model.reasons import Reason
from colo_common.model.resource_list import ResourceList
from colo_scheduler.cpus.binding import NoCpus
from colo_scheduler.numa.amounts import ZoneAmounts, fill
from colo_scheduler.numa.least_zones import KubeQos
from colo_scheduler.numa.mask import EXHAUSTIVE_ZONES
from colo_scheduler.numa.policies import TopologyPolicy
from colo_scheduler.numa.refusal import ZoneRefusal, nearest_zone_refusal, short_misses
from colo_scheduler.numa.rule import CpuDemand, FitContext, ZoneAssignment, filled, fit_zones, with_capacity, within
from colo_scheduler.numa.zones import by_freedom
from colo_scheduler.peers.kubelet.hints import kubelet_hints
from colo_scheduler.peers.kubelet.options import KubeletOptions, kubelet_options
from colo_scheduler.peers.kubelet.policies import decide_kubelet
from colo_scheduler.peers.kubelet.static_policy import choose_static
from colo_scheduler.peers.kubelet.zone_filter import align

__all__ = ["KubeletRule", "take_by_zone"]

_STRICT: Final = (NumaPolicy.RESTRICTED, NumaPolicy.SINGLE_NUMA_NODE)


class KubeletRule:
    """A `NumaManager`: zones of the topology manager, CPUs of the static policy with the node's options."""

    aligns_devices = False

    def takes_whole_cores(self, rules: NodeRules) -> bool:
        """With full-pcpus-only."""
        return kubelet_options(rules).is_full_pcpus_only

    def conflict(self, place: Constraints, own_cpus: int, rules: NodeRules) -> Reason | None:
        """What the kubelet does not know, or never does.

        It has one policy for all: a request may ask for that one or for none. It aligns no work that shares CPUs, so work without
        CPUs of its own cannot ask for more than a wish. It gives CPUs alone or not at all, and whole cores where the node's options
        say so.
        """
        if place.numa_policy not in (NumaPolicy.NONE, rules.numa_policy):
            return Reason.NUMA_POLICY_CONFLICT
        if place.numa_exclusive is NumaExclusive.REQUIRED or place.cpu_policy is CpuPolicy.NUMA:
            return Reason.NUMA_POLICY_CONFLICT
        if place.numa_policy in _STRICT and not own_cpus:
            return Reason.NUMA_POLICY_CONFLICT
        is_whole = place.cpu_bind is CpuBind.FULL_PCPUS and self.takes_whole_cores(rules)
        if place.cpu_bind_required and not is_whole:
            return Reason.CPU_BIND_CONFLICT
        return Reason.CPU_BIND_CONFLICT if place.cpu_policy is CpuPolicy.IMMOVABLE else None

    def fit_zones(
        self,
        policy: TopologyPolicy,
        zones: Sequence[ZoneAmounts],
        request: ResourceList,
        fit_context: FitContext,
        rules: NodeRules,
    ) -> ZoneAssignment | ZoneRefusal:
        """The zones that the hints merge into, filled the freest first. Under NONE the freest zones are filled.

        A request without whole CPUs of its own gets CPU, memory and huge pages from anywhere. Above EXHAUSTIVE_ZONES zones SINGLE
        is foreseen as the NodeResourceTopology filter does it, and every other policy is refused with ZONES_TOO_MANY.
        """
        return fit_zones(policy, zones, request, fit_context, _fit)

    def take_cpus(self, demand: CpuDemand, rules: NodeRules) -> CpuSet | NoCpus | None:
        """The CPUs of the zones of the affinity numbered as one, where no zone gives more than it can; else zone by zone."""
        options = kubelet_options(rules)
        topology = demand.topology
        count = sum(demand.counts.values())
        found = choose_static(topology, count, options, demand.held, demand.withheld, demand.affinity)
        if isinstance(found, NoCpus):
            return found
        here = zip(topology.zone_ids, topology.zone_masks, strict=True)
        if all((mask & found.mask).bit_count() <= demand.most.get(zone, 0) for zone, mask in here):
            return found
        return take_by_zone(demand, options)


def take_by_zone(demand: CpuDemand, options: KubeletOptions) -> CpuSet | NoCpus:
    """The CPUs that the static policy numbers when each zone gives as many as were foreseen."""
    topology = demand.topology
    taken = CpuSet()
    for zone, count in sorted(demand.counts.items()):
        outside = CpuSet(topology.all_mask) - topology.cpus_of_zone(zone)
        part = choose_static(topology, count, options, demand.held, demand.withheld | outside, (zone,))
        if isinstance(part, NoCpus):
            return part
        taken |= part
    if len(taken) != sum(demand.counts.values()):
        raise InvariantBroken("CPUs of zones are not as many as were foreseen", counts=str(dict(demand.counts)))
    return taken


def _fit(
    policy: TopologyPolicy, zones: Sequence[ZoneAmounts], request: ResourceList, fit_context: FitContext
) -> ZoneAssignment | ZoneRefusal:
    zones = with_capacity(zones)
    freest = sorted(zones, key=by_freedom)
    if policy is TopologyPolicy.NONE:
        return filled(fill(request, freest), zones, is_preferred=True)
    if len(zones) > EXHAUSTIVE_ZONES:
        return _foreseen(policy, zones, request, fit_context)
    own = kubelet_hints(zones, request) if fit_context.is_guaranteed else {}
    ids = [zone.zone for zone in zones]
    verdict = decide_kubelet(policy, ids, [own, *fit_context.providers], fit_context.distances)
    if not verdict.is_admitted:
        if policy is TopologyPolicy.SINGLE and all(short_misses(request, (zone,)) for zone in zones):
            return nearest_zone_refusal(request, zones)._replace(details=verdict.reasons)
        return ZoneRefusal(Reason.NUMA_NOT_ALIGNED, details=verdict.reasons)
    chosen = within(freest, verdict.mask)
    if policy is TopologyPolicy.BEST_EFFORT or not fit_context.is_guaranteed:
        # The kubelet only asks for the affinity and takes what is missing from anywhere.
        chosen = [*chosen, *(zone for zone in freest if zone not in chosen)]
    return filled(fill(request, chosen), chosen, is_preferred=verdict.preferred, affinity=verdict.mask)


def _foreseen(
    policy: TopologyPolicy, zones: Sequence[ZoneAmounts], request: ResourceList, fit_context: FitContext
) -> ZoneAssignment | ZoneRefusal:
    """One zone of many, as the NodeResourceTopology filter foresees the kubelet: the lowest that has everything."""
    if policy is not TopologyPolicy.SINGLE:
        return ZoneRefusal(Reason.ZONES_TOO_MANY)
    if not fit_context.is_guaranteed and not fit_context.providers:
        return filled(fill(request, sorted(zones, key=by_freedom)), zones, is_preferred=True)
    lists = [listed for hints in fit_context.providers for listed in hints.values() if listed is not None]
    free = {
        zone.zone: zone.free
        for zone in zones
        if all(any(hint.preferred and hint.mask in (None, 1 << zone.zone) for hint in hints) for hints in lists)
    }
    qos = KubeQos.GUARANTEED if fit_context.is_guaranteed else KubeQos.BURSTABLE
    found = align(qos, request, free, request)
    if found is None:
        return nearest_zone_refusal(request, zones) if not lists else ZoneRefusal(Reason.NUMA_NOT_ALIGNED)
    chosen = [zone for zone in zones if zone.zone == found]
    if not fit_context.is_guaranteed:
        chosen += sorted((zone for zone in zones if zone.zone != found), key=by_freedom)
    return filled(fill(request, chosen), chosen, is_preferred=True, affinity=1 << found)
