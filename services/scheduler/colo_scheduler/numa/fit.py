"""The entry for a scheduler: does a request fit the zones of one node under a topology policy, and how is it split over
them."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from colo_common.model.reasons import Reason
from colo_scheduler.numa.amounts import (
    CPU,
    MEMORY,
    Amounts,
    ZoneAmounts,
    check_zones,
    short_reason,
    wanted,
)
from colo_scheduler.numa.assign import Split, ZonePart, fill, spread_evenly
from colo_scheduler.numa.choice import ZoneDemand, by_freedom, choose_zones, cut, demand_of, fewest_zones, sets_in_order
from colo_scheduler.numa.exclusive import ZoneExclusive, ZoneStatus
from colo_scheduler.numa.hints import Scorer, kubelet_hints, least_allocated, scored_hints
from colo_scheduler.numa.mask import EXHAUSTIVE_ZONES, mask_of
from colo_scheduler.numa.merge import Hint, ProviderHints
from colo_scheduler.numa.policies import PolicyVerdict, TopologyPolicy, decide_kubelet, decide_scored
from colo_scheduler.numa.refusal import (
    Miss,
    ZoneRefusal,
    apart_refusal,
    nearest_zone_refusal,
    set_refusal,
    short_misses,
)
from colo_scheduler.peers.crane.awareness import AwareNode, AwarePod, AwareZone, PodContainer, filter_aware
from colo_scheduler.peers.kubelet.zone_filter import KubeQos, align

__all__ = ["NumaManager", "FitContext", "ZoneAssignment", "fit_zones"]

_BEST_SCORE = 100
_OWN = "zones"


class NumaManager(StrEnum):
    """Whose rules: colo's own, or what a node would do whose zones the kubelet, Koordinator, Katalyst or Crane's agent hands out.

    Katalyst's agent stands behind the kubelet's topology manager: zones are the same, CPUs are numbered otherwise.
    """

    COLO = "colo"
    KOORDINATOR = "koordinator"
    KUBELET = "kubelet"
    CRANE = "crane"
    KATALYST = "katalyst"


class FitContext(NamedTuple):
    """What besides the zones bears on the decision.

    `providers`: hints of devices or others, to be met together with the zones (not under NONE). `exclusive` with `status`:
    zones kept for one-zone holders. `distances[i][j]`: prefer close zones (KUBELET only). `scorer` and `cpu_unit_mcpu`: for
    KOORDINATOR (see `scored_hints`, `spread_evenly`). `is_guaranteed`: whole CPUs of its own; without them the kubelet takes CPU,
    memory and huge pages from anywhere, and Crane's agent leaves the zones to others.
    """

    providers: tuple[ProviderHints, ...] = ()
    exclusive: ZoneExclusive = ZoneExclusive.NONE
    status: Mapping[int, ZoneStatus] = {}
    distances: Sequence[Sequence[int]] | None = None
    scorer: Scorer = least_allocated
    cpu_unit_mcpu: int = 1
    is_guaranteed: bool = True


class ZoneAssignment(NamedTuple):
    """The request fits: the parts of every resource that has zones, ascending by zone; they sum to the request.

    `is_preferred`: the policy and all providers are content; best-effort may also answer without. `affinity`: the zones that the
    hints of KUBELET and KOORDINATOR merged into, None where there is none; the parts may lie beside it.
    """

    parts: tuple[ZonePart, ...]
    is_preferred: bool = True
    affinity: int | None = None

    @property
    def mask(self) -> int:
        """The zones taken."""
        return mask_of(part.zone for part in self.parts)


_PLAIN = FitContext()


def fit_zones(
    policy: TopologyPolicy,
    zones: Sequence[ZoneAmounts],
    request: Amounts,
    fit_context: FitContext = _PLAIN,
    rule: NumaManager = NumaManager.COLO,
) -> ZoneAssignment | ZoneRefusal:
    """Decide one node. `request`: amounts by resource (cpu in mcpu, memory and huge pages in bytes, devices counted); zeros
    are ignored.

    Under COLO every policy takes one zone if one is enough, else the fewest of one socket, else the fewest, then the freer,
    and memory always with its CPU; that alone may refuse. NONE asks for no more. BEST_EFFORT follows providers and
    exclusiveness where it can. RESTRICTED takes no more zones than the empty node would need (by capacity; by what is free
    where a zone tells none), SINGLE one zone; both refuse where providers or REQUIRED exclusiveness do not agree. KOORDINATOR
    and KUBELET generate hints resource by resource, merge them and split as those do; where they would have to look at every
    set of more than EXHAUSTIVE_ZONES zones the answer is ZONES_TOO_MANY. CRANE knows NONE, which pours the request into the
    freest zones, and SINGLE, the freest zone; every other policy counts as NONE.

    Raises InvalidInput for negative or non-integer amounts and for zones that are none, repeated or too many.
    """
    placement_requests = wanted(request)
    check_zones(zones)
    zoned, refusal = _zoned(placement_requests, zones)
    if refusal is not None:
        return refusal
    if not zoned:
        return ZoneAssignment(())
    misses = short_misses(zoned, zones)
    if misses:
        return ZoneRefusal(short_reason(misses[0].resource), misses)
    match rule:
        case NumaManager.COLO:
            return _fit_own(policy, zones, zoned, fit_context)
        case NumaManager.KOORDINATOR:
            return _fit_scored(policy, zones, zoned, fit_context)
        case NumaManager.KUBELET | NumaManager.KATALYST:
            return _fit_kubelet(policy, zones, zoned, fit_context)
        case NumaManager.CRANE:
            return _fit_crane(policy, zones, zoned, fit_context)


def _zoned(placement_requests: Amounts, zones: Sequence[ZoneAmounts]) -> tuple[dict[str, int], ZoneRefusal | None]:
    """The resources that zones have; of any other there is none."""
    zoned: dict[str, int] = {}
    for name, amount in placement_requests.items():
        if any(name in zone.free or name in zone.capacity for zone in zones):
            zoned[name] = amount
            continue
        reason = short_reason(name) if name in (CPU, MEMORY) else Reason.DEVICE_UNKNOWN
        return {}, ZoneRefusal(reason, (Miss((), name, amount, 0),))
    return zoned, None


def _fit_own(
    policy: TopologyPolicy, zones: Sequence[ZoneAmounts], request: Amounts, fit_context: FitContext
) -> ZoneAssignment | ZoneRefusal:
    demand = demand_of(request)
    widest = _widest(policy, demand, zones)
    asks_nobody = not fit_context.providers and fit_context.exclusive is not ZoneExclusive.REQUIRED
    if policy is TopologyPolicy.NONE or asks_nobody:
        chosen = choose_zones(demand, zones, widest)
        if chosen is None:
            return _own_refusal(demand, request, zones, widest)
        return ZoneAssignment(cut(demand, chosen))
    sets = sets_in_order(demand, zones, widest)
    if not sets:
        return _own_refusal(demand, request, zones, widest)
    verdict, by_mask = _decide_own(policy, zones, sets, fit_context)
    if verdict.is_admitted:
        chosen = sets[0] if verdict.mask is None else by_mask.get(verdict.mask, sets[0])
        is_preferred = verdict.preferred and verdict.mask in (None, mask_of(zone.zone for zone in chosen))
        return ZoneAssignment(cut(demand, chosen), is_preferred)
    without = fit_context._replace(exclusive=ZoneExclusive.NONE)
    is_kept = _decide_own(policy, zones, sets, without)[0].is_admitted
    return ZoneRefusal(Reason.NUMA_EXCLUSIVE if is_kept else Reason.NUMA_NOT_ALIGNED, details=verdict.reasons)


def _widest(policy: TopologyPolicy, demand: ZoneDemand, zones: Sequence[ZoneAmounts]) -> int | None:
    """The most zones the policy lets a request take; None: any number. 0 when the node could not hold it even when empty."""
    match policy:
        case TopologyPolicy.SINGLE:
            return 1
        case TopologyPolicy.RESTRICTED:
            return fewest_zones(demand, _emptied(zones)) or 0
        case TopologyPolicy.NONE | TopologyPolicy.BEST_EFFORT:
            return None


def _decide_own(
    policy: TopologyPolicy,
    zones: Sequence[ZoneAmounts],
    sets: Sequence[tuple[ZoneAmounts, ...]],
    fit_context: FitContext,
) -> tuple[PolicyVerdict, dict[int, tuple[ZoneAmounts, ...]]]:
    """Merge colo's own list with the providers'. Sets as good as the first are preferred; the score falls with the place."""
    by_mask = {mask_of(zone.zone for zone in each): each for each in sets}
    best = _kind(sets[0])
    hints = [
        Hint(mask, policy is TopologyPolicy.RESTRICTED or _kind(each) == best, max(0, _BEST_SCORE - place))
        for place, (mask, each) in enumerate(by_mask.items())
    ]
    providers = [{_OWN: hints}, *fit_context.providers]
    ids = [zone.zone for zone in zones]
    return decide_scored(policy, ids, providers, fit_context.exclusive, fit_context.status), by_mask


def _kind(zones: Sequence[ZoneAmounts]) -> tuple[bool, int]:
    return (len({zone.socket for zone in zones}) > 1, len(zones))


def _own_refusal(demand: ZoneDemand, request: Amounts, zones: Sequence[ZoneAmounts], widest: int | None) -> ZoneRefusal:
    if widest is None:
        return apart_refusal(demand, zones)
    if widest == 1:
        return nearest_zone_refusal(request, zones)
    if widest == 0:
        return set_refusal(demand, request, _emptied(zones), len(zones))
    return set_refusal(demand, request, zones, widest)


def _with_capacity(zones: Sequence[ZoneAmounts]) -> list[ZoneAmounts]:
    """Capacities that name every resource of the zone and are nowhere below what is free."""
    found = []
    for zone in zones:
        names = sorted({*zone.free, *zone.capacity})
        capacity = {name: max(zone.free.get(name, 0), zone.capacity.get(name, 0)) for name in names}
        found.append(zone._replace(capacity=capacity))
    return found


def _emptied(zones: Sequence[ZoneAmounts]) -> list[ZoneAmounts]:
    """The zones as they are when nothing is held."""
    return [zone._replace(free=zone.capacity) for zone in _with_capacity(zones)]


def _fit_scored(
    policy: TopologyPolicy, zones: Sequence[ZoneAmounts], request: Amounts, fit_context: FitContext
) -> ZoneAssignment | ZoneRefusal:
    if policy is TopologyPolicy.NONE:
        return _filled(fill(request, sorted(zones, key=by_freedom)), zones, is_preferred=True)
    if len(zones) > EXHAUSTIVE_ZONES:
        return ZoneRefusal(Reason.ZONES_TOO_MANY)
    unit = fit_context.cpu_unit_mcpu
    zones = _with_capacity(zones)
    own = scored_hints(zones, request, policy, scorer=fit_context.scorer, cpu_unit_mcpu=unit)
    ids = [zone.zone for zone in zones]
    providers: list[ProviderHints] = [own, *fit_context.providers]
    verdict = decide_scored(policy, ids, providers, fit_context.exclusive, fit_context.status)
    if not verdict.is_admitted:
        if policy is TopologyPolicy.SINGLE and all(short_misses(request, (zone,)) for zone in zones):
            return nearest_zone_refusal(request, zones)._replace(details=verdict.reasons)
        is_kept = decide_scored(policy, ids, providers).is_admitted
        return ZoneRefusal(Reason.NUMA_EXCLUSIVE if is_kept else Reason.NUMA_NOT_ALIGNED, details=verdict.reasons)
    chosen = _within(zones, verdict.mask)
    return _filled(spread_evenly(request, chosen, unit), chosen, is_preferred=verdict.preferred, affinity=verdict.mask)


def _fit_kubelet(
    policy: TopologyPolicy, zones: Sequence[ZoneAmounts], request: Amounts, fit_context: FitContext
) -> ZoneAssignment | ZoneRefusal:
    zones = _with_capacity(zones)
    freest = sorted(zones, key=by_freedom)
    if policy is TopologyPolicy.NONE:
        return _filled(fill(request, freest), zones, is_preferred=True)
    if len(zones) > EXHAUSTIVE_ZONES:
        return _foreseen(policy, zones, request, fit_context)
    own = kubelet_hints(zones, request) if fit_context.is_guaranteed else {}
    ids = [zone.zone for zone in zones]
    verdict = decide_kubelet(policy, ids, [own, *fit_context.providers], fit_context.distances)
    if not verdict.is_admitted:
        if policy is TopologyPolicy.SINGLE and all(short_misses(request, (zone,)) for zone in zones):
            return nearest_zone_refusal(request, zones)._replace(details=verdict.reasons)
        return ZoneRefusal(Reason.NUMA_NOT_ALIGNED, details=verdict.reasons)
    chosen = _within(freest, verdict.mask)
    if policy is TopologyPolicy.BEST_EFFORT or not fit_context.is_guaranteed:
        # The kubelet only asks for the affinity and takes what is missing from anywhere.
        chosen = [*chosen, *(zone for zone in freest if zone not in chosen)]
    return _filled(fill(request, chosen), chosen, is_preferred=verdict.preferred, affinity=verdict.mask)


def _foreseen(
    policy: TopologyPolicy, zones: Sequence[ZoneAmounts], request: Amounts, fit_context: FitContext
) -> ZoneAssignment | ZoneRefusal:
    """One zone of many, as the NodeResourceTopology filter foresees the kubelet: the lowest that has everything."""
    if policy is not TopologyPolicy.SINGLE:
        return ZoneRefusal(Reason.ZONES_TOO_MANY)
    if not fit_context.is_guaranteed and not fit_context.providers:
        return _filled(fill(request, sorted(zones, key=by_freedom)), zones, is_preferred=True)
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
    return _filled(fill(request, chosen), chosen, is_preferred=True, affinity=1 << found)


def _fit_crane(
    policy: TopologyPolicy, zones: Sequence[ZoneAmounts], request: Amounts, fit_context: FitContext
) -> ZoneAssignment | ZoneRefusal:
    """What Crane's agent does with whole CPUs; whom it leaves alone gets zones by colo's own rule. Refused is, unlike there,
    also what the zones cannot take as a whole."""
    container = PodContainer(request, request)
    if not (fit_context.is_guaranteed and container.is_target):
        return _fit_own(policy, zones, request, fit_context)
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


def _within(zones: Sequence[ZoneAmounts], mask: int | None) -> list[ZoneAmounts]:
    return [zone for zone in zones if mask is None or mask >> zone.zone & 1]


def _filled(
    split: Split, zones: Sequence[ZoneAmounts], *, is_preferred: bool, affinity: int | None = None
) -> ZoneAssignment | ZoneRefusal:
    """The split when nothing is left over. What is left is for amounts that cannot be divided, such as bound CPUs."""
    if not split.rest:
        return ZoneAssignment(split.parts, is_preferred, affinity)
    ids = tuple(sorted(zone.zone for zone in zones))
    placed = {name: sum(part.amounts.get(name, 0) for part in split.parts) for name in split.rest}
    misses = tuple(Miss(ids, name, placed[name] + rest, placed[name]) for name, rest in sorted(split.rest.items()))
    return ZoneRefusal(Reason.ZONE_FIT_SHORT, misses)
