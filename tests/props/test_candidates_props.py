"""Decisions without scoring every node: the same as scoring every node afresh for every replica."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from colo_common.model.freshness import Freshness
from colo_common.model.placement import ZoneShare
from colo_common.model.reasons import Reason
from colo_scheduler.cluster.cluster import Cluster, View
from colo_scheduler.cluster.pool import PoolName
from colo_scheduler.numa.zones import ZoneFree, choose_zones
from colo_scheduler.placement.candidates import Candidates, ranked
from colo_scheduler.placement.decide import decide_class
from colo_scheduler.placement.filters import judge
from colo_scheduler.placement.scoring import scoring_of
from colo_scheduler.policy import ScorerWeights
from colo_scheduler.requests.request_class import RequestClass, class_of
from tests.support.builders import GIB, a_node
from tests.support.profiles import examples
from tests.support.scheduler_story import COMMAND, EITHER, WORK, a_placement_request, an_allocatable, topology_of
from tests.support.scheduler_twin import TwinZone, balanced, fewest, free_pct, least_allocated, most_allocated, packed

MIB = 1 << 20
NOW_MS = 1_000
ZONE_MCPU = 32_000
MACHINES = tuple(
    topology_of(zones, sockets=sockets, cpus=ZONE_MCPU // 1000)
    for zones, sockets in ((1, 1), (2, 1), (2, 2), (4, 2), (3, 1))
)

# Round numbers make ties and shares that are whole; odd ones meet every rounding.
zone_cpus = st.one_of(st.sampled_from([0, 1000, 4000, 8000]), st.integers(0, 9000))
zone_memories = st.one_of(
    st.sampled_from([0, 1, 4, 8]).map(lambda gib: gib * GIB), st.integers(0, 9 * GIB), st.integers(0, 9000 * MIB)
)
promises = st.tuples(zone_cpus, zone_memories)


class Machine(NamedTuple):
    shape: int
    promised: list[tuple[int, int]]
    held: list[tuple[int, int, int]]
    """What is held: zone (modulo the zones), mcpu, bytes; it may be more than is promised."""
    freshness: Freshness
    is_reloading: bool
    simulated: bool
    is_known: bool


machines = st.builds(
    Machine,
    shape=st.integers(0, len(MACHINES) - 1),
    promised=st.lists(promises, min_size=4, max_size=4),
    held=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3000), st.integers(0, 3 * GIB)), max_size=2),
    freshness=st.sampled_from([Freshness.FRESH] * 9 + [Freshness.STALE]),
    is_reloading=st.sampled_from([False] * 9 + [True]),
    simulated=st.booleans(),
    is_known=st.sampled_from([True] * 9 + [False]),
)
# Many alike beside a few odd ones: chunks, ties and their order.
fleets = st.one_of(
    st.lists(machines, max_size=8),
    st.tuples(machines, st.integers(1, 40), st.lists(machines, max_size=3)).map(lambda t: [t[0]] * t[1] + t[2]),
)

# Large machines with round numbers, few of them different: many replicas on each, ties, shares that are whole, more than one look.
crowds = st.lists(
    st.builds(
        lambda shape, promised, held: Machine(shape, promised, held, Freshness.FRESH, False, False, True),
        st.integers(0, len(MACHINES) - 1),
        st.tuples(st.sampled_from([8000, 10_000, 20_000, ZONE_MCPU + 1]), st.sampled_from([8, 10, 20])).map(
            lambda each: [(each[0], each[1] * GIB)] * 4
        ),
        st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 100, 1000]), st.sampled_from([0, GIB])), max_size=2),
    ),
    min_size=1,
    max_size=4,
).flatmap(lambda few: st.lists(st.sampled_from(few), min_size=1, max_size=40))
small = st.builds(
    lambda cpu, memory: class_of(a_placement_request(mcpu=cpu, memory_bytes=memory)),
    st.sampled_from([100, 500, 1000, 2000, 9000]),
    st.sampled_from([MIB, MIB, GIB, 2 * GIB, 9 * GIB]),
)

weights = st.one_of(
    st.just(ScorerWeights()),
    st.builds(
        ScorerWeights,
        fewest_zones=st.sampled_from([0, 1, 10, 1000]),
        most_free=st.sampled_from([1, 7, 1000]),
        least_allocated=st.sampled_from([0, 0, 3]),
        most_allocated=st.sampled_from([0, 0, 5, 1000]),
        balanced_allocation=st.sampled_from([0, 0, 2]),
        binpack=st.sampled_from([0, 0, 9]),
    ),
)
wanted = st.builds(
    lambda cpu, memory, run, avoid: class_of(
        a_placement_request(
            mcpu=cpu, memory_bytes=memory, run=run, avoid=tuple((f"n{n:02}", NOW_MS + 1) for n in sorted(avoid))
        )
    ),
    st.one_of(st.sampled_from([1, 500, 1000, 4000, 12_000]), st.integers(1, 20_000)),
    st.one_of(st.sampled_from([1, MIB, GIB, 6 * GIB]), st.integers(1, 20 * GIB)),
    st.sampled_from([COMMAND, WORK, EITHER, EITHER]),
    st.sets(st.integers(0, 9), max_size=2),
)


def cluster_of(fleet: list[Machine], rotation: int = 0) -> Cluster:
    cluster = Cluster(tie_rotation=rotation)
    for number, machine in enumerate(fleet):
        name = f"n{number:02}"
        topology = MACHINES[machine.shape]
        if machine.is_known:
            cluster.on_topology(a_node(name, topology, simulated=machine.simulated))
        zones = machine.promised[: len(topology.zones)]
        cluster.on_allocatable(an_allocatable(name, zones, freshness=machine.freshness))
        node = cluster.node(name)
        cluster.settle(node, machine.is_reloading)
        for index, (zone, cpu, memory) in enumerate(machine.held):
            share = ZoneShare(zone=zone % len(topology.zones), cpu_mcpu=cpu, memory_bytes=memory)
            cluster.hold(node, (f"h{index}", 1), (share,))
    return cluster


class Dumb:
    """Every node as lists of its own, scored afresh for every replica."""

    def __init__(self, fleet: list[Machine], rotation: int = 0) -> None:
        self.fleet = fleet
        self.free: list[list[list[int]]] = []
        self.whole: list[tuple[int, int]] = []
        self.rank = [(number - rotation) % max(1, len(fleet)) for number in range(len(fleet))]
        for machine in fleet:
            # Of a promise no more is believed than the zone has.
            known = zip(machine.promised, MACHINES[machine.shape].zones, strict=False) if machine.is_known else ()
            zones = [(min(cpu, z.cpu_capacity_mcpu), min(memory, z.memory_bytes)) for (cpu, memory), z in known]
            free = [[cpu, memory] for cpu, memory in zones]
            for zone, cpu, memory in machine.held if zones else ():
                free[zone % len(zones)][0] -= cpu
                free[zone % len(zones)][1] -= memory
            self.free.append(free)
            self.whole.append((sum(cpu for cpu, _ in zones), sum(memory for _, memory in zones)))

    def refusal(self, row: int, request: RequestClass) -> Reason | None:
        machine = self.fleet[row]
        if not machine.is_known:
            return Reason.TOPOLOGY_UNKNOWN
        if machine.freshness is not Freshness.FRESH:
            return Reason.NODE_NOT_FRESH
        if f"n{row:02}" in dict(request.avoid):
            return Reason.NODE_EXCLUDED
        if not (request.has_work if machine.simulated else request.has_command):
            return Reason.RUNTIME_ABSENT
        if machine.is_reloading:
            return Reason.LEDGER_CONFLICT
        if sum(cpu for cpu, _ in self.free[row]) < request.cpu_mcpu:
            return Reason.BATCH_CPU_SHORT
        if sum(memory for _, memory in self.free[row]) < request.memory_bytes:
            return Reason.BATCH_MEMORY_SHORT
        return Reason.ZONE_FIT_SHORT if self.cost(row, request) is None else None

    def cost(self, row: int, request: RequestClass) -> int | None:
        known = MACHINES[self.fleet[row].shape].zones
        zones = [TwinZone(z.zone, z.socket, cpu, mem) for z, (cpu, mem) in zip(known, self.free[row], strict=True)]
        found = fewest(request.cpu_mcpu, request.memory_bytes, zones)
        if found is None:
            return None
        return found[0] + len(zones) if found[1] else found[0]

    def scores(self, row: int, request: RequestClass) -> dict[str, int]:
        cost = self.cost(row, request)
        assert cost is not None
        whole = self.whole[row]
        asked = (request.cpu_mcpu, request.memory_bytes)
        left = [sum(zone[i] for zone in self.free[row]) - asked[i] for i in range(2)]
        allocated = [whole[i] - left[i] for i in range(2)]
        before = [allocated[i] - asked[i] for i in range(2)]
        return {
            "fewest_zones": 100 // cost,
            "most_free": free_pct(left, whole),
            "least_allocated": least_allocated(allocated, whole),
            "most_allocated": most_allocated(allocated, whole),
            "balanced_allocation": balanced(allocated, whole),
            "binpack": packed(asked, before, whole),
        }

    def key(self, row: int, request: RequestClass, weights: ScorerWeights) -> tuple[int, int, int]:
        total = sum(getattr(weights, name) * score for name, score in self.scores(row, request).items())
        left_cpu = sum(cpu for cpu, _ in self.free[row]) - request.cpu_mcpu
        return (total, left_cpu, -self.rank[row])

    def fitting(self, request: RequestClass) -> list[int]:
        return [row for row in range(len(self.fleet)) if self.refusal(row, request) is None]

    def best(self, request: RequestClass, weights: ScorerWeights) -> int | None:
        return max(self.fitting(request), key=lambda row: self.key(row, request, weights), default=None)

    def counts(self, request: RequestClass) -> dict[Reason, int]:
        found = [self.refusal(row, request) for row in range(len(self.fleet))]
        return {reason: found.count(reason) for reason in found if reason is not None}

    def take(self, row: int, shares: tuple[ZoneShare, ...]) -> None:
        for share in shares:
            self.free[row][share.zone][0] -= share.cpu_mcpu
            self.free[row][share.zone][1] -= share.memory_bytes


@examples(3)
@given(fleets, wanted, weights, st.integers(0, 12), st.integers(0, 50))
def test_a_class_gets_the_nodes_that_scoring_all_of_them_for_each_replica_would_give(
    fleet: list[Machine], request: RequestClass, by: ScorerWeights, count: int, rotation: int
) -> None:
    dumb = Dumb(fleet, rotation)
    view = cluster_of(fleet, rotation).view(NOW_MS)
    decision = decide_class(view, request, count, scoring_of(by), best_rows=3)
    if count:
        assert {each.reason: each.nodes for each in decision.counts} == dumb.counts(request)
    for choice in decision.choices:
        assert choice.row == dumb.best(request, by)
        dumb.take(choice.row, choice.shares)
    if len(decision.choices) < count:
        assert dumb.best(request, by) is None


@given(crowds, small, weights, st.integers(1, 40))
def test_a_crowd_of_replicas_is_spread_as_one_after_the_other_would_be(
    fleet: list[Machine], request: RequestClass, by: ScorerWeights, count: int
) -> None:
    dumb = Dumb(fleet)
    for choice in decide_class(cluster_of(fleet).view(NOW_MS), request, count, scoring_of(by)).choices:
        assert choice.row == dumb.best(request, by)
        dumb.take(choice.row, choice.shares)
        count -= 1
    assert count == 0 or dumb.best(request, by) is None


@given(st.one_of(fleets, crowds), st.one_of(wanted, small), weights)
def test_all_nodes_that_fit_come_in_the_order_of_their_keys(
    fleet: list[Machine], request: RequestClass, by: ScorerWeights
) -> None:
    dumb = Dumb(fleet)
    view = cluster_of(fleet).view(NOW_MS)
    expected = sorted(dumb.fitting(request), key=lambda row: dumb.key(row, request, by), reverse=True)
    assert [each.row for each in ranked(Candidates(view, request, scoring_of(by)))] == expected


@given(st.one_of(fleets, crowds), st.one_of(wanted, small), weights)
def test_each_node_is_taken_by_the_zones_that_choosing_among_them_gives(
    fleet: list[Machine], request: RequestClass, by: ScorerWeights
) -> None:
    view, free = cluster_of(fleet).view(NOW_MS), Dumb(fleet).free
    for each in ranked(Candidates(view, request, scoring_of(by))):
        node = view.nodes[each.row]
        zones = [ZoneFree(slot, on, *free[each.row][slot]) for slot, on in enumerate(node.sockets)]
        parts = choose_zones(request.cpu_mcpu, request.memory_bytes, zones)
        assert parts is not None
        assert each.shares == tuple(
            ZoneShare(zone=node.zone_ids[slot], cpu_mcpu=cpu, memory_bytes=memory) for slot, cpu, memory in parts
        )


@examples(2)
@given(
    st.one_of(fleets, crowds),
    st.one_of(wanted, small),
    weights,
    st.integers(1, 12),
    st.integers(0, 4),
    st.integers(0, 50),
)
def test_what_is_told_of_each_replica_is_what_scoring_all_nodes_at_its_own_moment_gives(
    fleet: list[Machine], request: RequestClass, by: ScorerWeights, count: int, rows: int, rotation: int
) -> None:
    cluster, dumb = cluster_of(fleet, rotation), Dumb(fleet, rotation)
    # Nothing beside room is heard of, so the scorers of room alone count.
    scoring = scoring_of(by)
    decision = decide_class(cluster.view(NOW_MS), request, count, scoring_of(by), best_rows=rows)
    for number, choice in enumerate(decision.choices):
        cluster.hold(cluster.nodes[choice.row], (f"p{number}", 1), choice.shares)
    for number in range(len(fleet)):
        # What the machines become later is not what was decided on.
        cluster.on_topology(a_node(f"n{number:02}", topology_of(2), at_ms=NOW_MS + 1))
    snapshots = list(decision.matrix.snapshots()) if decision.matrix is not None else []
    assert len(snapshots) == len(decision.choices)
    for choice, moment in zip(decision.choices, snapshots, strict=True):
        fitting = sorted(dumb.fitting(request), key=lambda row: dumb.key(row, request, by), reverse=True)
        assert moment.fitting == len(fitting)
        assert {each.reason: each.nodes for each in moment.counts} == dumb.counts(request)
        assert [each.node for each in moment.scores] == [f"n{row:02}" for row in fitting[: len(moment.scores)]]
        assert min(1, rows) <= len(moment.scores) <= rows
        assert moment is not snapshots[0] or len(moment.scores) == min(rows, len(fitting))
        for each, row in zip(moment.scores, fitting, strict=False):
            own = dumb.scores(row, request)
            assert each.total == dumb.key(row, request, by)[0] // scoring.total
            assert each.scores == {name: own[name.replace("-", "_")] for name in scoring.names}
        assert not rows or moment.scores[0].node == f"n{choice.row:02}"
        dumb.take(choice.row, choice.shares)


def test_a_node_that_holds_millions_of_times_what_it_may_is_bounded_without_a_warning() -> None:
    rest = [(0, 0)] * 3
    machines = [
        Machine(0, [promise, *rest], held, Freshness.FRESH, False, False, True)
        for promise, held in (((1000, GIB), []), ((0, 12), [(0, 0, 754_832_990)]))
    ]
    request = class_of(a_placement_request(mcpu=1, memory_bytes=1))
    candidates = Candidates(cluster_of(machines).view(NOW_MS), request, scoring_of(ScorerWeights()))
    candidates.check()
    assert [each.row for each in candidates.top(5)] == [0]


@given(fleets, wanted)
def test_the_filters_one_by_one_refuse_the_nodes_that_the_decision_counts(
    fleet: list[Machine], request: RequestClass
) -> None:
    view = cluster_of(fleet).view(NOW_MS)
    verdicts = judge(view, request)
    assert verdicts.counts == Candidates(view, request, scoring_of(ScorerWeights())).counts
    assert verdicts.rows.tolist() == Dumb(fleet).fitting(request)


@given(fleets, st.lists(wanted, min_size=1, max_size=4), weights)
def test_what_a_trial_takes_is_taken_of_nothing_else(
    fleet: list[Machine], requests: list[RequestClass], by: ScorerWeights
) -> None:
    cluster = cluster_of(fleet)
    before = free_of(cluster.view(NOW_MS))
    trial, dumb = cluster.trial(NOW_MS), Dumb(fleet)
    for request in requests:
        for choice in decide_class(trial, request, 2, scoring_of(by)).choices:
            assert choice.row == dumb.best(request, by)
            trial.take(PoolName.BATCH, choice.row, choice.shares)
            dumb.take(choice.row, choice.shares)
    assert free_of(cluster.view(NOW_MS)) == before
    assert free_of(trial) == [[tuple(zone) for zone in zones] for zones in dumb.free]
    cluster.check()


def free_of(view: View) -> list[list[tuple[int, int]]]:
    """What is free by the arrays, zone by zone."""
    pool = view.pool(PoolName.BATCH)
    return [
        list(zip(pool.free_cpu[n.row].tolist(), pool.free_memory[n.row].tolist(), strict=True))[: len(n.zone_ids)]
        for n in view.nodes
    ]


class Steps:
    """Things that happen to a cluster between decisions."""

    of = st.lists(
        st.one_of(
            st.tuples(st.just("promise"), st.integers(0, 9), st.lists(promises, min_size=4, max_size=4)),
            st.tuples(st.just("fresh"), st.integers(0, 9), st.sampled_from([Freshness.FRESH, Freshness.STALE])),
            st.tuples(st.just("reload"), st.integers(0, 9), st.booleans()),
            st.tuples(st.just("simulated"), st.integers(0, 9), st.booleans()),
            st.tuples(st.just("want"), wanted, st.integers(1, 6)),
            st.tuples(st.just("end"), st.integers(0, 30)),
        ),
        max_size=14,
    )


@examples(1.5)
@given(st.lists(machines, min_size=1, max_size=10), Steps.of, weights)
def test_decisions_stay_right_while_the_cluster_changes(
    fleet: list[Machine], steps: list[tuple[object, ...]], by: ScorerWeights
) -> None:
    cluster, live = cluster_of(fleet), list(fleet)
    placed: list[tuple[int, tuple[ZoneShare, ...]]] = []
    for at_ms, step in enumerate(steps, start=1):
        match step:
            case ("want", RequestClass() as request, int(count)):
                dumb = dumb_of(live, placed)
                decision = decide_class(cluster.view(NOW_MS), request, count, scoring_of(by))
                assert {each.reason: each.nodes for each in decision.counts} == dumb.counts(request)
                for choice in decision.choices:
                    assert choice.row == dumb.best(request, by)
                    dumb.take(choice.row, choice.shares)
                    cluster.hold(cluster.nodes[choice.row], (f"p{len(placed)}", 1), choice.shares)
                    placed.append((choice.row, choice.shares))
            case ("end", int(number)):
                if number < len(placed):
                    cluster.drop(cluster.nodes[placed[number][0]], (f"p{number}", 1))
                    placed[number] = (placed[number][0], ())
            case (str(kind), int(number), value):
                row = number % len(live)
                live[row] = changed(cluster, live[row], f"n{row:02}", kind, value, at_ms)
    cluster.check()
    assert free_of(cluster.view(NOW_MS)) == [[tuple(zone) for zone in z] for z in dumb_of(live, placed).free]


def dumb_of(fleet: list[Machine], placed: list[tuple[int, tuple[ZoneShare, ...]]]) -> Dumb:
    dumb = Dumb(fleet)
    for row, shares in placed:
        dumb.take(row, shares)
    return dumb


def changed(cluster: Cluster, machine: Machine, name: str, kind: str, value: object, at_ms: int) -> Machine:
    """Tell the cluster; the machine as it is then."""
    zones = len(MACHINES[machine.shape].zones)
    match kind, value:
        case "promise", list():
            cluster.on_allocatable(an_allocatable(name, value[:zones], freshness=machine.freshness, at_ms=at_ms))
            return machine._replace(promised=value)
        case "fresh", Freshness():
            promised = machine.promised[:zones]
            cluster.on_allocatable(an_allocatable(name, promised, freshness=value, at_ms=at_ms))
            return machine._replace(freshness=value)
        case "reload", bool():
            cluster.settle(cluster.node(name), value)
            return machine._replace(is_reloading=value)
        case "simulated", bool() if machine.is_known:
            cluster.on_topology(a_node(name, MACHINES[machine.shape], simulated=value))
            return machine._replace(simulated=value)
    return machine


@examples(2)
@given(st.one_of(fleets, crowds), st.one_of(wanted, small), weights)
def test_no_bound_is_below_the_key_it_bounds(fleet: list[Machine], request: RequestClass, by: ScorerWeights) -> None:
    Candidates(cluster_of(fleet).view(NOW_MS), request, scoring_of(by)).check()
