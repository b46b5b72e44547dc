"""The interface of the rules by which zones and CPUs of a node are handed out to online work (`NodeRules.numa_rule`).

`fit_zones` and its parts say whether a request fits the zones of one node under a topology policy, and how it is split over them;
rules share them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from colo_common.model.constraints import Constraints
from colo_common.model.cpu_topology import CpuTopology
from colo_common.model.cpuset import CpuSet
from colo_common.model.node_rules import NodeRules
from colo_common.model.reasons import Reason
from colo_common.model.resource_list import CPU, MEMORY, ResourceList
from colo_scheduler.cpus.binding import NoCpus
from colo_scheduler.cpus.exclusive import HeldCpus
from colo_scheduler.numa.amounts import Split, ZoneAmounts, ZonePart, check_zones, short_reason, wanted
from colo_scheduler.numa.choice import ZoneDemand, choose_zones, cut, demand_of, fewest_zones, sets_in_order
from colo_scheduler.numa.exclusive import ZoneExclusive, ZoneStatus
from colo_scheduler.numa.mask import mask_of
from colo_scheduler.numa.policies import Hint, PolicyVerdict, ProviderHints, TopologyPolicy, decide_scored
from colo_scheduler.numa.refusal import (
    Miss,
    ZoneRefusal,
    apart_refusal,
    nearest_zone_refusal,
    set_refusal,
    short_misses,
)

__all__ = [
    "CpuDemand",
    "FitContext",
    "NumaManager",
    "ZoneAssignment",
    "ZoneFit",
    "filled",
    "fit_own",
    "fit_zones",
    "with_capacity",
    "within",
]

_BEST_SCORE = 100
_OWN = "zones"


class FitContext(NamedTuple):
    """The conditions of the decision beside the zones.

    `providers`: hints of devices or others, to be met together with the zones (not under NONE). `exclusive` with `status`:
    zones kept for one-zone holders. `distances[i][j]`: prefer close zones; None: distances do not count. `cpu_unit_mcpu`: a split
    takes CPU in multiples of that, 1 for any amount. `is_guaranteed`: the request has whole CPUs of its own. colo looks at neither
    of the last two here; some other systems do.
    """

    providers: tuple[ProviderHints, ...] = ()
    exclusive: ZoneExclusive = ZoneExclusive.NONE
    status: Mapping[int, ZoneStatus] = {}
    distances: Sequence[Sequence[int]] | None = None
    cpu_unit_mcpu: int = 1
    is_guaranteed: bool = True


class ZoneAssignment(NamedTuple):
    """The request fits: the parts of every resource that has zones, ascending by zone; they sum to the request.

    `is_preferred`: the policy and all providers are content; best-effort may also answer without. `affinity`: the zones that
    hints merged into, None under a rule without such hints; the parts may lie beside it.
    """

    parts: tuple[ZonePart, ...]
    is_preferred: bool = True
    affinity: int | None = None

    @property
    def mask(self) -> int:
        """The zones taken."""
        return mask_of(part.zone for part in self.parts)


_PLAIN = FitContext()


ZoneFit = Callable[[TopologyPolicy, Sequence[ZoneAmounts], ResourceList, FitContext], ZoneAssignment | ZoneRefusal]
"""Fits a request, without zero amounts, of which the zones have every resource in sum."""


def fit_zones(
    policy: TopologyPolicy,
    zones: Sequence[ZoneAmounts],
    request: ResourceList,
    fit_context: FitContext = _PLAIN,
    fit: "ZoneFit | None" = None,
) -> ZoneAssignment | ZoneRefusal:
    """Decide one node. `request`: amounts by resource (cpu in mcpu, memory and huge pages in bytes, devices counted); zeros
    are ignored. `fit` decides where nothing is short in sum, `fit_own` unless another rule is given.

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
    return (fit or fit_own)(policy, zones, zoned, fit_context)


def _zoned(placement_requests: ResourceList, zones: Sequence[ZoneAmounts]) -> tuple[dict[str, int], ZoneRefusal | None]:
    """The resources that zones have; of any other there is none."""
    zoned: dict[str, int] = {}
    for name, amount in placement_requests.items():
        if any(name in zone.free or name in zone.capacity for zone in zones):
            zoned[name] = amount
            continue
        reason = short_reason(name) if name in (CPU, MEMORY) else Reason.DEVICE_UNKNOWN
        return {}, ZoneRefusal(reason, (Miss((), name, amount, 0),))
    return zoned, None


def fit_own(
    policy: TopologyPolicy, zones: Sequence[ZoneAmounts], request: ResourceList, fit_context: FitContext
) -> ZoneAssignment | ZoneRefusal:
    """colo's own rule, a `ZoneFit`.

    Every policy takes one zone if one is enough, else the fewest of one socket, else the fewest, then the freer, and memory always
    with its CPU; that alone may refuse. NONE asks for no more. BEST_EFFORT follows providers and exclusiveness where it can.
    RESTRICTED takes no more zones than the empty node would need (by capacity; by what is free where a zone tells none), SINGLE
    one zone; both refuse where providers or REQUIRED exclusiveness do not agree.
    """
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


def _own_refusal(
    demand: ZoneDemand, request: ResourceList, zones: Sequence[ZoneAmounts], widest: int | None
) -> ZoneRefusal:
    if widest is None:
        return apart_refusal(demand, zones)
    if widest == 1:
        return nearest_zone_refusal(request, zones)
    if widest == 0:
        return set_refusal(demand, request, _emptied(zones), len(zones))
    return set_refusal(demand, request, zones, widest)


def with_capacity(zones: Sequence[ZoneAmounts]) -> list[ZoneAmounts]:
    """Capacities that name every resource of the zone and are nowhere below what is free."""
    found = []
    for zone in zones:
        names = sorted({*zone.free, *zone.capacity})
        capacity = {name: max(zone.free.get(name, 0), zone.capacity.get(name, 0)) for name in names}
        found.append(zone._replace(capacity=capacity))
    return found


def _emptied(zones: Sequence[ZoneAmounts]) -> list[ZoneAmounts]:
    """The zones as they are when nothing is held."""
    return [zone._replace(free=zone.capacity) for zone in with_capacity(zones)]


def within(zones: Sequence[ZoneAmounts], mask: int | None) -> list[ZoneAmounts]:
    """The zones of a mask in their given order; all of them for None."""
    return [zone for zone in zones if mask is None or mask >> zone.zone & 1]


def filled(
    split: Split, zones: Sequence[ZoneAmounts], *, is_preferred: bool, affinity: int | None = None
) -> ZoneAssignment | ZoneRefusal:
    """The split when nothing is left over. A rest comes of amounts that cannot be divided, such as bound CPUs."""
    if not split.rest:
        return ZoneAssignment(split.parts, is_preferred, affinity)
    ids = tuple(sorted(zone.zone for zone in zones))
    placed = {name: sum(part.amounts.get(name, 0) for part in split.parts) for name in split.rest}
    misses = tuple(Miss(ids, name, placed[name] + rest, placed[name]) for name, rest in sorted(split.rest.items()))
    return ZoneRefusal(Reason.ZONE_FIT_SHORT, misses)


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
