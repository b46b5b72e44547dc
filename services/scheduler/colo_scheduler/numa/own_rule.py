"""colo's own rule for zones and CPUs: the default of every node, and that of batch work on all of them."""

from collections.abc import Sequence

from colo_common.model.constraints import Constraints
from colo_common.model.cpuset import CpuSet
from colo_common.model.node_rules import NodeRules
from colo_common.model.reasons import Reason
from colo_common.model.resource_list import CPU, MEMORY, ResourceList
from colo_scheduler.cpus.binding import NoCpus
from colo_scheduler.numa.amounts import ZoneAmounts
from colo_scheduler.numa.least_zones import MAX_ZONES_LISTED, DistantZone, KubeQos, least_zones
from colo_scheduler.numa.policies import ProviderHints, TopologyPolicy
from colo_scheduler.numa.refusal import ZoneRefusal
from colo_scheduler.numa.rule import CpuDemand, FitContext, ZoneAssignment, fit_zones
from colo_scheduler.numa.zone_scores import balanced_score
from colo_scheduler.numa.zones import by_freedom

__all__ = ["OwnRule"]


class OwnRule:
    """colo's own `NumaManager`. It can promise every constraint, and CPUs are numbered by `cpus.choose`."""

    aligns_devices = True

    def takes_whole_cores(self, rules: NodeRules) -> bool:
        """Never by itself: the request says so."""
        return False

    def conflict(self, place: Constraints, own_cpus: int, rules: NodeRules) -> Reason | None:
        """Nothing conflicts."""
        return None

    def fit_zones(
        self,
        policy: TopologyPolicy,
        zones: Sequence[ZoneAmounts],
        request: ResourceList,
        fit_context: FitContext,
        rules: NodeRules,
    ) -> ZoneAssignment | ZoneRefusal:
        """The zones by `fit_own`. Of single zones that are enough the one that `rules.numa_allocate` names comes first."""
        # One zone is the best answer of every policy; which one comes first is the operator's word.
        for zone in _in_order(rules, zones, request):
            inside = tuple(_hints_within(hints, 1 << zone.zone) for hints in fit_context.providers)
            if not all(hints["devices"] for hints in inside):
                continue
            found = fit_zones(policy, (zone,), request, fit_context._replace(providers=inside))
            if isinstance(found, ZoneAssignment):
                return found
        found = fit_zones(policy, zones, request, fit_context)
        if rules.numa_closest and isinstance(found, ZoneAssignment) and len(found.parts) > 1:
            return _closest(policy, zones, request, fit_context, found)
        return found

    def take_cpus(self, demand: CpuDemand, rules: NodeRules) -> CpuSet | NoCpus | None:
        """None: `cpus.choose` numbers them."""
        return None


def _in_order(rules: NodeRules, zones: Sequence[ZoneAmounts], request: ResourceList) -> list[ZoneAmounts]:
    """The zones to try alone before the others, in order; none where the freest comes first anyway."""
    match rules.numa_allocate:
        case "most-allocated":
            return sorted(zones, key=lambda zone: (zone.free[CPU], zone.free[MEMORY], zone.zone))
        case "balanced":
            asked = {name: request[name] for name in (CPU, MEMORY) if request.get(name)}
            scores = {zone.zone: balanced_score(asked, zone.free) for zone in zones}
            return sorted(zones, key=lambda zone: (-scores[zone.zone], by_freedom(zone)))
        case "least-allocated":
            return []


def _hints_within(hints: ProviderHints, mask: int) -> ProviderHints:
    return {name: [hint for hint in listed or () if hint.mask == mask] for name, listed in hints.items()}


def _closest(
    policy: TopologyPolicy,
    zones: Sequence[ZoneAmounts],
    request: ResourceList,
    fit_context: FitContext,
    found: ZoneAssignment,
) -> ZoneAssignment:
    """As many zones that are closer together, if the closest such set holds the request; else what was found."""
    distances = fit_context.distances
    if distances is None or fit_context.providers or len(zones) > MAX_ZONES_LISTED:
        return found
    distant = [DistantZone(zone.zone, zone.free, dict(enumerate(distances[zone.zone]))) for zone in zones]
    asked = {name: amount for name, amount in request.items() if amount}
    least = least_zones(KubeQos.GUARANTEED, asked, distant)
    if least is None or len(least.zones) != len(found.parts):
        return found
    closest = fit_zones(policy, [zone for zone in zones if zone.zone in least.zones], request, fit_context)
    is_as_good = isinstance(closest, ZoneAssignment) and len(closest.parts) == len(found.parts)
    return closest if is_as_good and isinstance(closest, ZoneAssignment) else found
