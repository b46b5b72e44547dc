"""A plan changes nothing and says what a submission then does; who would have to leave is few, and less important."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from colo_common.events.effects import Publish, Reply, RequestReceived, Wake
from colo_common.events.job import PlacementsRequested, ReplicasWithdrawn
from colo_common.events.placement import PlacementRejected, PlacementsDecided
from colo_common.events.requests import ExplainPlacement, JobPlanned, PlacementsExplained, PlanJob, Refusal
from colo_common.model.constraints import Constraints, NumaPolicy
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import Reason
from colo_common.model.workload import JobSpec, ResourceRequest, TaskSpec
from colo_scheduler.core import SchedulerCore
from colo_scheduler.planning.plans import PLANS_MOST, STEP_REPLICAS
from tests.support.builders import GIB, a_node, a_topology
from tests.support.scheduler_story import EITHER, Bench, a_placement_request, an_allocatable


def a_bench(*zones_mcpu: tuple[int, ...]) -> Bench:
    """Nodes n0, n1, ...: the promised mcpu of each zone; 64 GiB a zone."""
    bench = Bench()
    for number, zones in enumerate(zones_mcpu):
        bench.say(a_node(f"n{number}", a_topology(zones_per_socket=len(zones), cpus=16)))
        bench.say(an_allocatable(f"n{number}", [(mcpu, 64 * GIB) for mcpu in zones]))
    return bench


def a_job(*tasks: tuple[str, int, int], priority: int = 0, gib: int = 1, **about: Any) -> JobSpec:
    """`tasks` are name, replicas and mcpu."""
    return JobSpec(
        name="planned",
        priority=priority,
        tasks=tuple(
            TaskSpec(
                name=name,
                replicas=replicas,
                request=ResourceRequest(cpu_mcpu=mcpu, memory_bytes=gib * GIB),
                run=EITHER,
            )
            for name, replicas, mcpu in tasks
        ),
        **about,
    )


def planned(bench: Bench, spec: JobSpec, most: int = 100) -> JobPlanned:
    reply = asked(bench, PlanJob(spec=spec, most=most))
    assert isinstance(reply, JobPlanned)
    return reply


def asked(bench: Bench, body: PlanJob) -> object:
    effects = bench.tell(RequestReceived(request="r", body=body))
    while not (replies := [each for each in effects if isinstance(each, Reply)]):
        assert bench.core.deadline_ms() is not None
        effects = bench.tell(Wake())
    (reply,) = replies
    return reply.body


def submitted(bench: Bench, spec: JobSpec) -> dict[str, tuple[str, object]]:
    placement_requests = tuple(
        a_placement_request(
            f"{spec.name}/{task.name}/{index}",
            mcpu=task.request.cpu_mcpu,
            memory_bytes=task.request.memory_bytes,
            priority=spec.priority,
            qos=spec.qos,
            band=spec.band,
            run=task.run,
        )
        for task in spec.tasks
        for index in range(task.replicas)
    )
    effects = bench.say(PlacementsRequested(placement_requests=placement_requests))
    facts = [effect.fact for effect in effects if isinstance(effect, Publish)]
    placements = [p for fact in facts if isinstance(fact, PlacementsDecided) for p in fact.placements]
    return {p.replica.partition("/")[2]: (p.node, p.zones) for p in placements}


def test_a_plan_says_where_each_replica_goes_and_changes_nothing() -> None:
    bench = a_bench((4000, 4000), (8000,))
    spec = a_job(("a", 3, 2000), ("b", 1, 5000))
    plan = planned(bench, spec)
    assert (plan.fits, plan.replicas, plan.placed, plan.nodes, plan.waiting) == (True, 4, 4, 2, 0)
    assert plan == planned(bench, spec)
    assert {place.replica: (place.node, place.zones) for place in plan.places} == submitted(bench, spec)
    assert [place.replica for place in plan.places] == ["a/0", "a/1", "a/2", "b/0"]
    assert sum(count for _, count in plan.tasks[0].nodes) == 3
    assert plan.tasks[0].scores[0].scores.keys() == {"fewest-zones", "most-free"}


@given(st.integers(0, 2**32))
def test_a_submission_does_what_the_plan_said(seed: int) -> None:
    rng = random.Random(seed)
    bench = a_bench(*[tuple(rng.choices(range(0, 9000, 500), k=rng.choice([1, 2]))) for _ in range(rng.randint(0, 6))])
    for number in range(rng.randint(0, 6)):
        bench.say(
            PlacementsRequested(
                placement_requests=(a_placement_request(f"old/t/{number}", mcpu=rng.choice([500, 1500, 3000])),)
            )
        )
    spec = a_job(*[(name, rng.randint(1, 6), rng.choice([500, 1000, 2500, 4000])) for name in "abc"])
    before = planned(bench, spec, most=0)
    plan = planned(bench, spec)
    assert before.places == ()
    done = submitted(bench, spec)
    assert {place.replica: (place.node, place.zones) for place in plan.places} == done
    wanted = sum(task.replicas for task in spec.tasks)
    assert (plan.replicas, plan.placed, plan.fits) == (wanted, len(done), len(done) == wanted)


def test_what_does_not_fit_is_counted_with_the_nearest_miss() -> None:
    plan = planned(a_bench((3000, 3000), (1000,)), a_job(("a", 1, 7000)))
    assert not plan.fits
    (task,) = plan.tasks
    assert (task.placed, task.nodes) == (0, ())
    assert [(count.reason, count.nodes) for count in task.counts] == [(Reason.BATCH_CPU_SHORT, 2)]
    assert task.nearest is not None
    assert not task.never
    assert (task.nearest.node, task.nearest.need, task.nearest.have) == ("n0", 7000, 6000)
    assert (plan.victims, plan.by_preempting) == ((), 0)


def test_only_the_less_important_would_have_to_leave_and_no_more_than_needed() -> None:
    bench = a_bench((4000,))
    running = [("x/t/0", 1000, 5), ("x/t/1", 1000, 1), ("x/t/2", 1500, 1), ("x/t/3", 500, 9)]
    for replica, mcpu, priority in running:
        bench.say(PlacementsRequested(placement_requests=(a_placement_request(replica, mcpu=mcpu, priority=priority),)))
    plan = planned(bench, a_job(("a", 1, 1500), priority=5))
    assert not plan.fits
    assert [victim.replica for victim in plan.victims] == ["x/t/2"]
    assert plan.by_preempting == 1
    plan = planned(bench, a_job(("a", 2, 1500), priority=9))
    assert {victim.replica for victim in plan.victims} == {"x/t/0", "x/t/1", "x/t/2"}
    assert plan.by_preempting == 2
    assert planned(bench, a_job(("a", 1, 1500), priority=1)).victims == ()


def test_whoever_leaves_makes_room_for_as_many_as_fit_there() -> None:
    bench = a_bench((4000,), (4000,))
    bench.say(
        PlacementsRequested(
            placement_requests=tuple(a_placement_request(f"low/t/{number}", mcpu=2000) for number in range(4))
        )
    )
    plan = planned(bench, a_job(("a", 5, 1000), priority=5))
    assert (plan.placed, plan.by_preempting) == (0, 5)
    assert len(plan.victims) == 3


def test_a_lower_band_is_less_important_whatever_its_priority() -> None:
    bench = a_bench((2000,))
    bench.say(
        PlacementsRequested(
            placement_requests=(a_placement_request("x/t/0", mcpu=2000, priority=99, band=PriorityBand.FREE),)
        )
    )
    assert [v.replica for v in planned(bench, a_job(("a", 1, 1000))).victims] == ["x/t/0"]
    assert planned(bench, a_job(("a", 1, 1000), priority=100, band=PriorityBand.FREE)).by_preempting == 1
    assert planned(bench, a_job(("a", 1, 1000), priority=99, band=PriorityBand.FREE)).by_preempting == 0


def test_the_node_whose_victims_matter_least_is_chosen() -> None:
    bench = a_bench((2000,), (2000,))
    for replica, mcpu, priority in (("x/t/0", 2000, 3), ("y/t/0", 1000, 1), ("y/t/1", 1000, 1)):
        bench.say(PlacementsRequested(placement_requests=(a_placement_request(replica, mcpu=mcpu, priority=priority),)))
    plan = planned(bench, a_job(("a", 1, 2000), priority=4))
    assert {victim.replica for victim in plan.victims} == {"y/t/0", "y/t/1"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (PlanJob(spec=a_job(("a", 1, 1)), most=1), "tasks[0].cpu"),
        (PlanJob(spec=a_job(("a", 1, 1000)), most=1001), "most"),
        (PlanJob(spec=a_job(("a", 0, 1000))), "tasks[0].replicas"),
        (PlanJob(spec=a_job(("a", 1, 1000), qos=QosClass.SYSTEM, band=PriorityBand.PROD)), "qos"),
    ],
)
def test_a_plan_that_breaks_a_rule_is_refused_by_its_field(body: PlanJob, field: str) -> None:
    refusal = asked(a_bench((8000,)), body)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.field) == (400, field)


def test_nothing_is_planned_before_the_ledger_is_read() -> None:
    (reply,) = SchedulerCore().handle(RequestReceived(request="r", body=PlanJob(spec=a_job(("a", 1, 1000)))), 0)
    assert isinstance(reply, Reply)
    assert isinstance(reply.body, Refusal)
    assert reply.body.code == 503


def whole(bench: Bench, *spec: JobSpec) -> tuple[list[object], int]:
    """The answers to plans asked for at once, and how often the core was woken for them."""
    out: list[object] = []
    for number, each in enumerate(spec):
        effects = bench.tell(RequestReceived(request=f"r{number}", body=PlanJob(spec=each)))
        out += [reply.body for reply in effects if isinstance(reply, Reply)]
    steps = 0
    while (due := bench.core.deadline_ms()) is not None and due <= bench.now_ms + 1:
        bench.now_ms = max(bench.now_ms, due)
        out += [reply.body for reply in bench.core.handle(Wake(), bench.now_ms) if isinstance(reply, Reply)]
        bench.core.check()
        steps += 1
    return out, steps


def test_a_plan_of_many_replicas_is_made_in_many_small_steps() -> None:
    bench = a_bench(*[(16_000,)] * 48)
    (plan,), steps = whole(bench, a_job(("a", 3_000, 50)))
    assert isinstance(plan, JobPlanned)
    assert plan.fits
    assert plan.placed == 3_000
    assert [place.replica for place in plan.places] == [f"a/{n}" for n in range(100)]
    assert steps >= 3_000 // STEP_REPLICAS
    assert bench.core.deadline_ms() != bench.now_ms + 1


def test_replicas_that_need_a_closer_look_take_more_steps() -> None:
    bench = a_bench(*[(16_000,)] * 4)
    place = Constraints(numa_policy=NumaPolicy.SINGLE_NUMA_NODE)
    job = a_job(("a", 60, 1000))
    job = structs.replace(job, tasks=tuple(structs.replace(task, constraints=place) for task in job.tasks))
    (plan,), steps = whole(bench, job)
    assert isinstance(plan, JobPlanned)
    assert plan.fits
    assert steps >= 6


def test_plans_under_way_are_few_and_each_is_answered() -> None:
    bench = a_bench((64_000,))
    answers, _ = whole(bench, *[a_job((f"t{n}", 150, 100)) for n in range(PLANS_MOST + 1)])
    refusals = [answer for answer in answers if isinstance(answer, Refusal)]
    assert [(refusal.code, refusal.field) for refusal in refusals] == [(503, "plan")]
    plans = [answer.tasks[0].task for answer in answers if isinstance(answer, JobPlanned)]
    assert plans == [f"t{n}" for n in range(PLANS_MOST)]


@given(st.integers(0, 2**32))
def test_what_happens_while_a_plan_is_made_does_not_change_it(seed: int) -> None:
    rng = random.Random(seed)
    zones = [tuple(rng.choices(range(1000, 40_000, 500), k=2)) for _ in range(rng.randint(1, 5))]
    one, other = a_bench(*zones), a_bench(*zones)
    for bench in (one, other):
        bench.say(
            PlacementsRequested(
                placement_requests=tuple(a_placement_request(f"old/t/{n}", mcpu=700, priority=-1) for n in range(20))
            )
        )
    spec = a_job(("a", 250, rng.choice([100, 300, 900])), ("b", 120, 250))
    calm = planned(one, spec)
    effects = other.tell(RequestReceived(request="r", body=PlanJob(spec=spec)))
    for step in range(100):
        if effects:
            break
        effects = [each for each in other.core.handle(Wake(), 0) if isinstance(each, Reply)]
        match rng.randrange(3):
            case 0:
                other.tell(ReplicasWithdrawn(attempts=((f"old/t/{step % 20}", 1),), reason=Reason.CANCELLED))
            case 1:
                node = rng.randrange(len(zones))
                other.tell(an_allocatable(f"n{node}", [(mcpu // 2, 64 * GIB) for mcpu in zones[node]], at_ms=1, seq=2))
            case _:
                other.tell(
                    PlacementsRequested(
                        placement_requests=(a_placement_request(f"new/t/{step}", mcpu=500, priority=9),)
                    )
                )
    (reply,) = effects
    assert isinstance(reply, Reply)
    assert isinstance(reply.body, JobPlanned)
    assert reply.body.places == calm.places
    assert reply.body.tasks == calm.tasks
    other.wake()


@pytest.mark.parametrize(("comings", "expected"), [(1, JobPlanned), (5, Refusal)])
def test_a_plan_begins_anew_when_nodes_come_and_is_refused_when_they_keep_coming(comings: int, expected: type) -> None:
    bench = a_bench((30_000,))
    assert bench.tell(RequestReceived(request="r", body=PlanJob(spec=a_job(("a", 900, 10))))) == []
    replies: list[Reply] = []
    for number in range(50):
        replies += [each for each in bench.core.handle(Wake(), 0) if isinstance(each, Reply)]
        if replies:
            break
        if number < comings:
            bench.tell(a_node(f"late{number}", a_topology(cpus=16)))
    (reply,) = replies
    assert isinstance(reply.body, expected)
    if isinstance(reply.body, JobPlanned):
        assert reply.body.nodes == 1 + comings


def test_a_plan_and_a_submission_agree_on_what_no_node_could_ever_hold() -> None:
    bench = a_bench((3000, 3000), (1000,))
    spec = a_job(("a", 1, 90_000))
    (task,) = planned(bench, spec).tasks
    assert task.never
    placement_request = a_placement_request("planned/a/0", mcpu=90_000)
    effects = bench.say(PlacementsRequested(placement_requests=(placement_request,)))
    (rejected,) = [e.fact for e in effects if isinstance(e, Publish) and isinstance(e.fact, PlacementRejected)]
    assert (rejected.never, rejected.counts, rejected.nearest) == (True, task.counts, task.nearest)
    (reply,) = bench.tell(RequestReceived(request="x", body=ExplainPlacement(job="planned", replica="planned/a/0")))
    assert isinstance(reply, Reply)
    assert isinstance(reply.body, PlacementsExplained)
    (decision,) = reply.body.decisions
    assert (decision.never, decision.nearest) == (True, task.nearest)
    assert task.nearest is not None
    assert task.nearest.have == 32_000
