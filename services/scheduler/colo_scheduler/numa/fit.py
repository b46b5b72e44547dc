"""The entry for a scheduler: does a request fit the zones of one node under a topology policy, and how is it split over
them."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from colo_common.model.reasons import Reason
from colo_scheduler.numa.amounts import (
    CPU,
    MEMORY,
    NO_AMOUNTS,
    Amounts,
    ZoneAmounts,
    check_zones,
    short_reason,
    wanted,
)
from colo_scheduler.numa.assign import Split, ZonePart, fill, spread_evenly
from colo_scheduler.numa.choice import Demand, by_freedom, choose_zones, cut, demand_of, fewest_zones, sets_in_order
from colo_scheduler.numa.exclusive import Exclusive, ZoneStatus
from colo_scheduler.numa.hints import Scorer, kubelet_hints, least_allocated, scored_hints
from colo_scheduler.numa.mask import mask_of
from colo_scheduler.numa.merge import Hint, ProviderHints
from colo_scheduler.numa.policies import NumaPolicy, Verdict, decide_kubelet, decide_scored
from colo_scheduler.numa.refusal import (
    Miss,
    ZoneRefusal,
    apart_refusal,
    nearest_zone_refusal,
    set_refusal,
    short_misses,
)

__all__ = ["FitRule", "Surroundings", "ZoneAssignment", "fit_zones"]

_BEST_SCORE = 100
_OWN = "zones"


class FitRule(StrEnum):
    """Whose rules: colo's own, or what a node whose zones Koordinator or the kubelet hands out would do."""

    COLO = "colo"
    KOORDINATOR = "koordinator"
    KUBELET = "kubelet"


class Surroundings(NamedTuple):
    """What besides the zones bears on the decision.

    `providers`: hints of devices or others, to be met together with the zones (not under NONE). `exclusive` with `status`:
    zones kept
    for one-zone holders. `node_free`: resources that no zone has. `distances[i][j]`: prefer close zones (KUBELET only).
    `scorer` and `cpu_unit_mcpu`: for KOORDINATOR (see `scored_hints`, `spread_evenly`).
    """

    providers: tuple[ProviderHints, ...] = ()
    exclusive: Exclusive = Exclusive.NONE
    status: Mapping[int, ZoneStatus] = {}
    node_free: Amounts = NO_AMOUNTS
    distances: Sequence[Sequence[int]] | None = None
    scorer: Scorer = least_allocated
    cpu_unit_mcpu: int = 1


class ZoneAssignment(NamedTuple):
    """The request fits: the parts of every resource that has zones, ascending by zone; they sum to the request.

    `is_preferred`: the policy and all providers are content; best-effort may also answer without.
    """

    parts: tuple[ZonePart, ...]
    is_preferred: bool = True

    @property
    def mask(self) -> int:
        """The zones taken."""
        return mask_of(part.zone for part in self.parts)


_PLAIN = Surroundings()


def fit_zones(
    policy: NumaPolicy,
    zones: Sequence[ZoneAmounts],
    request: Amounts,
    around: Surroundings = _PLAIN,
    rule: FitRule = FitRule.COLO,
) -> ZoneAssignment | ZoneRefusal:
    """Decide one node. `request`: amounts by resource (cpu in mcpu, memory and huge pages in bytes, devices counted); zeros
    are ignored.

    Under COLO every policy takes one zone if one is enough, else the fewest of one socket, else the fewest, then the freer,
    and memory always with its CPU; that alone may refuse. NONE asks for no more. BEST_EFFORT follows providers and
    exclusiveness where it can. RESTRICTED takes no more zones than the empty node would need (by capacity; by what is free
    where a zone tells none), SINGLE one zone; both refuse where providers or REQUIRED exclusiveness do not agree. KOORDINATOR
    and KUBELET generate hints resource by resource, merge them and split as those do; they need at most EXHAUSTIVE_ZONES
    zones.

    Raises InvalidInput for negative or non-integer amounts and for zones that are none, repeated or too many.
    """
    wants = wanted(request)
    check_zones(zones)
    zoned, refusal = _zoned(wants, zones, around.node_free)
    if refusal is not None:
        return refusal
    if not zoned:
        return ZoneAssignment(())
    misses = short_misses(zoned, zones)
    if misses:
        return ZoneRefusal(short_reason(misses[0].resource), misses)
    match rule:
        case FitRule.COLO:
            return _fit_own(policy, zones, zoned, around)
        case FitRule.KOORDINATOR:
            return _fit_scored(policy, zones, zoned, around)
        case FitRule.KUBELET:
            return _fit_kubelet(policy, zones, zoned, around)


def _zoned(
    wants: Amounts, zones: Sequence[ZoneAmounts], node_free: Amounts
) -> tuple[dict[str, int], ZoneRefusal | None]:
    """The resources that zones have; the others are measured against the node at once."""
    zoned: dict[str, int] = {}
    for name, amount in wants.items():
        if any(name in zone.free or name in zone.capacity for zone in zones):
            zoned[name] = amount
            continue
        is_known = name in node_free or name in (CPU, MEMORY)
        have = max(0, node_free.get(name, 0))
        if have < amount:
            reason = short_reason(name) if is_known else Reason.DEVICE_UNKNOWN
            return {}, ZoneRefusal(reason, (Miss((), name, amount, have),))
    return zoned, None


def _fit_own(
    policy: NumaPolicy, zones: Sequence[ZoneAmounts], request: Amounts, around: Surroundings
) -> ZoneAssignment | ZoneRefusal:
    demand = demand_of(request)
    widest = _widest(policy, demand, zones)
    asks_nobody = not around.providers and around.exclusive is not Exclusive.REQUIRED
    if policy is NumaPolicy.NONE or asks_nobody:
        chosen = choose_zones(demand, zones, widest)
        if chosen is None:
            return _own_refusal(demand, request, zones, widest)
        return ZoneAssignment(cut(demand, chosen))
    sets = sets_in_order(demand, zones, widest)
    if not sets:
        return _own_refusal(demand, request, zones, widest)
    verdict, by_mask = _decide_own(policy, zones, sets, around)
    if verdict.is_admitted:
        chosen = sets[0] if verdict.mask is None else by_mask.get(verdict.mask, sets[0])
        is_preferred = verdict.preferred and verdict.mask in (None, mask_of(zone.zone for zone in chosen))
        return ZoneAssignment(cut(demand, chosen), is_preferred)
    without = around._replace(exclusive=Exclusive.NONE)
    is_kept = _decide_own(policy, zones, sets, without)[0].is_admitted
    return ZoneRefusal(Reason.NUMA_EXCLUSIVE if is_kept else Reason.NUMA_NOT_ALIGNED, details=verdict.reasons)


def _widest(policy: NumaPolicy, demand: Demand, zones: Sequence[ZoneAmounts]) -> int | None:
    """The most zones the policy lets a request take; None: any number. 0 when the node could not hold it even when empty."""
    match policy:
        case NumaPolicy.SINGLE:
            return 1
        case NumaPolicy.RESTRICTED:
            return fewest_zones(demand, _emptied(zones)) or 0
        case NumaPolicy.NONE | NumaPolicy.BEST_EFFORT:
            return None


def _decide_own(
    policy: NumaPolicy, zones: Sequence[ZoneAmounts], sets: Sequence[tuple[ZoneAmounts, ...]], around: Surroundings
) -> tuple[Verdict, dict[int, tuple[ZoneAmounts, ...]]]:
    """Merge colo's own list with the providers'. Sets as good as the first are preferred; the score falls with the place."""
    by_mask = {mask_of(zone.zone for zone in each): each for each in sets}
    best = _kind(sets[0])
    hints = [
        Hint(mask, policy is NumaPolicy.RESTRICTED or _kind(each) == best, max(0, _BEST_SCORE - place))
        for place, (mask, each) in enumerate(by_mask.items())
    ]
    providers = [{_OWN: hints}, *around.providers]
    ids = [zone.zone for zone in zones]
    return decide_scored(policy, ids, providers, around.exclusive, around.status), by_mask


def _kind(zones: Sequence[ZoneAmounts]) -> tuple[bool, int]:
    return (len({zone.socket for zone in zones}) > 1, len(zones))


def _own_refusal(demand: Demand, request: Amounts, zones: Sequence[ZoneAmounts], widest: int | None) -> ZoneRefusal:
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
    policy: NumaPolicy, zones: Sequence[ZoneAmounts], request: Amounts, around: Surroundings
) -> ZoneAssignment | ZoneRefusal:
    if policy is NumaPolicy.NONE:
        return _filled(fill(request, sorted(zones, key=by_freedom)), zones, is_preferred=True)
    unit = around.cpu_unit_mcpu
    zones = _with_capacity(zones)
    own = scored_hints(zones, request, policy, scorer=around.scorer, cpu_unit_mcpu=unit)
    ids = [zone.zone for zone in zones]
    providers: list[ProviderHints] = [own, *around.providers]
    verdict = decide_scored(policy, ids, providers, around.exclusive, around.status)
    if not verdict.is_admitted:
        if policy is NumaPolicy.SINGLE and all(short_misses(request, (zone,)) for zone in zones):
            return nearest_zone_refusal(request, zones)._replace(details=verdict.reasons)
        is_kept = decide_scored(policy, ids, providers).is_admitted
        return ZoneRefusal(Reason.NUMA_EXCLUSIVE if is_kept else Reason.NUMA_NOT_ALIGNED, details=verdict.reasons)
    chosen = _within(zones, verdict.mask)
    return _filled(spread_evenly(request, chosen, unit), chosen, is_preferred=verdict.preferred)


def _fit_kubelet(
    policy: NumaPolicy, zones: Sequence[ZoneAmounts], request: Amounts, around: Surroundings
) -> ZoneAssignment | ZoneRefusal:
    zones = _with_capacity(zones)
    freest = sorted(zones, key=by_freedom)
    if policy is NumaPolicy.NONE:
        return _filled(fill(request, freest), zones, is_preferred=True)
    own = kubelet_hints(zones, request)
    ids = [zone.zone for zone in zones]
    verdict = decide_kubelet(policy, ids, [own, *around.providers], around.distances)
    if not verdict.is_admitted:
        if policy is NumaPolicy.SINGLE and all(short_misses(request, (zone,)) for zone in zones):
            return nearest_zone_refusal(request, zones)._replace(details=verdict.reasons)
        return ZoneRefusal(Reason.NUMA_NOT_ALIGNED, details=verdict.reasons)
    chosen = _within(freest, verdict.mask)
    if policy is NumaPolicy.BEST_EFFORT:
        # The kubelet only asks for the affinity and takes what is missing from anywhere.
        chosen = [*chosen, *(zone for zone in freest if zone not in chosen)]
    return _filled(fill(request, chosen), chosen, is_preferred=verdict.preferred)


def _within(zones: Sequence[ZoneAmounts], mask: int | None) -> list[ZoneAmounts]:
    return [zone for zone in zones if mask is None or mask >> zone.zone & 1]


def _filled(split: Split, zones: Sequence[ZoneAmounts], *, is_preferred: bool) -> ZoneAssignment | ZoneRefusal:
    """The split when nothing is left over. What is left is for amounts that cannot be divided, such as bound CPUs."""
    if not split.rest:
        return ZoneAssignment(split.parts, is_preferred)
    ids = tuple(sorted(zone.zone for zone in zones))
    placed = {name: sum(part.amounts.get(name, 0) for part in split.parts) for name in split.rest}
    misses = tuple(Miss(ids, name, placed[name] + rest, placed[name]) for name, rest in sorted(split.rest.items()))
    return ZoneRefusal(Reason.ZONE_FIT_SHORT, misses)
