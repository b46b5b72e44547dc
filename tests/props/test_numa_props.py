"""NUMA: merges equal trying every combination, and assignments keep what the policies promise, whoever's rules are followed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from colo_common.model.node_rules import NodeRules
from colo_common.model.resource_list import CPU, MEMORY
from colo_scheduler.numa.amounts import ZoneAmounts
from colo_scheduler.numa.exclusive import ZoneExclusive, ZoneStatus
from colo_scheduler.numa.mask import mask_of, masks_by_size, zones_of
from colo_scheduler.numa.policies import Hint, HintList, TopologyPolicy, merge_scored
from colo_scheduler.numa.refusal import ZoneRefusal
from colo_scheduler.numa.rule import FitContext, ZoneAssignment, fit_zones
from colo_scheduler.numa.zones import ZoneFree, choose_zones
from colo_scheduler.peers.koordinator.even_split import spread_evenly
from colo_scheduler.peers.kubelet.policies import merge_kubelet
from colo_scheduler.peers.registry import NUMA_MANAGERS
from tests.support.scheduler_twin import TwinZone, fewest

MIB = 1 << 20
GPU = "example.com/gpu"
PAGES = "hugepages-2Mi"

# ---------------------------------------------------------------- merges

_ZONES = 4
_ALL = (1 << _ZONES) - 1
masks = st.one_of(st.none(), st.integers(1, _ALL))
hints = st.builds(Hint, masks, st.booleans(), st.integers(0, 3))
lists = st.lists(st.lists(hints, min_size=1, max_size=4).map(tuple), max_size=3).map(
    lambda found: [HintList(f"r{index}", each) for index, each in enumerate(found)]
)
statuses = st.fixed_dictionaries({zone: st.sampled_from(ZoneStatus) for zone in range(_ZONES)})
distance_rows = st.lists(st.integers(10, 14), min_size=_ZONES, max_size=_ZONES)
distance_tables = st.one_of(st.none(), st.lists(distance_rows, min_size=_ZONES, max_size=_ZONES))


def merged(choice: Sequence[Hint]) -> tuple[int, bool]:
    """The zones a choice merges into, and whether it is preferred."""
    named = [hint.mask for hint in choice if hint.mask is not None]
    mask = _ALL
    for each in named:
        mask &= each
    return mask, all(hint.preferred for hint in choice) and len(set(named)) <= 1


@given(lists, st.sampled_from(ZoneExclusive), statuses)
def test_the_scored_merge_is_the_best_of_every_combination(
    found: list[HintList], exclusive: ZoneExclusive, status: dict[int, ZoneStatus]
) -> None:
    best = (1, _ZONES, 0, _ALL, False)
    for choice in product(*(each.hints for each in found)):
        mask, preferred = merged(choice)
        if mask == 0:
            continue
        zones = zones_of(mask)
        if exclusive is ZoneExclusive.REQUIRED:
            refused = ZoneStatus.SHARED if len(zones) == 1 else ZoneStatus.SINGLE
            preferred = preferred and refused not in [status[zone] for zone in zones]
        widest = max((hint.mask.bit_count() for hint in choice if hint.mask is not None), default=len(zones))
        score = sum(hint.score for hint in choice if hint.mask == mask)
        best = min(best, (0 if preferred else 1, len(zones), -score, mask, widest != len(zones)))
    answer = merge_scored(_ALL, found, exclusive, status)
    delivered = (0 if answer.preferred else 1, answer.mask.bit_count(), -answer.score, answer.mask, answer.unsatisfied)
    assert delivered == best


class Pairwise:
    """The kubelet's way: one combination after the other against the best so far."""

    def __init__(self, found: list[HintList], distances: list[list[int]] | None) -> None:
        named = [[hint.mask.bit_count() for hint in each.hints if hint.mask is not None] for each in found]
        self.needed = max((min(sizes) for sizes in named if sizes), default=0)
        self.distances = distances

    def fitter(self, one: int, other: int) -> int:
        if one.bit_count() != other.bit_count():
            return min(one, other, key=int.bit_count)
        if self.distances is not None and self.mean(one) != self.mean(other):
            return min(one, other, key=self.mean)
        return min(one, other)

    def mean(self, mask: int) -> Fraction:
        assert self.distances is not None
        zones = zones_of(mask)
        return Fraction(sum(self.distances[a][b] for a in zones for b in zones), len(zones) ** 2)

    def better(self, now: tuple[int, bool], new: tuple[int, bool]) -> tuple[int, bool]:
        if now[1] != new[1]:
            return now if now[1] else new
        if now[1]:
            return (self.fitter(now[0], new[0]), True)
        sizes = (now[0].bit_count(), new[0].bit_count())
        if sizes[0] > self.needed or sizes[0] == sizes[1]:
            return (self.fitter(now[0], new[0]), False)
        if sizes[0] == self.needed or sizes[1] > self.needed:
            return now
        return new if sizes[1] > sizes[0] else now


@given(lists, distance_tables, st.randoms(use_true_random=False))
def test_the_kubelet_merge_is_what_comparing_pair_by_pair_in_any_order_leaves(
    found: list[HintList], distances: list[list[int]] | None, rng: random.Random
) -> None:
    rule = Pairwise(found, distances)
    choices = [merged(choice) for choice in product(*(each.hints for each in found))]
    choices = [choice for choice in choices if choice[0]]
    rng.shuffle(choices)
    best = choices[0] if choices else (_ALL, False)
    for choice in choices[1:]:
        best = rule.better(best, choice)
    answer = merge_kubelet(_ALL, found, distances)
    assert (answer.mask, answer.preferred) == best


# ---------------------------------------------------------------- assignments

amounts = st.integers(-1, 6)


@st.composite
def machines(draw: st.DrawFn, most: int = 5) -> list[ZoneAmounts]:
    """Small machines: CPU in units of 500 mcpu, memory near whole MiB, some zones with huge pages and devices."""
    zones = []
    for zone in range(draw(st.integers(1, most))):
        free = {CPU: draw(amounts) * 500, MEMORY: draw(amounts) * MIB + draw(st.integers(-1, 1))}
        if draw(st.booleans()):
            free[GPU] = draw(st.integers(0, 3))
        if draw(st.booleans()):
            free[PAGES] = draw(st.integers(0, 3)) * 2 * MIB
        capacity = {name: max(0, amount) + draw(st.integers(0, 2)) * _STEP[name] for name, amount in free.items()}
        zones.append(ZoneAmounts(zone, draw(st.integers(0, 1)), free, capacity))
    return zones


_STEP = {CPU: 500, MEMORY: MIB, GPU: 1, PAGES: 2 * MIB}
requests = st.fixed_dictionaries(
    {CPU: st.integers(0, 24).map(lambda halves: halves * 500 + 1), MEMORY: st.integers(0, 24 * MIB)},
    optional={GPU: st.integers(0, 5), PAGES: st.integers(0, 5).map(lambda pages: pages * 2 * MIB)},
)
provider_lists = st.lists(
    st.dictionaries(
        st.just(GPU), st.one_of(st.none(), st.lists(st.builds(Hint, st.integers(1, 7), st.booleans(), st.just(5))))
    ),
    max_size=2,
).map(tuple)
arounds = st.builds(
    FitContext,
    provider_lists,
    st.sampled_from(ZoneExclusive),
    st.dictionaries(st.integers(0, 4), st.sampled_from(ZoneStatus)),
    distances=st.none(),
    cpu_unit_mcpu=st.sampled_from([1, 1000]),
)
rules_of_all = st.sampled_from(
    [*((name, NodeRules()) for name in NUMA_MANAGERS), ("koordinator", NodeRules(numa_allocate="most-allocated"))]
)
"""The name of a rule, and a node's rules."""


def fit_by(
    rule: tuple[str, NodeRules],
    policy: TopologyPolicy,
    zones: list[ZoneAmounts],
    request: dict[str, int],
    fit_context: FitContext,
) -> ZoneAssignment | ZoneRefusal:
    name, rules = rule
    return NUMA_MANAGERS[name].fit_zones(policy, zones, request, fit_context, rules)


@given(
    st.sampled_from(TopologyPolicy),
    machines(),
    requests,
    st.one_of(st.just(FitContext()), arounds),
    rules_of_all,
)
def test_parts_sum_to_the_request_and_never_exceed_what_is_free(
    policy: TopologyPolicy,
    zones: list[ZoneAmounts],
    request: dict[str, int],
    fit_context: FitContext,
    rule: tuple[str, NodeRules],
) -> None:
    answer = fit_by(rule, policy, zones, request, fit_context)
    if isinstance(answer, ZoneRefusal):
        assert answer.misses or answer.details
        assert all(miss.lack > 0 for miss in answer.misses)
        return
    free = {zone.zone: zone.free for zone in zones}
    for part in answer.parts:
        assert all(0 < amount <= free[part.zone].get(name, 0) for name, amount in part.amounts.items())
    zoned = {name for zone in zones for name in zone.free}
    for name, amount in request.items():
        assert sum(part.amounts.get(name, 0) for part in answer.parts) == (amount if name in zoned else 0)
    assert [part.zone for part in answer.parts] == sorted({part.zone for part in answer.parts})


@given(machines(), requests, st.one_of(st.just(FitContext()), arounds), rules_of_all)
def test_single_numa_node_answers_one_zone(
    zones: list[ZoneAmounts], request: dict[str, int], fit_context: FitContext, rule: tuple[str, NodeRules]
) -> None:
    answer = fit_by(rule, TopologyPolicy.SINGLE, zones, request, fit_context)
    if isinstance(answer, ZoneAssignment):
        # A kubelet, and Katalyst's agent in its place, aligns only who has whole CPUs of its own; the others share all zones.
        aligns_some = rule[0] in ("kubelet", "katalyst")
        assert len(answer.parts) == 1 or (aligns_some and not fit_context.is_guaranteed)
        assert answer.is_preferred


def whole_machine(zones: list[ZoneAmounts]) -> list[ZoneAmounts]:
    return [zone._replace(free=zone.capacity) for zone in zones]


def least_size(zones: Sequence[ZoneAmounts], request: dict[str, int]) -> tuple[int, int] | None:
    """The smallest set that holds a request, tried one by one: (its size, the size of the smallest on one socket or 99)."""
    sizes: dict[bool, int] = {}
    for size in range(1, len(zones) + 1):
        for group in combinations(zones, size):
            if twin_holds(group, request):
                crosses = len({zone.socket for zone in group}) > 1
                sizes.setdefault(crosses, size)
    return (min(sizes.values()), sizes.get(False, 99)) if sizes else None


def twin_holds(group: Sequence[ZoneAmounts], request: dict[str, int]) -> bool:
    cpu, memory = request[CPU], request[MEMORY]
    others = [name for name in request if name not in (CPU, MEMORY)]
    if any(sum(zone.free.get(name, 0) for zone in group) < request[name] for name in others):
        return False
    if len(group) == 1:
        return all(max(0, group[0].free[name]) >= request[name] for name in (CPU, MEMORY))
    mib = -(-memory // MIB)
    shares = [
        max(
            Fraction(0),
            min(
                Fraction(1),
                Fraction(zone.free[CPU], cpu),
                Fraction(zone.free[MEMORY] // MIB, mib) if mib else Fraction(1),
            ),
        )
        for zone in group
    ]
    return sum(shares) >= 1


@given(machines(), requests)
def test_colo_takes_the_set_that_trying_all_of_them_finds(zones: list[ZoneAmounts], request: dict[str, int]) -> None:
    unknown = [name for name in request if not any(name in zone.free for zone in zones)]
    request = {name: amount for name, amount in request.items() if name not in unknown}
    for policy in (TopologyPolicy.NONE, TopologyPolicy.BEST_EFFORT):
        answer = fit_zones(policy, zones, request)
        best = least_size(zones, request)
        if isinstance(answer, ZoneRefusal):
            assert best is None
            continue
        assert best is not None
        size, on_one_socket = best
        sockets = {zone.socket for zone in zones if answer.mask >> zone.zone & 1}
        # A set may hold a zone of which only a device was needed elsewhere, so fewer parts than zones are possible.
        assert len(answer.parts) <= (on_one_socket if on_one_socket != 99 else size)
        assert len(sockets) == 1 or on_one_socket == 99


@given(machines(), requests, st.one_of(st.just(FitContext()), arounds))
def test_restricted_is_never_wider_than_the_empty_machine_would_need(
    zones: list[ZoneAmounts], request: dict[str, int], fit_context: FitContext
) -> None:
    answer = fit_zones(TopologyPolicy.RESTRICTED, zones, request, fit_context)
    known = {name: amount for name, amount in request.items() if any(name in zone.free for zone in zones)}
    least = least_size(whole_machine(zones), known)
    if isinstance(answer, ZoneAssignment):
        assert least is not None
        assert len(answer.parts) <= least[0]
    elif (
        not fit_context.providers and fit_context.exclusive is not ZoneExclusive.REQUIRED and known == request and least
    ):
        now = least_size(zones, request)
        assert now is None or now[0] > least[0]


@given(
    machines(),
    requests,
    st.sampled_from(TopologyPolicy),
    rules_of_all,
    st.randoms(use_true_random=False),
)
def test_the_order_in_which_zones_and_resources_are_given_decides_nothing(
    zones: list[ZoneAmounts],
    request: dict[str, int],
    policy: TopologyPolicy,
    rule: tuple[str, NodeRules],
    rng: random.Random,
) -> None:
    shuffled = list(zones)
    rng.shuffle(shuffled)
    names = list(request)
    rng.shuffle(names)
    turned = {name: request[name] for name in names}
    assert fit_by(rule, policy, zones, request, FitContext()) == fit_by(rule, policy, shuffled, turned, FitContext())


@given(machines(most=6), requests)
def test_cpu_and_memory_alone_are_split_as_the_scheduler_splits_them(
    zones: list[ZoneAmounts], request: dict[str, int]
) -> None:
    cpu, memory = request[CPU], request[MEMORY] + 1
    free = [ZoneFree(zone.zone, zone.socket, zone.free[CPU], zone.free[MEMORY]) for zone in zones]
    parts = choose_zones(cpu, memory, free)
    answer = fit_zones(TopologyPolicy.BEST_EFFORT, zones, {CPU: cpu, MEMORY: memory})
    if parts is None:
        assert isinstance(answer, ZoneRefusal)
        twins = [TwinZone(zone.slot, zone.socket, zone.free_cpu_mcpu, zone.free_memory_bytes) for zone in free]
        assert fewest(cpu, memory, twins) is None
        return
    assert isinstance(answer, ZoneAssignment)
    delivered = [(part.zone, part.amounts.get(CPU, 0), part.amounts.get(MEMORY, 0)) for part in answer.parts]
    assert delivered == [tuple(part) for part in parts if part.cpu_mcpu or part.memory_bytes]


@given(machines(), requests)
def test_an_even_split_over_zones_that_have_enough_leaves_nothing(
    zones: list[ZoneAmounts], request: dict[str, int]
) -> None:
    split = spread_evenly(request, zones)
    for name, amount in request.items():
        if not any(name in zone.free for zone in zones):
            continue
        enough = sum(max(0, zone.free.get(name, 0)) for zone in zones) >= amount
        assert (name not in split.rest) == enough


@given(st.sets(st.integers(0, 70), min_size=1, max_size=6))
def test_masks_and_zone_ids_are_two_ways_to_say_the_same(zones: set[int]) -> None:
    assert set(zones_of(mask_of(zones))) == zones
    every = list(masks_by_size(sorted(zones)))
    assert len(set(every)) == len(every) == 2 ** len(zones) - 1
    assert [mask.bit_count() for mask in every] == sorted(mask.bit_count() for mask in every)
