"""Load, job-mates, evictions and soft taints in decisions: the same as judging every node afresh for every replica, literally."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import floor

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from colo_common.events.node import LoadPeak, LoadSummary, LoadWindow
from colo_common.model.constraints import Constraints, Taint, Toleration
from colo_common.model.placement import ZoneShare
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import Reason
from colo_scheduler.cluster.cluster import Cluster
from colo_scheduler.cluster.pool import PoolName, pool_of
from colo_scheduler.cluster.signal_rules import SignalRules
from colo_scheduler.cluster.signals import NodeSignals, kind_of
from colo_scheduler.load.dynamic_rules import DynamicRules
from colo_scheduler.load.rows import LoadTable, loads_passing, newcomers_in_row
from colo_scheduler.load.rules import LoadRules
from colo_scheduler.load.usage import NodeLoad, Sums
from colo_scheduler.peers.crane.dynamic_loads import DynamicPolicy, Metric, dynamic_score
from colo_scheduler.placement.candidates import Candidates
from colo_scheduler.placement.decide import decide_class
from colo_scheduler.placement.filters import judge
from colo_scheduler.placement.scoring import scoring_for, scoring_of
from colo_scheduler.policy import ScorerWeights
from colo_scheduler.requests.request_class import RequestClass, class_of
from colo_scheduler.scorers.recent_eviction import EvictionPenaltyPolicy, decayed
from tests.support.builders import GIB, a_node, a_topology
from tests.support.load_twin import hot_value, refused_by
from tests.support.profiles import examples
from tests.support.scheduler_story import a_placement_request, an_allocatable

NOW_MS = 1_000_000
CPUS = 8
WHOLE = (CPUS * 1_000, CPUS * GIB)
SOFT = (Taint(key="old", effect="PreferNoSchedule"), Taint(key="slow", effect="PreferNoSchedule"))


@dataclass
class Machine:
    """A node as the twin knows it: percent that prod work and the rest use, and in the average; `prod` None: it told no load."""

    prod: tuple[int, int] | None
    rest: tuple[int, int]
    average: tuple[int, int]
    age_ms: int
    taints: int
    evicted: list[tuple[int, bool]]
    held: list[tuple[int, str, int, int]]
    """What it holds: placed so long ago, job, CPUs, GiB."""
    more: list[tuple[bool, str, int, int]] = field(default_factory=list)
    """What was placed since it told its load: whether prod, job, mcpu, bytes."""


pcts = st.tuples(st.integers(0, 100), st.integers(0, 100))
machines = st.builds(
    Machine,
    prod=st.none() | pcts,
    rest=pcts,
    average=pcts,
    age_ms=st.sampled_from([0, 1_000, 179_999, 180_000, 400_000, 480_000]),
    taints=st.integers(0, 2),
    evicted=st.lists(st.tuples(st.sampled_from([0, 30_000, 60_000, 599_999, 600_000]), st.booleans()), max_size=3),
    held=st.lists(
        st.tuples(
            st.sampled_from([0, 500, 9_999, 10_000, 190_000, 500_000]),
            st.sampled_from(["a", "b"]),
            st.integers(0, 2),
            st.integers(0, 2),
        ),
        max_size=3,
    ),
)
usages = st.sampled_from(["newest", "avg", "p50", "p90", "p95", "p99"])
rules = st.builds(
    LoadRules,
    cpu_pct=st.sampled_from([0, 0, 65, 90]),
    memory_pct=st.sampled_from([0, 0, 80]),
    prod_cpu_pct=st.sampled_from([0, 65, 90]),
    prod_memory_pct=st.sampled_from([0, 95]),
    usage=usages,
    score_usage=usages,
    cpu_weight=st.sampled_from([1, 1, 3]),
    memory_weight=st.sampled_from([1, 0]),
    scarcest_weight=st.sampled_from([0, 0, 2]),
)
dynamics = st.just(DynamicRules()) | st.builds(
    DynamicRules,
    limits_pct=st.dictionaries(
        st.sampled_from(["cpu_usage_avg_5m", "mem_usage_max_avg_1h"]), st.sampled_from([0, 40, 80])
    ),
    weights=st.just(DynamicRules().weights) | st.just({"mem_usage_avg_5m": 1}),
    hot_1m=st.sampled_from([0, 1, 2]),
    hot_5m=st.sampled_from([0, 2, 5]),
)
weights = st.just(ScorerWeights()) | st.builds(
    ScorerWeights,
    fewest_zones=st.just(10),
    most_free=st.sampled_from([0, 1, 5]),
    spread=st.sampled_from([0, 4, 1000]),
    recent_eviction=st.sampled_from([0, 2, 700]),
    soft_taints=st.sampled_from([0, 3, 50]),
    load_aware=st.sampled_from([0, 1, 30, 1000]),
    most_allocated=st.sampled_from([0, 0, 2]),
    dynamic_load=st.sampled_from([0, 0, 3, 500]),
    resource_cpu=st.sampled_from([1, 1, 4]),
)
requests = st.builds(
    lambda job, mcpu, gib, spread, tolerates, is_prod: class_of(
        a_placement_request(
            f"{job}/main/0",
            mcpu=mcpu,
            memory_bytes=gib * GIB,
            qos=QosClass.LS if is_prod else QosClass.BE,
            band=PriorityBand.PROD if is_prod else PriorityBand.BATCH,
            constraints=Constraints(spread=spread, tolerations=(Toleration(key="old"),) if tolerates else ()),
        )
    ),
    st.sampled_from(["a", "b"]),
    st.sampled_from([100, 1_000, 1_500, 3_001]),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


def estimate(cpu: int, memory: int) -> tuple[int, int]:
    """Half up of 85 percent of the CPU and 70 of the memory."""
    return floor(Fraction(85 * cpu, 100) + Fraction(1, 2)), floor(Fraction(70 * memory, 100) + Fraction(1, 2))


class Twin:
    """Judges every node afresh with fractions and lists."""

    def __init__(self, fleet: list[Machine], by: ScorerWeights, rule: LoadRules, dynamic: DynamicRules) -> None:
        self.fleet, self.by, self.rule, self.dynamic = fleet, by, rule, dynamic

    def used(self, machine: Machine, is_prod: bool, usage: str) -> list[int] | None:
        """CPU and memory in use with everything that was placed since, by the basis of such work; None without a report."""
        if machine.prod is None or machine.age_ms >= self.rule.expiry_ms:
            return None
        report = load_of(machine)
        if is_prod:
            base = [
                report.prod_cpu_used_mcpu + report.system_cpu_used_mcpu,
                report.prod_memory_used_bytes + report.system_memory_used_bytes,
            ]
        elif usage == "newest":
            base = [report.cpu_used_mcpu, report.memory_used_bytes]
        else:
            base = [
                getattr(report.windows[1], f"cpu_{usage}_mcpu"),
                getattr(report.windows[1], f"memory_{usage}_bytes"),
            ]
        for of_prod, cpu, memory in self.unseen(machine):
            if of_prod or (not is_prod and self.counts_batch):
                base = [amount + more for amount, more in zip(base, estimate(cpu, memory), strict=True)]
        return base

    @property
    def counts_batch(self) -> bool:
        return bool(self.rule.cpu_pct or self.rule.memory_pct or self.by.load_aware)

    def unseen(self, machine: Machine) -> list[tuple[bool, int, int]]:
        held = [
            (False, c * 1_000, g * GIB)
            for at, _, c, g in machine.held
            if NOW_MS - at > NOW_MS - machine.age_ms - 10_000
        ]
        return held + [(of_prod, cpu, memory) for of_prod, _, cpu, memory in machine.more]

    def free(self, machine: Machine, is_prod: bool) -> tuple[int, int]:
        taken = [] if is_prod else [(c * 1_000, g * GIB) for _, _, c, g in machine.held]
        taken += [(cpu, memory) for of_prod, _, cpu, memory in machine.more if of_prod is is_prod]
        return WHOLE[0] - sum(cpu for cpu, _ in taken), WHOLE[1] - sum(memory for _, memory in taken)

    def is_busy(self, machine: Machine, request: RequestClass) -> bool:
        rule, used = self.rule, self.used(machine, request.is_prod, self.rule.usage)
        limits = (rule.prod_cpu_pct, rule.prod_memory_pct)
        if not request.is_prod or not any(limits):
            # Without thresholds of their own prod work is judged as all work is.
            limits = (rule.cpu_pct, rule.memory_pct)
            used = self.used_by_all(machine)
        if used is None:
            return False
        more = estimate(request.cpu_mcpu, request.memory_bytes)
        shares = [Fraction(100 * (used[i] + more[i]), WHOLE[i]) for i in range(2)]
        return any(limit and floor(share + Fraction(1, 2)) > limit for share, limit in zip(shares, limits, strict=True))

    def used_by_all(self, machine: Machine) -> list[int] | None:
        return self.used(machine, False, self.rule.usage)

    def metrics(self, machine: Machine) -> dict[str, Metric]:
        if machine.prod is None:
            return {}
        report = load_of(machine)
        amounts = {
            "cpu_usage_avg_5m": (report.windows[1].cpu_avg_mcpu, WHOLE[0]),
            "mem_usage_avg_5m": (report.windows[1].memory_avg_bytes, WHOLE[1]),
            "cpu_usage_max_avg_1h": (report.peaks[0].cpu_mcpu, WHOLE[0]),
            "mem_usage_max_avg_1h": (report.peaks[0].memory_bytes, WHOLE[1]),
        }
        return {name: Metric(amount / whole, machine.age_ms) for name, (amount, whole) in amounts.items()}

    def dynamic_points(self, machine: Machine) -> int:
        ages = [ago_ms for ago_ms, _, _, _ in machine.held] + [0] * len(machine.more)
        hot = hot_value(ages, DynamicPolicy.from_rules(self.dynamic).hot)
        return dynamic_score(self.metrics(machine), Metric(float(hot), 0), DynamicPolicy.from_rules(self.dynamic))

    def refusal(self, machine: Machine, request: RequestClass) -> Reason | None:
        if refused_by(self.metrics(machine), DynamicPolicy.from_rules(self.dynamic)) or self.is_busy(machine, request):
            return Reason.LOAD_OVER_THRESHOLD
        free = self.free(machine, request.is_prod)
        if free[0] < request.cpu_mcpu:
            return Reason.CPU_SHORT if request.is_prod else Reason.BATCH_CPU_SHORT
        if free[1] < request.memory_bytes:
            return Reason.MEMORY_SHORT if request.is_prod else Reason.BATCH_MEMORY_SHORT
        return None

    def scores(self, row: int, request: RequestClass) -> dict[str, int]:
        machine = self.fleet[row]
        free = self.free(machine, request.is_prod)
        left = (free[0] - request.cpu_mcpu, free[1] - request.memory_bytes)
        used = self.used(machine, request.is_prod, self.rule.score_usage)
        unused = 0
        if used is not None:
            total = [used[i] + estimate(request.cpu_mcpu, request.memory_bytes)[i] for i in range(2)]
            parts = [100 * (WHOLE[i] - total[i]) // WHOLE[i] if total[i] <= WHOLE[i] else 0 for i in range(2)]
            weighed = [*zip(parts, (self.rule.cpu_weight, self.rule.memory_weight), strict=True)]
            weighed.append((min(parts), self.rule.scarcest_weight))
            unused = sum(part * weight for part, weight in weighed) // sum(weight for _, weight in weighed)
        mates = sum(job == request.job for _, job, _, _ in machine.held) if request.job else 0
        mates += sum(job == request.job for _, job, _, _ in machine.more) if request.job else 0
        soft = len(
            [taint for taint in SOFT[: machine.taints] if not (taint.key == "old" and request.place.tolerations)]
        )
        return {
            "fewest_zones": 100,
            "most_free": min(100, max(0, (100 * left[0] // WHOLE[0] + 100 * left[1] // WHOLE[1]) // 2)),
            "most_allocated": (
                self.by.resource_cpu * (100 * min(WHOLE[0] - left[0], WHOLE[0]) // WHOLE[0])
                + 100 * min(WHOLE[1] - left[1], WHOLE[1]) // WHOLE[1]
            )
            // (self.by.resource_cpu + 1),
            "spread": 100 // (1 + mates) if request.job else 0,
            "recent_eviction": self.forgiven(machine, request),
            "soft_taints": 100 // (1 + soft),
            "load_aware": unused,
            "dynamic_load": self.dynamic_points(machine),
        }

    def key(self, row: int, request: RequestClass) -> tuple[int, int, int]:
        total = sum(getattr(self.by, name) * score for name, score in self.scores(row, request).items())
        return total, self.free(self.fleet[row], request.is_prod)[0] - request.cpu_mcpu, -row

    def forgiven(self, machine: Machine, request: RequestClass) -> int:
        penalty, last_ms = 0, 0
        for ago_ms, is_prod in sorted(machine.evicted, reverse=True):
            if is_prod is request.is_prod and kind_like(request):
                penalty = min(100_000, decayed(penalty, (NOW_MS - ago_ms) - last_ms, 60_000) + 50_000)
                last_ms = NOW_MS - ago_ms
        return 100 - -(-decayed(penalty, NOW_MS - last_ms, 60_000) // 1_000) if NOW_MS - last_ms < 600_000 else 100

    def fitting(self, request: RequestClass) -> list[int]:
        """Who can take it, the best first."""
        rows = [row for row, machine in enumerate(self.fleet) if self.refusal(machine, request) is None]
        return sorted(rows, key=lambda row: self.key(row, request), reverse=True)

    def best(self, request: RequestClass) -> int | None:
        return next(iter(self.fitting(request)), None)


def kind_like(request: RequestClass) -> bool:
    """Whether what was evicted is alike: see `cluster_of`."""
    return (request.cpu_mcpu, request.memory_bytes) == (1_000, GIB)


def load_of(machine: Machine) -> LoadSummary:
    prod, rest = machine.prod or (0, 0), machine.rest
    used = [WHOLE[i] * prod[i] // 200 + WHOLE[i] * rest[i] // 200 for i in range(2)]
    window = LoadWindow(
        window_ms=300_000,
        cpu_avg_mcpu=WHOLE[0] * machine.average[0] // 100,
        memory_avg_bytes=WHOLE[1] * machine.average[1] // 100,
        cpu_p95_mcpu=WHOLE[0] * machine.average[1] // 100,
        memory_p95_bytes=WHOLE[1] * machine.average[0] // 100,
        cpu_p50_mcpu=WHOLE[0] * machine.average[0] // 200,
        memory_p50_bytes=WHOLE[1] * machine.average[0] // 300,
        cpu_p90_mcpu=WHOLE[0] * machine.average[1] // 110,
        memory_p90_bytes=WHOLE[1] * machine.average[0] // 110,
        cpu_p99_mcpu=WHOLE[0] * machine.average[1] // 90,
        memory_p99_bytes=WHOLE[1] * machine.average[1] // 95,
    )
    peak = LoadPeak(
        window_ms=3_600_000, cpu_mcpu=WHOLE[0] * rest[0] // 100, memory_bytes=WHOLE[1] * machine.average[1] // 100
    )
    return LoadSummary(
        interval_ms=1_000,
        cpu_used_mcpu=used[0],
        memory_used_bytes=used[1],
        prod_cpu_used_mcpu=WHOLE[0] * prod[0] // 200,
        prod_memory_used_bytes=WHOLE[1] * prod[1] // 200,
        system_cpu_used_mcpu=WHOLE[0] * rest[0] // 400,
        system_memory_used_bytes=WHOLE[1] * rest[1] // 400,
        windows=(structs.replace(window, window_ms=60_000, cpu_avg_mcpu=0), window),
        peaks=(peak,),
    )


def cluster_of(fleet: list[Machine], by: ScorerWeights, rule: LoadRules, dynamic: DynamicRules) -> Cluster:
    signals = NodeSignals(
        SignalRules(
            evictions=EvictionPenaltyPolicy(),
            load=rule,
            dynamic=dynamic,
            follows_batch=by.load_aware > 0,
            follows_dynamic=by.dynamic_load > 0,
        )
    )
    cluster = Cluster(signals=signals)
    topology = a_topology(zones_per_socket=1, cpus=CPUS, memory_gib=CPUS)
    for number, machine in enumerate(fleet):
        name = f"n{number:02}"
        cluster.on_topology(structs.replace(a_node(name, topology, is_online=True), taints=SOFT[: machine.taints]))
        fact = an_allocatable(name, [WHOLE], at_ms=NOW_MS - machine.age_ms)
        cluster.on_allocatable(structs.replace(fact, load=load_of(machine) if machine.prod is not None else None))
        for index, (ago_ms, job, cpus, gib) in enumerate(machine.held):
            share = ZoneShare(zone=0, cpu_mcpu=cpus * 1_000, memory_bytes=gib * GIB)
            cluster.hold(cluster.node(name), (f"{job}/held/{number}.{index}", 1), (share,), at_ms=NOW_MS - ago_ms)
        for ago_ms, is_prod in sorted(machine.evicted, reverse=True):
            band, qos = (PriorityBand.PROD, QosClass.LS) if is_prod else (PriorityBand.BATCH, QosClass.BE)
            signals.evicted(kind_of(band, qos, 1_000, GIB), number, NOW_MS - ago_ms)
    return cluster


fleets = st.lists(machines, min_size=1, max_size=6) | st.tuples(machines, st.integers(2, 12)).map(
    lambda pair: [Machine(**{**vars(pair[0]), "more": []}) for _ in range(pair[1])]
)


@examples(1.5)
@given(fleets, st.lists(st.tuples(requests, st.integers(0, 8)), max_size=3), weights, rules, dynamics)
def test_each_replica_goes_where_judging_all_nodes_afresh_would_send_it(
    fleet: list[Machine],
    turns: list[tuple[RequestClass, int]],
    by: ScorerWeights,
    rule: LoadRules,
    dynamic: DynamicRules,
) -> None:
    fleet = [Machine(**{**vars(machine), "more": []}) for machine in fleet]
    cluster, twin = cluster_of(fleet, by, rule, dynamic), Twin(fleet, by, rule, dynamic)
    number = 0
    for request, count in turns:
        view = cluster.view(NOW_MS)
        expected = [reason for machine in fleet if (reason := twin.refusal(machine, request)) is not None]
        counts = {each.reason: each.nodes for each in judge(view, request).counts}
        assert counts == {reason: expected.count(reason) for reason in expected}
        candidates = Candidates(view, request, scoring_for(view, request, scoring_of(by)))
        candidates.check()
        assert candidates.counts == judge(view, request).counts
        decision = decide_class(view, request, count, scoring_of(by))
        job = request.job or "other"
        for choice in decision.choices:
            assert choice.row == twin.best(request)
            fleet[choice.row].more.append((request.is_prod, job, request.cpu_mcpu, request.memory_bytes))
        if len(decision.choices) < count:
            assert twin.best(request) is None
        for choice in decision.choices:
            number += 1
            attempt = (f"{job}/main/{number}", 1)
            cluster.hold(cluster.nodes[choice.row], attempt, choice.shares, pool_of(request.band), at_ms=NOW_MS)
        cluster.check()


@given(fleets, requests, st.integers(1, 8), weights, rules, dynamics)
def test_what_is_told_of_each_replica_is_what_judging_all_nodes_at_its_own_moment_gives(
    fleet: list[Machine], request: RequestClass, count: int, by: ScorerWeights, rule: LoadRules, dynamic: DynamicRules
) -> None:
    fleet = [Machine(**{**vars(machine), "more": []}) for machine in fleet]
    cluster, twin = cluster_of(fleet, by, rule, dynamic), Twin(fleet, by, rule, dynamic)
    view = cluster.view(NOW_MS)
    scoring = scoring_for(view, request, scoring_of(by))
    decision = decide_class(view, request, count, scoring_of(by), best_rows=4)
    for number, choice in enumerate(decision.choices):
        # What is placed, evicted and reported later changes nothing that was decided.
        attempt = (f"{request.job or 'other'}/main/{number}", 1)
        cluster.hold(cluster.nodes[choice.row], attempt, choice.shares, pool_of(request.band), at_ms=NOW_MS)
        cluster.signals.evicted(kind_of(request.band, request.qos, 1_000, GIB), choice.row, NOW_MS)
        fact = an_allocatable(f"n{choice.row:02}", [WHOLE], at_ms=NOW_MS + 1)
        idle = structs.replace(load_of(fleet[choice.row]), cpu_used_mcpu=0, prod_cpu_used_mcpu=0)
        cluster.on_allocatable(structs.replace(fact, load=idle))
    snapshots = list(decision.matrix.snapshots()) if decision.matrix is not None else []
    for choice, moment in zip(decision.choices, snapshots, strict=True):
        fitting = twin.fitting(request)
        assert moment.fitting == len(fitting)
        refused = [reason for machine in fleet if (reason := twin.refusal(machine, request)) is not None]
        assert {each.reason: each.nodes for each in moment.counts} == {name: refused.count(name) for name in refused}
        assert [each.node for each in moment.scores] == [f"n{row:02}" for row in fitting[: len(moment.scores)]]
        assert moment.scores
        assert moment is not snapshots[0] or len(moment.scores) == min(4, len(fitting))
        for each, row in zip(moment.scores, fitting, strict=False):
            own = {name: twin.scores(row, request)[name.replace("-", "_")] for name in scoring.names}
            assert each.scores == own
            weighed = sum(getattr(by, name.replace("-", "_")) * score for name, score in own.items())
            assert each.total == (weighed // scoring.total if scoring.total else 0)
        assert choice.row == fitting[0]
        fleet[choice.row].more.append((request.is_prod, request.job or "other", request.cpu_mcpu, request.memory_bytes))


@examples(0.4)
@given(fleets, st.lists(st.tuples(requests, st.integers(1, 5)), max_size=3), weights, rules, dynamics)
def test_a_trial_decides_the_same_and_leaves_no_trace(
    fleet: list[Machine],
    turns: list[tuple[RequestClass, int]],
    by: ScorerWeights,
    rule: LoadRules,
    dynamic: DynamicRules,
) -> None:
    fleet = [Machine(**{**vars(machine), "more": []}) for machine in fleet]
    cluster, twin = cluster_of(fleet, by, rule, dynamic), Twin(fleet, by, rule, dynamic)
    before = [cluster.signals.loads.scores(request, len(fleet), NOW_MS).tolist() for request, _ in turns]
    trial = cluster.trial(NOW_MS)
    for number, (request, count) in enumerate(turns):
        job = request.job or "other"
        for index, choice in enumerate(decide_class(trial, request, count, scoring_of(by)).choices):
            assert choice.row == twin.best(request)
            fleet[choice.row].more.append((request.is_prod, job, request.cpu_mcpu, request.memory_bytes))
            trial.take(pool_of(request.band), choice.row, choice.shares, (f"{job}/main/{number}.{index}", 0))
    assert before == [cluster.signals.loads.scores(request, len(fleet), NOW_MS).tolist() for request, _ in turns]
    cluster.check()
    assert not any(node.holds for node in cluster.nodes if not fleet[node.row].held)
    assert PoolName.BATCH in cluster.signals.follows


tight = st.tuples(st.integers(0, 300), st.integers(0, 300))


@examples(1.5)
@given(st.tuples(st.integers(1, 200), st.integers(1, 200)), tight, tight, st.integers(0, 100), st.booleans())
def test_a_node_has_room_for_as_many_as_the_filter_lets_in_one_after_the_other(
    capacity: tuple[int, int], used: tuple[int, int], step: tuple[int, int], limit: int, is_prod: bool
) -> None:
    policy = LoadRules(cpu_pct=limit, memory_pct=limit // 2, prod_cpu_pct=limit // 3, prod_memory_pct=limit).policy()
    table, band = LoadTable(policy, 1), PriorityBand.PROD if is_prod else PriorityBand.BATCH
    load = NodeLoad(updated_at_ms=NOW_MS, usage={"cpu": used[0], "memory": used[1]})
    estimate_row = table.row_of({"cpu": step[0], "memory": step[1]})
    sums = Sums({}, {}, {"cpu": used[0], "memory": used[1]})
    table.write_sums(0, load, sums, {"cpu": capacity[0], "memory": capacity[1]})
    room = newcomers_in_row(table.rows(1), 0, estimate_row, band, policy, NOW_MS, 5)
    for number in range(5):
        is_let_in = bool(loads_passing(table.rows(1), estimate_row, band, policy, NOW_MS)[0])
        assert is_let_in is (number < room)
        table.place_estimate(0, estimate_row, is_prod=True)
