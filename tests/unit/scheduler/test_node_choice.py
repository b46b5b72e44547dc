"""Each scorer and each filter of load, asked for by policy, changes where work goes; left at its default it does not."""

from __future__ import annotations

import pytest
from msgspec import structs

from colo_common.events.effects import Publish, Reply, RequestReceived
from colo_common.events.enforcement import ReplicaEnded
from colo_common.events.job import PlacementRequest, PlacementsRequested
from colo_common.events.node import LoadPeak, LoadSummary, LoadWindow
from colo_common.events.placement import PlacementRejected
from colo_common.events.policy import PolicyChanged
from colo_common.events.requests import ExplainPlacement, PlacementsExplained
from colo_common.model.colocation_policy import ColocationPolicy, PolicyOverride, PolicyValues
from colo_common.model.colocation_rules import ColocationRule
from colo_common.model.constraints import Constraints, DeviceRequest, Taint
from colo_common.model.node_rules import UNRULED, NodeRules
from colo_common.model.node_selector import Operator, Requirement, Selector
from colo_common.model.qos import QosClass
from colo_common.model.reasons import EndCause, Reason
from colo_scheduler.load.dynamic_rules import METRICS, DynamicRules
from colo_scheduler.load.rules import LoadRules
from colo_scheduler.policy import SchedulerPolicy, Scorer, ScorerWeights, check_policy
from tests.support.builders import GIB, a_node, a_topology
from tests.support.scheduler_story import Bench, a_placement_request, an_allocatable, gpus
from tests.unit.scheduler.test_signals import a_bench, a_load, delivered, online, place

CPUS = 16_000
MEMORY = 64 * GIB


def used(
    now_pct: int = 0,
    *,
    avg: int = 0,
    p50: int = 0,
    p90: int = 0,
    p95: int = 0,
    p99: int = 0,
    hour: int = 0,
    day: int = 0,
) -> LoadSummary:
    """A node of 16 CPUs and 64 GiB that uses so many percent of both: now, over five minutes, and at its peaks."""
    window = LoadWindow(
        window_ms=300_000,
        cpu_avg_mcpu=CPUS * avg // 100,
        memory_avg_bytes=MEMORY * avg // 100,
        cpu_p50_mcpu=CPUS * p50 // 100,
        memory_p50_bytes=MEMORY * p50 // 100,
        cpu_p90_mcpu=CPUS * p90 // 100,
        memory_p90_bytes=MEMORY * p90 // 100,
        cpu_p95_mcpu=CPUS * p95 // 100,
        memory_p95_bytes=MEMORY * p95 // 100,
        cpu_p99_mcpu=CPUS * p99 // 100,
        memory_p99_bytes=MEMORY * p99 // 100,
    )
    peaks = tuple(
        LoadPeak(window_ms=hours * 3_600_000, cpu_mcpu=CPUS * pct // 100, memory_bytes=MEMORY * pct // 100)
        for hours, pct in ((1, hour), (24, day))
    )
    load = a_load(CPUS * now_pct // 100)
    return structs.replace(load, memory_used_bytes=MEMORY * now_pct // 100, windows=(window,), peaks=peaks)


def only(**weights: int) -> ScorerWeights:
    """No scorer but these."""
    none = {scorer.value.replace("-", "_"): 0 for scorer in Scorer}
    return ScorerWeights(**{**none, **weights})


def rejection(bench: Bench, replica: str = "job/main/0") -> PlacementRejected:
    reported = bench.say(PlacementsRequested(placement_requests=(a_placement_request(replica),)))
    (fact,) = [each.fact for each in reported if isinstance(each, Publish) and isinstance(each.fact, PlacementRejected)]
    return fact


def scores_of(bench: Bench, replica: str) -> dict[str, dict[str, int]]:
    """The score matrix of a placement as it is explained: node, scorer, score."""
    effects = bench.say(
        RequestReceived(request="r", body=ExplainPlacement(job=replica.split("/", maxsplit=1)[0], replica=replica))
    )
    (answer,) = [each.body for each in effects if isinstance(each, Reply)]
    assert isinstance(answer, PlacementsExplained)
    return {row.node: dict(row.scores) for row in answer.decisions[0].scores}


# ---- every scorer


# They say something only of work that asks for it: for spreading, for devices, or where a node has a taint or has just evicted.
ON_REQUEST = {
    Scorer.SPREAD,
    Scorer.RECENT_EVICTION,
    Scorer.SOFT_TAINTS,
    Scorer.DEVICES_LEAST_ALLOCATED,
    Scorer.DEVICES_MOST_ALLOCATED,
}


@pytest.mark.parametrize("scorer", Scorer)
def test_every_scorer_may_be_the_only_one_that_counts(scorer: Scorer) -> None:
    policy = SchedulerPolicy(weights=only(**{scorer.value.replace("-", "_"): 1}))
    check_policy(policy)
    bench = a_bench({"a": used()}, policy)
    assert place(bench, a_placement_request()) == ["a"]
    assert set(scores_of(bench, "job/main/0")["a"]) == {scorer.value} - ON_REQUEST


ONE_GPU = (DeviceRequest(kind="gpu", count=1),)
NEWCOMER = a_placement_request(
    "job/main/9", mcpu=2_000, memory_bytes=GIB, constraints=Constraints(spread=True, devices=ONE_GPU)
)
GUESTS = {
    "CPU alone": a_placement_request("job/main/0", mcpu=4_000, memory_bytes=1),
    "memory alone": a_placement_request("job/main/0", mcpu=1, memory_bytes=8 * GIB),
    "a GPU": a_placement_request("job/main/0", mcpu=1, memory_bytes=1, constraints=Constraints(devices=ONE_GPU)),
}


def score_sibling(scorer: Scorer, *guests: PlacementRequest) -> int:
    """The score by which the newcomer is placed on a node that holds these."""
    bench = Bench(SchedulerPolicy(weights=only(**{scorer.value.replace("-", "_"): 1})))
    topology = structs.replace(a_topology(zones_per_socket=1), devices=gpus(4, 1))
    taint = Taint(key="old", effect="PreferNoSchedule")
    bench.tell(a_node("a", topology, is_online=True, taints=(taint,)))
    bench.tell(delivered("a", used(10, avg=10)))
    for placement_request in (*guests, NEWCOMER):
        assert place(bench, placement_request) == ["a"]
    # No scorer of evictions speaks of a node on which there was none.
    return scores_of(bench, NEWCOMER.replica)["a"].get(scorer.value, 0)


@pytest.mark.parametrize("scorer", Scorer)
def test_a_node_that_fills_up_becomes_better_only_by_scorers_that_may_rise(scorer: Scorer) -> None:
    alone = score_sibling(scorer)
    rises = [name for name, guest in GUESTS.items() if score_sibling(scorer, guest) > alone]
    assert bool(rises) is only(**{scorer.value.replace("-", "_"): 1}).may_rise, rises


# ---- averages, maxima and arrivals


@pytest.mark.parametrize(("calm", "busy"), [(used(), used(avg=60)), (used(), used(hour=60)), (used(), used(day=60))])
def test_a_weight_of_dynamic_load_sends_work_where_less_was_used(calm: LoadSummary, busy: LoadSummary) -> None:
    loads: dict[str, LoadSummary | None] = {"a": busy, "b": calm}
    assert place(a_bench(loads), a_placement_request()) == ["a"], "by default nobody looks"
    bench = a_bench(loads, SchedulerPolicy(weights=ScorerWeights(dynamic_load=1)))
    assert place(bench, a_placement_request()) == ["b"]
    scores = scores_of(bench, "job/main/0")
    assert scores["b"]["dynamic-load"] == 100
    assert scores["a"]["dynamic-load"] < 100


def test_the_score_weighs_each_metric_as_the_policy_says() -> None:
    # Of CPU and memory alike: 1 - (0.2 x 40 % + 0.3 x 60 % + 0.5 x 80 %) = 34 %.
    bench = a_bench({"a": used(avg=40, hour=60, day=80)}, SchedulerPolicy(weights=only(dynamic_load=1)))
    place(bench, a_placement_request())
    assert scores_of(bench, "job/main/0") == {"a": {"dynamic-load": 34}}
    day = DynamicRules(weights={"cpu_usage_max_avg_1d": 1})
    bench = a_bench({"a": used(avg=40, hour=60, day=80)}, SchedulerPolicy(weights=only(dynamic_load=1), dynamic=day))
    place(bench, a_placement_request())
    assert scores_of(bench, "job/main/0") == {"a": {"dynamic-load": 19}}


def test_arrivals_of_late_keep_the_next_ones_away_until_they_are_old() -> None:
    # b is 4 points behind; every second arrival within a minute costs ten, every fifth within five minutes ten more.
    policy = SchedulerPolicy(weights=only(dynamic_load=1))
    bench = a_bench({"a": used(), "b": used(avg=20)}, policy)
    placement_requests = [a_placement_request(f"job/main/{n}", memory_bytes=1) for n in range(8)]
    assert place(bench, *placement_requests) == ["a", "a", "b", "b", "a", "a", "b", "b"]
    # The ninth sees four arrivals on each: two degrees of a minute's heat.
    place(bench, a_placement_request("job/main/8", memory_bytes=1))
    assert scores_of(bench, "job/main/8") == {"a": {"dynamic-load": 80}, "b": {"dynamic-load": 76}}
    bench.now_ms = 61_000
    for name, load in (("a", used()), ("b", used(avg=20))):
        bench.say(delivered(name, load, at_ms=61_000))
    place(bench, a_placement_request("job/main/9", memory_bytes=1))
    # After a minute five within five minutes are on a, and four on b.
    assert scores_of(bench, "job/main/9") == {"a": {"dynamic-load": 90}, "b": {"dynamic-load": 96}}


def test_what_was_said_of_one_by_one_is_what_is_decided_together() -> None:
    policy = SchedulerPolicy(weights=only(dynamic_load=3, most_free=1))
    loads: dict[str, LoadSummary | None] = {"a": used(), "b": used(avg=11), "c": used(hour=23)}
    placement_requests = [a_placement_request(f"job/main/{n:02}", memory_bytes=1) for n in range(30)]
    together = place(a_bench(loads, policy), *placement_requests)
    bench = a_bench(loads, policy)
    assert [place(bench, placement_request)[0] for placement_request in placement_requests] == together


def test_who_left_again_has_not_heated_the_node() -> None:
    bench = a_bench({"a": used(), "b": used(avg=20)}, SchedulerPolicy(weights=only(dynamic_load=1)))
    assert place(bench, a_placement_request("job/main/0"), a_placement_request("job/main/1")) == ["a", "a"]
    ended = {"at_ms": 0, "node": "a", "replica": "job/main/0", "job": "job", "attempt": 1, "exit_code": 0}
    bench.say(ReplicaEnded(**ended, cause=EndCause.EXITED))
    assert place(bench, a_placement_request("job/main/2")) == ["a"]


@pytest.mark.parametrize("name", METRICS)
def test_a_limit_of_a_metric_refuses_nodes_above_it_and_only_them(name: str) -> None:
    field = {"5m": "avg", "1h": "hour", "1d": "day"}[name.rpartition("_")[2]]
    loads: dict[str, LoadSummary | None] = {"at": used(**{field: 65}), "over": used(**{field: 66})}
    assert place(a_bench({"over": loads["over"]}), a_placement_request()) == ["over"]
    bench = a_bench(loads, SchedulerPolicy(dynamic=DynamicRules(limits_pct={name: 65})))
    # Above the limit by name of node and by room there is nothing else that tells them apart.
    assert place(bench, *[a_placement_request(f"job/main/{n}", mcpu=4_000) for n in range(4)]) == ["at"] * 4
    fact = rejection(a_bench({"over": loads["over"]}, SchedulerPolicy(dynamic=DynamicRules(limits_pct={name: 65}))))
    assert [(each.reason, each.nodes) for each in fact.counts] == [(Reason.LOAD_OVER_THRESHOLD, 1)]


def test_a_limit_holds_for_online_work_too_and_goes_with_what_it_is_judged_by() -> None:
    limits = SchedulerPolicy(dynamic=DynamicRules(limits_pct={"cpu_usage_avg_5m": 65}))
    assert place(a_bench({"n": used(avg=70)}, limits), online("web/main/0")) == ["-"]
    busy = structs.replace(used(avg=10), prod_cpu_used_mcpu=CPUS)
    assert place(a_bench({"n": busy}, limits), online("web/main/0")) == ["-"]
    assert place(a_bench({"n": used(avg=10)}, limits), online("web/main/0")) == ["n"]


def test_an_old_metric_refuses_nobody() -> None:
    policy = SchedulerPolicy(dynamic=DynamicRules(limits_pct={"cpu_usage_avg_5m": 65}), facts_max_age_ms=0)
    bench = a_bench({"n": used(avg=70)}, policy)
    bench.now_ms = 8 * 60_000 - 1
    assert place(bench, a_placement_request("job/main/0")) == ["-"]
    bench.now_ms = 8 * 60_000
    assert place(bench, a_placement_request("job/main/1")) == ["n"]


# ---- load, by percentiles


@pytest.mark.parametrize("usage", ["newest", "avg", "p50", "p90", "p95", "p99"])
def test_thresholds_are_compared_with_the_usage_that_the_policy_names(usage: str) -> None:
    high = used(90) if usage == "newest" else used(**{usage: 90})
    rules = LoadRules(cpu_pct=65, usage=usage)  # type: ignore[arg-type]
    assert place(a_bench({"n": high}, SchedulerPolicy(load=rules)), a_placement_request()) == ["-"]
    assert place(a_bench({"n": used()}, SchedulerPolicy(load=rules)), a_placement_request()) == ["n"]
    others = {"avg": 90, "p50": 90, "p90": 90, "p95": 90, "p99": 90}
    others.pop(usage, None)
    low = used(0 if usage == "newest" else 90, **others)
    assert place(a_bench({"n": low}, SchedulerPolicy(load=rules)), a_placement_request()) == ["n"]


@pytest.mark.parametrize("usage", ["newest", "avg", "p50", "p90", "p95", "p99"])
def test_work_is_scored_by_the_usage_that_the_policy_names(usage: str) -> None:
    high = used(90) if usage == "newest" else used(**{usage: 90})
    rules = LoadRules(score_usage=usage, score_window_ms=0)  # type: ignore[arg-type]
    policy = SchedulerPolicy(load=rules, weights=only(load_aware=1))
    assert place(
        a_bench({"a": high, "b": used(10, avg=10, p50=10, p90=10, p95=10, p99=10)}, policy), a_placement_request()
    ) == ["b"]


def test_what_is_scored_need_not_be_what_is_judged() -> None:
    rules = LoadRules(cpu_pct=65, usage="p95", score_usage="avg")
    policy = SchedulerPolicy(load=rules, weights=only(load_aware=1))
    loads: dict[str, LoadSummary | None] = {
        "a": used(p95=60, avg=50),
        "b": used(p95=70, avg=1),
        "c": used(p95=20, avg=60),
    }
    assert place(a_bench(loads, policy), a_placement_request()) == ["a"]


def test_a_window_that_no_node_reports_says_nothing() -> None:
    without = structs.replace(used(90), windows=())
    rules = LoadRules(cpu_pct=65, usage="p95", window_ms=60_000)
    assert place(a_bench({"n": without}, SchedulerPolicy(load=rules)), a_placement_request()) == ["n"]
    assert place(
        a_bench({"n": without}, SchedulerPolicy(load=structs.replace(rules, window_ms=0))), a_placement_request()
    ) == ["-"]


def test_the_load_score_weighs_resources_as_the_policy_says() -> None:
    cpu, memory = structs.replace(used(), cpu_used_mcpu=8_000), structs.replace(used(), memory_used_bytes=20 * GIB)
    for weights, best in ((LoadRules(), "b"), (LoadRules(cpu_weight=1, memory_weight=9), "a")):
        policy = SchedulerPolicy(load=weights, weights=only(load_aware=1))
        assert place(a_bench({"a": cpu, "b": memory}, policy), a_placement_request()) == [best]
    # CPU is the scarcest on a, by less than memory is on b.
    a, b = used(30), structs.replace(used(), memory_used_bytes=MEMORY // 2)
    for weights, best in ((LoadRules(), "b"), (LoadRules(scarcest_weight=9), "a")):
        assert place(
            a_bench({"a": a, "b": b}, SchedulerPolicy(load=weights, weights=only(load_aware=1))), a_placement_request()
        ) == [best]


@pytest.mark.parametrize(("factor", "nodes"), [(85, ["n", "n", "-"]), (200, ["n", "-", "-"])])
def test_newcomers_count_with_the_part_of_their_request_that_the_policy_says(factor: int, nodes: list[str]) -> None:
    rules = LoadRules(cpu_pct=65, cpu_factor_pct=factor)
    placement_requests = [a_placement_request(f"job/main/{n}", mcpu=2_000) for n in range(3)]
    assert place(a_bench({"n": a_load(6_400)}, SchedulerPolicy(load=rules)), *placement_requests) == nodes


# ---- labels

KINDS = {
    "bare": {},
    "films": {"disk": "hdd", "team": "films", "cores": "64"},
    "spot": {"disk": "nvme", "spot": "", "cores": "8"},
    "ssd": {"disk": "ssd", "cores": "16"},
}


@pytest.mark.parametrize(
    ("requirements", "nodes"),
    [
        ([Requirement(key="disk", operator=Operator.IN, values=("ssd", "nvme"))], ["spot", "ssd"]),
        ([Requirement(key="disk", operator=Operator.NOT_IN, values=("ssd", "nvme"))], ["bare", "films"]),
        ([Requirement(key="spot", operator=Operator.EXISTS)], ["spot"]),
        ([Requirement(key="spot", operator=Operator.DOES_NOT_EXIST)], ["bare", "films", "ssd"]),
        ([Requirement(key="cores", operator=Operator.GT, values=("8",))], ["films", "ssd"]),
        ([Requirement(key="cores", operator=Operator.LT, values=("16",))], ["spot"]),
        (
            [
                Requirement(key="cores", operator=Operator.GT, values=("8",)),
                Requirement(key="team", operator=Operator.NOT_IN, values=("films",)),
            ],
            ["ssd"],
        ),
        ([Requirement(key="rack", operator=Operator.EXISTS)], []),
    ],
)
def test_work_goes_only_where_the_labels_meet_all_that_it_demands(
    requirements: list[Requirement], nodes: list[str]
) -> None:
    bench = Bench(SchedulerPolicy(weights=only(least_allocated=1)))
    for name, labels in KINDS.items():
        bench.tell(a_node(name, a_topology(zones_per_socket=1), labels=labels))
        bench.tell(an_allocatable(name, [(CPUS, MEMORY)]))
    demands = Constraints(node_requirements=tuple(requirements))
    placement_requests = [a_placement_request(f"job/main/{n}", mcpu=9_000, constraints=demands) for n in range(5)]
    assert sorted(set(place(bench, *placement_requests)) - {"-"}) == nodes
    # A label that a node gets later counts from then on.
    bench.now_ms = 1
    late = {**KINDS["films"], "disk": "ssd", "spot": "", "rack": "r1", "team": "x", "cores": "9"}
    bench.say(a_node("films", a_topology(zones_per_socket=1), labels=late, at_ms=1))
    assert {node.name: dict(node.reported.labels) for node in bench.core.cluster.nodes if node.reported}[
        "films"
    ] == late
    again = Constraints(node_requirements=(Requirement(key="rack", operator=Operator.EXISTS),))
    assert place(bench, a_placement_request("late/main/0", mcpu=1_000, constraints=again)) == ["films"]


# ---- what a node is

MIXED = Selector(labels={"pool": "mixed"})
LABELS = {"a": {"pool": "mixed"}, "b": {"pool": "online"}, "c": {}}


def labelled(policy: SchedulerPolicy, rules: NodeRules = UNRULED) -> Bench:
    bench = Bench(policy)
    for name, labels in LABELS.items():
        bench.tell(a_node(name, a_topology(zones_per_socket=1), labels=labels, rules=rules, is_online=True))
        bench.tell(an_allocatable(name, [(CPUS, MEMORY)]))
    return bench


@pytest.mark.parametrize(
    ("rules", "nodes"),
    [
        ((), ["a", "b", "c"]),
        ((ColocationRule(is_colocated=False), ColocationRule(selector=MIXED)), ["a"]),
        ((ColocationRule(selector=MIXED, is_colocated=False),), ["b", "c"]),
        ((ColocationRule(selector=MIXED, batch_replicas_most=0),), ["b", "c"]),
    ],
)
def test_the_cluster_s_rules_say_by_label_which_nodes_take_batch_work(
    rules: tuple[ColocationRule, ...], nodes: list[str]
) -> None:
    bench = labelled(SchedulerPolicy(colocation=rules, weights=only(least_allocated=1)))
    assert sorted(set(place(bench, *[a_placement_request(f"job/main/{n}") for n in range(6)]))) == nodes
    assert place(bench, *[online(f"web/main/{n}", 12_000) for n in range(3)]) == ["a", "b", "c"], "not so online work"


def test_the_cluster_s_rules_say_by_label_how_many_batch_replicas_a_node_takes() -> None:
    rules = (ColocationRule(batch_replicas_most=1), ColocationRule(selector=MIXED, batch_replicas_most=2))
    bench = labelled(SchedulerPolicy(colocation=rules))
    assert sorted(place(bench, *[a_placement_request(f"job/main/{n}") for n in range(5)])) == ["-", "a", "a", "b", "c"]
    fact = rejection(labelled(SchedulerPolicy(colocation=(ColocationRule(batch_replicas_most=0),))))
    assert [(each.reason, each.nodes) for each in fact.counts] == [(Reason.BATCH_REPLICAS_MOST, 3)]
    own = labelled(
        SchedulerPolicy(colocation=(ColocationRule(batch_replicas_most=2),)), NodeRules(batch_replicas_most=1)
    )
    assert sorted(place(own, *[a_placement_request(f"job/main/{n}") for n in range(4)])) == ["-", "a", "b", "c"]


def test_a_policy_that_is_applied_later_counts_at_once_and_ends_with_the_next_one() -> None:
    rules = (ColocationRule(batch_replicas_most=3),)
    bench = labelled(SchedulerPolicy(colocation=rules, weights=only(least_allocated=1)))
    closed = PolicyOverride(selector=MIXED, values=PolicyValues(enabled=False))
    document = ColocationPolicy(defaults=PolicyValues(batch_replicas_most=1), overrides=(closed,))
    bench.tell(PolicyChanged(revision=2, policy=document))
    assert sorted(place(bench, *[a_placement_request(f"job/main/{n}") for n in range(3)])) == ["-", "b", "c"]
    # An older revision changes nothing; without a document the settings count again.
    bench.tell(PolicyChanged(revision=1, policy=ColocationPolicy()))
    assert place(bench, a_placement_request("more/main/0")) == ["-"]
    bench.tell(PolicyChanged(revision=3, policy=ColocationPolicy()))
    assert "-" not in place(bench, *[a_placement_request(f"late/main/{n}") for n in range(3)])


@pytest.mark.parametrize(("age_ms", "node"), [(60_000, "-"), (0, "a")])
def test_facts_older_than_the_policy_says_take_nothing(age_ms: int, node: str) -> None:
    bench = labelled(SchedulerPolicy(facts_max_age_ms=age_ms))
    bench.now_ms = 60_001
    assert place(bench, a_placement_request()) == [node]


@pytest.mark.parametrize(
    ("rules", "fits", "cpus"),
    [
        (NodeRules(), 16, "0-15"),
        (NodeRules(reserved_mcpu=3_500), 12, "4-15"),
        (NodeRules(reserved_cpus="12-15"), 12, "0-11"),
        (NodeRules(reserved_cpus="12-15", reserved_mcpu=9_000), 12, "0-11"),
        (NodeRules(kubelet_reserved_cpus="0", system_cpus="1"), 14, "2-15"),
    ],
)
def test_what_a_node_keeps_for_itself_by_quantity_or_by_list_is_given_to_nobody(
    rules: NodeRules, fits: int, cpus: str
) -> None:
    def placement_request(cpus: int) -> PlacementRequest:
        return structs.replace(online("web/main/0", cpus * 1_000), qos=QosClass.LSR)

    def bench() -> Bench:
        bench = Bench()
        bench.tell(a_node("n", a_topology(zones_per_socket=1), rules=rules, is_online=True))
        bench.tell(an_allocatable("n", [(CPUS, MEMORY)]))
        return bench

    assert place(bench(), placement_request(fits + 1)) == ["-"]
    taken = bench()
    assert place(taken, placement_request(fits)) == ["n"]
    (placement,) = [held.placement for held in taken.core.commits.held.values()]
    assert placement.cpus == cpus


# ---- what is free


def unequal(policy: SchedulerPolicy) -> Bench:
    """`cpu` has CPU left and little memory, `mem` the other way round, `both` is more than half empty, `none` is nearly full."""
    bench = Bench(policy)
    left = {"both": (9_000, 36), "cpu": (14_000, 8), "mem": (3_000, 52), "none": (2_000, 6)}
    for name, (mcpu, gib) in left.items():
        bench.tell(a_node(name, a_topology(zones_per_socket=1)))
        bench.tell(an_allocatable(name, [(CPUS, MEMORY)]))
        held = a_placement_request(
            f"held/{name}/0", mcpu=CPUS - mcpu, memory_bytes=MEMORY - gib * GIB, avoid=others_of(name, left)
        )
        assert place(bench, held) == [name]
    return bench


def others_of(name: str, names: dict[str, tuple[int, int]]) -> tuple[tuple[str, int], ...]:
    return tuple((other, 1_000) for other in sorted(names) if other != name)


@pytest.mark.parametrize(
    ("weights", "node"),
    [
        (only(most_free=1), "both"),
        (only(least_allocated=1), "both"),
        (only(least_allocated=1, resource_cpu=9), "cpu"),
        (only(least_allocated=1, resource_memory=9), "mem"),
        (only(most_allocated=1), "none"),
        (only(balanced_allocation=1), "none"),
        (only(binpack=1), "none"),
        (only(binpack=1, resource_cpu=9), "none"),
    ],
)
def test_each_scorer_of_what_is_free_has_its_own_favourite(weights: ScorerWeights, node: str) -> None:
    bench = unequal(SchedulerPolicy(weights=weights))
    assert place(bench, a_placement_request("job/main/0")) == [node]
    (scorer, _), *_ = weights.active
    assert set(scores_of(bench, "job/main/0")[node]) == {scorer.value}


def test_binpack_weighs_resources_as_the_policy_says() -> None:
    # Without the fullest node: `cpu` is full of memory, `mem` of CPU.
    for resource, node in (("resource_cpu", "mem"), ("resource_memory", "cpu")):
        bench = unequal(SchedulerPolicy(weights=only(binpack=1, **{resource: 9})))
        assert place(bench, a_placement_request("job/main/0", avoid=(("none", 1_000),))) == [node]
