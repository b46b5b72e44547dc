"""What the scheduler hears of nodes beside what is free there, and what it makes of it: load, evictions, taints, job-mates."""

import pytest
from msgspec import structs

from colo_common.events.effects import Publish, Reply, RequestReceived
from colo_common.events.enforcement import ReplicaEnded
from colo_common.events.job import PlacementRequest, PlacementsRequested
from colo_common.events.node import AllocatableChanged, LoadSummary
from colo_common.events.placement import PlacementRejected, PlacementsDecided
from colo_common.events.requests import JobPlanned, PlanJob
from colo_common.model.constraints import Constraints, Taint
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.workload import JobSpec, ResourceRequest, TaskSpec
from colo_scheduler.cluster.signals import kind_of
from colo_scheduler.policy import SchedulerPolicy, ScorerWeights
from tests.support.builders import GIB, a_node, a_topology
from tests.support.scheduler_story import COMMAND, Bench, a_placement_request, an_allocatable

WHOLE = (16_000, 64 * GIB)


def a_load(mcpu: int, *, prod_mcpu: int = 0, system_mcpu: int = 0) -> LoadSummary:
    return LoadSummary(
        interval_ms=1_000,
        cpu_used_mcpu=mcpu,
        memory_used_bytes=GIB,
        prod_cpu_used_mcpu=prod_mcpu,
        prod_memory_used_bytes=0,
        system_cpu_used_mcpu=system_mcpu,
        system_memory_used_bytes=0,
    )


def delivered(node: str, load: LoadSummary | None, at_ms: int = 0) -> AllocatableChanged:
    return structs.replace(an_allocatable(node, [WHOLE], at_ms=at_ms), load=load)


def a_bench(
    loads: dict[str, LoadSummary | None], policy: SchedulerPolicy | None = None, taints: tuple[Taint, ...] = ()
) -> Bench:
    """Nodes of one zone, 16 CPUs and 64 GiB; `taints` are the first one's."""
    bench = Bench(policy)
    for number, (name, load) in enumerate(loads.items()):
        topology = a_topology(zones_per_socket=1)
        bench.tell(a_node(name, topology, is_online=True, taints=() if number else taints))
        bench.tell(delivered(name, load))
    return bench


def place(bench: Bench, *placement_requests: PlacementRequest) -> list[str]:
    """The nodes that these get, in order; "-" for a rejection."""
    placed = {}
    for effect in bench.say(PlacementsRequested(placement_requests=placement_requests)):
        if isinstance(effect, Publish) and isinstance(effect.fact, PlacementsDecided):
            placed |= {placement.replica: placement.node for placement in effect.fact.placements}
    return [placed.get(placement_request.replica, "-") for placement_request in placement_requests]


def online(replica: str, mcpu: int = 1_000) -> PlacementRequest:
    return a_placement_request(replica, mcpu=mcpu, qos=QosClass.LS, band=PriorityBand.PROD)


def spread(replica: str) -> PlacementRequest:
    return a_placement_request(replica, constraints=Constraints(spread=True))


def test_online_work_stays_away_from_nodes_that_online_work_and_the_system_fill() -> None:
    # 65 percent of 16 CPUs are 10.4; the newcomer is expected to use 850m.
    bench = a_bench({"busy": a_load(10_000, prod_mcpu=9_000, system_mcpu=700)})
    reported = bench.say(PlacementsRequested(placement_requests=(online("web/main/0"),)))
    (rejected,) = [
        each.fact for each in reported if isinstance(each, Publish) and isinstance(each.fact, PlacementRejected)
    ]
    assert [(each.reason, each.nodes) for each in rejected.counts] == [(Reason.LOAD_OVER_THRESHOLD, 1)]
    bench.say(delivered("busy", a_load(15_000, prod_mcpu=8_000, system_mcpu=700), at_ms=1))
    assert bench.core.cluster.nodes[0].holds, "what batch work uses does not keep online work away"


def test_batch_work_goes_wherever_it_is_promised_something_whatever_the_load() -> None:
    assert place(a_bench({"busy": a_load(15_900)}), a_placement_request()) == ["busy"]


def test_an_operator_may_keep_batch_work_off_busy_nodes() -> None:
    rules = structs.replace(SchedulerPolicy().load, cpu_pct=65)
    # A share of 65 percent, as rounded, is up to 10479m: 1000m are used, and there is room for eleven times 850m.
    bench = a_bench({"busy": a_load(10_000), "idle": a_load(1_000)}, SchedulerPolicy(load=rules))
    assert place(bench, *[a_placement_request(f"job/main/{n:02}") for n in range(12)]) == ["idle"] * 11 + ["-"]


def test_newcomers_count_until_a_sample_shows_them() -> None:
    rules = structs.replace(SchedulerPolicy().load, cpu_pct=65)
    bench = a_bench({"n": a_load(0)}, SchedulerPolicy(load=rules))
    placement_requests = [a_placement_request(f"job/main/{n}", mcpu=2_000, memory_bytes=GIB) for n in range(9)]
    # Five times 1700m is 53 percent, six times 63.75, rounded up to 64; seven would be 74.
    assert place(bench, *placement_requests)[:7] == ["n"] * 6 + ["-"]
    # A second later a sample says nothing of them yet.
    bench.now_ms = 1_000
    bench.say(delivered("n", a_load(100), at_ms=1_000))
    assert len(bench.core.cluster.nodes[0].holds) == 6
    # Behind the time that they have to start it is right: they do little.
    bench.now_ms = 11_000
    bench.say(delivered("n", a_load(600), at_ms=11_000))
    assert len(bench.core.cluster.nodes[0].holds) == 8, "no more than what is promised"


def test_a_newcomer_that_ends_before_a_sample_shows_it_makes_room_again() -> None:
    rules = structs.replace(SchedulerPolicy().load, cpu_pct=65)
    bench = a_bench({"n": a_load(9_000)}, SchedulerPolicy(load=rules))
    assert place(bench, a_placement_request("job/main/0"), a_placement_request("job/main/1")) == ["n", "-"]
    ended = ReplicaEnded(
        at_ms=0, node="n", replica="job/main/0", job="job", attempt=1, cause=EndCause.EXITED, exit_code=0
    )
    bench.say(ended)
    bench.now_ms = 2_000
    bench.wake()
    assert [replica for replica, _ in bench.core.cluster.nodes[0].holds] == ["job/main/1"]


def test_online_work_prefers_nodes_where_online_work_uses_less() -> None:
    bench = a_bench({"a": a_load(9_000, prod_mcpu=8_000), "b": a_load(9_000, prod_mcpu=1_000)})
    assert place(bench, online("web/main/0"), online("web/main/1")) == ["b", "b"]


def test_a_job_that_wants_it_is_spread_and_another_is_packed_as_ever() -> None:
    packing = SchedulerPolicy(weights=ScorerWeights(most_free=0, most_allocated=1))
    nodes: dict[str, LoadSummary | None] = {"a": None, "b": None, "c": None}
    assert place(a_bench(nodes, packing), *[a_placement_request(f"job/main/{n}") for n in range(3)]) == ["a", "a", "a"]
    bench = a_bench(nodes, packing)
    assert place(bench, *[spread(f"job/main/{n}") for n in range(2)]) == ["a", "b"]
    assert place(bench, spread("job/main/2"), spread("other/main/0")) == ["c", "a"]


def test_replicas_that_were_placed_before_the_first_spread_job_came_count() -> None:
    bench = a_bench({"a": None, "b": None}, SchedulerPolicy(weights=ScorerWeights(most_free=0)))
    assert place(bench, a_placement_request("job/first/0")) == ["a"]
    assert place(bench, spread("job/main/0"), spread("job/main/1")) == ["b", "a"]


def test_a_plan_spreads_as_submitting_would() -> None:
    bench = a_bench({"a": None, "b": None, "c": None}, SchedulerPolicy(weights=ScorerWeights(most_free=0)))
    assert place(bench, a_placement_request("job/first/0")) == ["a"]
    task = TaskSpec(
        name="main",
        replicas=3,
        request=ResourceRequest(cpu_mcpu=1_000, memory_bytes=GIB),
        run=COMMAND,
        constraints=Constraints(spread=True),
    )
    spec = JobSpec(name="job", queue="default", tasks=(task,))
    effects = bench.say(RequestReceived(request="r", body=PlanJob(spec=spec)))
    (planned,) = [each.body for each in effects if isinstance(each, Reply)]
    assert isinstance(planned, JobPlanned)
    assert [place.node for place in planned.places] == ["b", "c", "a"]
    assert [score.scores["spread"] for score in planned.tasks[0].scores] == [100, 100, 50]
    assert place(bench, *[spread(f"job/main/{n}") for n in range(3)]) == ["b", "c", "a"]


@pytest.mark.parametrize(("cause", "next_node"), [(EndCause.EVICTED, "b"), (EndCause.EXITED, "a")])
def test_a_node_that_has_just_evicted_such_work_comes_behind_its_equals(cause: EndCause, next_node: str) -> None:
    bench = a_bench({"a": None, "b": None})
    assert place(bench, a_placement_request("job/main/0")) == ["a"]
    ended = ReplicaEnded(
        at_ms=0, node="a", replica="job/main/0", job="job", attempt=1, cause=cause, exit_code=137, eviction="e1"
    )
    # What is said twice was one eviction.
    bench.tell(ended)
    bench.say(ended)
    kind = kind_of(PriorityBand.BATCH, QosClass.BE, 1_000, GIB)
    lost = 50 if cause is EndCause.EVICTED else 100
    assert bench.core.cluster.signals.evictions.scores(kind, 2, 0).tolist() == [lost, 100]
    assert place(bench, a_placement_request("job/main/1", mcpu=2_000)) == ["a"], "work of another size is not concerned"
    bench.core.handle(
        ReplicaEnded(at_ms=0, node="a", replica="job/main/1", job="job", attempt=1, cause=EndCause.EXITED, exit_code=0),
        0,
    )
    bench.wake()
    assert place(bench, a_placement_request("job/main/2")) == [next_node]


def test_a_node_is_forgiven() -> None:
    bench = a_bench({"a": None, "b": None})
    place(bench, a_placement_request("job/main/0"))
    bench.say(
        ReplicaEnded(
            at_ms=0, node="a", replica="job/main/0", job="job", attempt=1, cause=EndCause.EVICTED, exit_code=137
        )
    )
    bench.now_ms = 600_000
    for name in ("a", "b"):
        bench.say(delivered(name, None, at_ms=600_000))
    assert place(bench, a_placement_request("job/main/1")) == ["a"]


def test_a_taint_that_is_merely_put_up_with_is_avoided_though_more_is_free_there() -> None:
    bench = a_bench({"a": None, "b": None}, taints=(Taint(key="old", effect="PreferNoSchedule"),))
    placement_requests = [a_placement_request(f"job/main/{n}", mcpu=4_000, memory_bytes=GIB) for n in range(5)]
    assert place(bench, *placement_requests) == ["b", "b", "b", "b", "a"]
