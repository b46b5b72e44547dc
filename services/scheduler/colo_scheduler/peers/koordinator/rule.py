"""Koordinator's rule for zones (nodenumaresource): hints with scores, merged by the policy and split evenly."""

from collections.abc import Sequence

from colo_common.model.constraints import Constraints
from colo_common.model.cpuset import CpuSet
from colo_common.model.node_rules import NodeRules
from colo_common.model.reasons import Reason
from colo_common.model.resource_list import ResourceList
from colo_scheduler.cpus.binding import NoCpus
from colo_scheduler.numa.amounts import ZoneAmounts, fill
from colo_scheduler.numa.mask import EXHAUSTIVE_ZONES
from colo_scheduler.numa.policies import ProviderHints, TopologyPolicy, decide_scored
from colo_scheduler.numa.refusal import ZoneRefusal, nearest_zone_refusal, short_misses
from colo_scheduler.numa.rule import (
    CpuDemand,
    FitContext,
    ZoneAssignment,
    ZoneFit,
    filled,
    fit_zones,
    with_capacity,
    within,
)
from colo_scheduler.numa.zones import by_freedom
from colo_scheduler.peers.koordinator.even_split import spread_evenly
from colo_scheduler.peers.koordinator.hints import Scorer, least_allocated, most_allocated, scored_hints

__all__ = ["KoordinatorRule"]


class KoordinatorRule:
    """A `NumaManager`: zones as Koordinator gives them. CPUs are numbered by colo, whose rules are Koordinator's there."""

    aligns_devices = True

    def takes_whole_cores(self, rules: NodeRules) -> bool:
        """Never by itself: the request or the node says so."""
        return False

    def conflict(self, place: Constraints, own_cpus: int, rules: NodeRules) -> Reason | None:
        """Nothing conflicts: Koordinator knows every constraint."""
        return None

    def fit_zones(
        self,
        policy: TopologyPolicy,
        zones: Sequence[ZoneAmounts],
        request: ResourceList,
        fit_context: FitContext,
        rules: NodeRules,
    ) -> ZoneAssignment | ZoneRefusal:
        """The zones that the scored hints merge into. Under NONE the freest zones are filled.

        Every set of zones would have to be looked at: above EXHAUSTIVE_ZONES zones the answer is ZONES_TOO_MANY.
        """
        is_packed = rules.numa_allocate == "most-allocated"
        return fit_zones(policy, zones, request, fit_context, _fit_by(most_allocated if is_packed else least_allocated))

    def take_cpus(self, demand: CpuDemand, rules: NodeRules) -> CpuSet | NoCpus | None:
        """None: `cpus.choose` numbers them by Koordinator's rules."""
        return None


def _fit_by(scorer: Scorer) -> ZoneFit:
    def fit(
        policy: TopologyPolicy, zones: Sequence[ZoneAmounts], request: ResourceList, fit_context: FitContext
    ) -> ZoneAssignment | ZoneRefusal:
        if policy is TopologyPolicy.NONE:
            return filled(fill(request, sorted(zones, key=by_freedom)), zones, is_preferred=True)
        if len(zones) > EXHAUSTIVE_ZONES:
            return ZoneRefusal(Reason.ZONES_TOO_MANY)
        unit = fit_context.cpu_unit_mcpu
        zones = with_capacity(zones)
        own = scored_hints(zones, request, policy, scorer=scorer, cpu_unit_mcpu=unit)
        ids = [zone.zone for zone in zones]
        providers: list[ProviderHints] = [own, *fit_context.providers]
        verdict = decide_scored(policy, ids, providers, fit_context.exclusive, fit_context.status)
        if not verdict.is_admitted:
            if policy is TopologyPolicy.SINGLE and all(short_misses(request, (zone,)) for zone in zones):
                return nearest_zone_refusal(request, zones)._replace(details=verdict.reasons)
            is_kept = decide_scored(policy, ids, providers).is_admitted
            return ZoneRefusal(Reason.NUMA_EXCLUSIVE if is_kept else Reason.NUMA_NOT_ALIGNED, details=verdict.reasons)
        chosen = within(zones, verdict.mask)
        split = spread_evenly(request, chosen, unit)
        return filled(split, chosen, is_preferred=verdict.preferred, affinity=verdict.mask)

    return fit
