"""Zones and CPUs of one node by the rule of whoever hands them out there: colo itself, the kubelet, Koordinator,
Katalyst's agent or Crane's.

Online work only: batch work is nobody's but colo's. Where another hands out, a node takes what that would take, so that it is not
refused there after it was placed. CPUs by number are then what that would take on the node as colo knows it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from colo_common.model.constraints import CpuBind, CpuPolicy, NumaExclusive, NumaPolicy
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvariantBroken
from colo_common.model.node_rules import NodeRules
from colo_common.model.placement import ZoneShare
from colo_common.model.reasons import Reason
from colo_common.model.topology import NodeTopology
from colo_scheduler.cpus.assignment import take_by_topology
from colo_scheduler.cpus.available import available_cpus
from colo_scheduler.cpus.binding import NOT_ENOUGH, NoCpus
from colo_scheduler.cpus.choose import CpuRequest, KubeletOptions, choose_cpus
from colo_scheduler.cpus.exclusive import HeldCpus, sum_holders
from colo_scheduler.cpus.topology import CpuTopology
from colo_scheduler.numa.amounts import CPU, MEMORY, Amounts, ZoneAmounts
from colo_scheduler.numa.choice import by_freedom
from colo_scheduler.numa.fit import FitContext, NumaManager, ZoneAssignment, fit_zones
from colo_scheduler.numa.hints import most_allocated
from colo_scheduler.numa.least_zones import DISTANCE_UNKNOWN, MAX_ZONES_LISTED, DistantZone, least_zones
from colo_scheduler.numa.merge import ProviderHints
from colo_scheduler.numa.policies import TopologyPolicy as Policy
from colo_scheduler.numa.refusal import ZoneRefusal
from colo_scheduler.numa.zone_scores import balanced_score
from colo_scheduler.peers.kubelet.zone_filter import KubeQos
from colo_scheduler.requests.request_class import RequestClass

__all__ = ["conflict_of", "fit_by_manager", "kubelet_options", "rule_of", "take_by_rule", "with_distances"]

_CPU_MCPU: Final = 1_000
_ONE_POLICY: Final = (NumaManager.KUBELET, NumaManager.KATALYST)
"""Those whose policy is the same for all."""
_STRICT: Final = (NumaPolicy.RESTRICTED, NumaPolicy.SINGLE_NUMA_NODE)
_OWN_ORDER: Final = (*_ONE_POLICY, NumaManager.CRANE)
"""Those that number CPUs themselves."""


def rule_of(request: RequestClass, rules: NodeRules) -> NumaManager:
    """Whose rule counts for the request on a node of these rules."""
    return NumaManager(rules.numa_rule) if request.is_prod else NumaManager.COLO


def kubelet_options(rules: NodeRules) -> KubeletOptions:
    """What the kubelet's static policy is told there."""
    told = rules.kubelet_options
    return KubeletOptions(
        is_full_pcpus_only="full-pcpus-only" in told,
        is_across_numa="distribute-cpus-across-numa" in told,
        is_across_cores="distribute-cpus-across-cores" in told,
        is_by_socket="align-by-socket" in told,
        is_by_l3="prefer-align-cpus-by-uncorecache" in told,
    )


def conflict_of(request: RequestClass, rules: NodeRules) -> Reason | None:
    """What the request demands that nobody can promise there, None when there is nothing.

    The kubelet has one policy for all: a request may ask for that one or for none. It aligns nobody who shares CPUs, so such work
    cannot ask for it where it is more than a wish. It gives CPUs alone or not at all, and whole cores as an option of the node.
    Crane's agent lets each request choose between one zone and any.
    """
    rule, place = rule_of(request, rules), request.place
    if rule not in _OWN_ORDER:
        return None
    known = (NumaPolicy.NONE, NumaPolicy.SINGLE_NUMA_NODE if rule is NumaManager.CRANE else rules.numa_policy)
    if place.numa_policy not in known or place.numa_exclusive is NumaExclusive.REQUIRED:
        return Reason.NUMA_POLICY_CONFLICT
    if rule in _ONE_POLICY and (
        place.cpu_policy is CpuPolicy.NUMA or (place.numa_policy in _STRICT and not request.own_cpus)
    ):
        return Reason.NUMA_POLICY_CONFLICT
    is_whole = place.cpu_bind is CpuBind.FULL_PCPUS and kubelet_options(rules).is_full_pcpus_only
    if place.cpu_bind_required and not is_whole:
        return Reason.CPU_BIND_CONFLICT
    if rule in _ONE_POLICY and place.cpu_policy is CpuPolicy.IMMOVABLE:
        return Reason.CPU_BIND_CONFLICT
    return None


def with_distances(fit_context: FitContext, rules: NodeRules, topology: NodeTopology) -> FitContext:
    """The same with the distances between zones by id, where the node's rules look at them and every zone tells its own."""
    zones = topology.zones
    if not rules.numa_closest or not all(zone.distances for zone in zones):
        return fit_context
    size = max(zone.zone for zone in zones) + 1
    matrix = [[DISTANCE_UNKNOWN] * size for _ in range(size)]
    for zone in zones:
        for other, distance in zip(zones, zone.distances, strict=True):
            matrix[zone.zone][other.zone] = distance
    return fit_context._replace(distances=matrix)


def fit_by_manager(
    rule: NumaManager,
    rules: NodeRules,
    policy: Policy,
    zones: Sequence[ZoneAmounts],
    wanted: Amounts,
    fit_context: FitContext,
) -> ZoneAssignment | ZoneRefusal:
    """The zones, as `fit_zones`; under colo's own rule in the order that the node's rules name."""
    if rule is NumaManager.KOORDINATOR and rules.numa_allocate == "most-allocated":
        fit_context = fit_context._replace(scorer=most_allocated)
    if rule is not NumaManager.COLO:
        return fit_zones(policy, zones, wanted, fit_context, rule)
    # One zone is the best answer of every policy; which one comes first is the operator's word.
    for zone in _in_order(rules, zones, wanted):
        inside = tuple(_within(hints, 1 << zone.zone) for hints in fit_context.providers)
        if not all(hints["devices"] for hints in inside):
            continue
        found = fit_zones(policy, (zone,), wanted, fit_context._replace(providers=inside), rule)
        if isinstance(found, ZoneAssignment):
            return found
    found = fit_zones(policy, zones, wanted, fit_context, rule)
    if rules.numa_closest and isinstance(found, ZoneAssignment) and len(found.parts) > 1:
        return _closest(policy, zones, wanted, fit_context, found)
    return found


def _in_order(rules: NodeRules, zones: Sequence[ZoneAmounts], wanted: Amounts) -> list[ZoneAmounts]:
    """The zones to try alone before the others, in order; none where the freest comes first anyway."""
    match rules.numa_allocate:
        case "most-allocated":
            return sorted(zones, key=lambda zone: (zone.free[CPU], zone.free[MEMORY], zone.zone))
        case "balanced":
            asked = {name: wanted[name] for name in (CPU, MEMORY) if wanted.get(name)}
            scores = {zone.zone: balanced_score(asked, zone.free) for zone in zones}
            return sorted(zones, key=lambda zone: (-scores[zone.zone], by_freedom(zone)))
        case "least-allocated":
            return []


def _within(hints: ProviderHints, mask: int) -> ProviderHints:
    return {name: [hint for hint in listed or () if hint.mask == mask] for name, listed in hints.items()}


def _closest(
    policy: Policy, zones: Sequence[ZoneAmounts], wanted: Amounts, fit_context: FitContext, found: ZoneAssignment
) -> ZoneAssignment:
    """As many zones that are closer together, if the closest such set holds the request; else what was found."""
    distances = fit_context.distances
    if distances is None or fit_context.providers or len(zones) > MAX_ZONES_LISTED:
        return found
    distant = [DistantZone(zone.zone, zone.free, dict(enumerate(distances[zone.zone]))) for zone in zones]
    asked = {name: amount for name, amount in wanted.items() if amount}
    least = least_zones(KubeQos.GUARANTEED, asked, distant)
    if least is None or len(least.zones) != len(found.parts):
        return found
    closest = fit_zones(policy, [zone for zone in zones if zone.zone in least.zones], wanted, fit_context)
    is_as_good = isinstance(closest, ZoneAssignment) and len(closest.parts) == len(found.parts)
    return closest if is_as_good and isinstance(closest, ZoneAssignment) else found


def take_by_rule(
    rule: NumaManager,
    rules: NodeRules,
    topology: CpuTopology,
    held: Sequence[HeldCpus],
    withheld: CpuSet,
    counts: Mapping[int, int],
    rooms: Mapping[int, int],
    affinity: Sequence[int],
) -> CpuSet | NoCpus | None:
    """The CPUs that the kubelet, Katalyst's or Crane's agent would number; None under rules that leave that to colo.

    `counts`: how many of each zone were foreseen; the kubelet numbers the zones of the `affinity` (none: all) as one, and that
    counts where no zone gives more than it has room for. Otherwise each zone gives what was foreseen.
    """
    if rule not in _OWN_ORDER:
        return None
    if rule is NumaManager.KATALYST:
        return _take_as_katalyst(topology, held, withheld, counts)
    options = kubelet_options(rules)
    if rule is NumaManager.KUBELET:
        whole = CpuRequest(count=sum(counts.values()), kubelet=options)
        aligned = [ZoneShare(zone=zone, cpu_mcpu=0, memory_bytes=0) for zone in affinity]
        found = choose_cpus(topology, whole, held, withheld, aligned)
        if isinstance(found, NoCpus):
            return found
        if all(len(cpus) <= rooms.get(zone, 0) for zone, cpus in found.by_zone(topology)):
            return found.cpus
    taken = CpuSet()
    for zone, count in sorted(counts.items()):
        share = ZoneShare(zone=zone, cpu_mcpu=count * _CPU_MCPU, memory_bytes=0)
        outside = CpuSet(topology.all_mask) - topology.cpus_of_zone(zone)
        part = choose_cpus(topology, CpuRequest(count=count, kubelet=options), held, withheld | outside, [share])
        if isinstance(part, NoCpus):
            return part
        taken |= part.cpus
    if len(taken) != sum(counts.values()):
        raise InvariantBroken("CPUs of zones are not as many as were foreseen", counts=str(dict(counts)))
    return taken


def _take_as_katalyst(
    topology: CpuTopology, held: Sequence[HeldCpus], withheld: CpuSet, counts: Mapping[int, int]
) -> CpuSet | NoCpus:
    """In each zone whole sockets, then the cache that fits best, then cores, then single CPUs."""
    free = CpuSet(available_cpus(topology, sum_holders(held), withheld))
    taken = CpuSet()
    for zone, count in sorted(counts.items()):
        here = topology.cpus_of_zone(zone)
        caches = [mask & here.mask for mask in topology.l3_masks]
        numbered = take_by_topology(topology, free & here, count, caches=[mask for mask in caches if mask])
        if numbered is None:
            return NoCpus(reason=Reason.CPUS_SHORT, detail=NOT_ENOUGH, short_count=count - len(free & here))
        taken |= numbered
    return taken
