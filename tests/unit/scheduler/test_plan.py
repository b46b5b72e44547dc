"""A plan changes nothing and says what a submission then does; who would have to leave is few, and less important."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colo_common.events.effects import Asked, Publish, Reply
from colo_common.events.job import ReplicasWanted
from colo_common.events.placement import PlacementsDecided
from colo_common.events.requests import JobPlanned, PlanJob, Refusal
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import Reason
from colo_common.model.workload import JobSpec, ResourceRequest, TaskSpec
from colo_scheduler.core import SchedulerCore
from tests.support.builders import GIB, a_node, a_topology
from tests.support.scheduler_story import EITHER, Bench, a_want, an_allocatable


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
    (reply,) = bench.tell(Asked(request="r", body=body))
    assert isinstance(reply, Reply)
    return reply.body


def submitted(bench: Bench, spec: JobSpec) -> dict[str, tuple[str, object]]:
    wants = tuple(
        a_want(
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
    effects = bench.say(ReplicasWanted(wants=wants))
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


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_a_submission_does_what_the_plan_said(seed: int) -> None:
    rng = random.Random(seed)
    bench = a_bench(*[tuple(rng.choices(range(0, 9000, 500), k=rng.choice([1, 2]))) for _ in range(rng.randint(0, 6))])
    for number in range(rng.randint(0, 6)):
        bench.say(ReplicasWanted(wants=(a_want(f"old/t/{number}", mcpu=rng.choice([500, 1500, 3000])),)))
    spec = a_job(*[(name, rng.randint(1, 6), rng.choice([500, 1000, 2500, 4000])) for name in "abc"])
    before = planned(bench, spec, most=0)
    plan = planned(bench, spec)
    assert before.places == ()
    assert {place.replica: (place.node, place.zones) for place in plan.places} == submitted(bench, spec)
    assert plan.fits is (plan.placed == plan.replicas)


def test_what_does_not_fit_is_counted_with_the_nearest_miss() -> None:
    plan = planned(a_bench((3000, 3000), (1000,)), a_job(("a", 1, 7000)))
    assert not plan.fits
    (task,) = plan.tasks
    assert (task.placed, task.nodes) == (0, ())
    assert [(count.reason, count.nodes) for count in task.counts] == [(Reason.BATCH_CPU_SHORT, 2)]
    assert task.nearest is not None
    assert (task.nearest.node, task.nearest.need, task.nearest.have) == ("n0", 7000, 6000)
    assert (plan.victims, plan.by_preempting) == ((), 0)


def test_only_the_less_important_would_have_to_leave_and_no_more_than_needed() -> None:
    bench = a_bench((4000,))
    running = [("x/t/0", 1000, 5), ("x/t/1", 1000, 1), ("x/t/2", 1500, 1), ("x/t/3", 500, 9)]
    for replica, mcpu, priority in running:
        bench.say(ReplicasWanted(wants=(a_want(replica, mcpu=mcpu, priority=priority),)))
    plan = planned(bench, a_job(("a", 1, 1500), priority=5))
    assert not plan.fits
    assert [victim.replica for victim in plan.victims] == ["x/t/2"]
    assert plan.by_preempting == 1
    plan = planned(bench, a_job(("a", 2, 1500), priority=9))
    assert {victim.replica for victim in plan.victims} == {"x/t/0", "x/t/1", "x/t/2"}
    assert plan.by_preempting == 2
    assert planned(bench, a_job(("a", 1, 1500), priority=1)).victims == ()


def test_a_lower_band_is_less_important_whatever_its_priority() -> None:
    bench = a_bench((2000,))
    bench.say(ReplicasWanted(wants=(a_want("x/t/0", mcpu=2000, priority=99, band=PriorityBand.FREE),)))
    assert [v.replica for v in planned(bench, a_job(("a", 1, 1000))).victims] == ["x/t/0"]
    assert planned(bench, a_job(("a", 1, 1000), priority=100, band=PriorityBand.FREE)).by_preempting == 1
    assert planned(bench, a_job(("a", 1, 1000), priority=99, band=PriorityBand.FREE)).by_preempting == 0


def test_the_node_whose_victims_matter_least_is_chosen() -> None:
    bench = a_bench((2000,), (2000,))
    for replica, mcpu, priority in (("x/t/0", 2000, 3), ("y/t/0", 1000, 1), ("y/t/1", 1000, 1)):
        bench.say(ReplicasWanted(wants=(a_want(replica, mcpu=mcpu, priority=priority),)))
    plan = planned(bench, a_job(("a", 1, 2000), priority=4))
    assert {victim.replica for victim in plan.victims} == {"y/t/0", "y/t/1"}


def test_work_that_is_not_placed_here_does_not_fit() -> None:
    plan = planned(a_bench((8000,)), a_job(("a", 1, 1000), qos=QosClass.SYSTEM, band=PriorityBand.PROD))
    assert not plan.fits
    assert [count.reason for count in plan.tasks[0].counts] == [Reason.QOS_NOT_ADMITTED]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (PlanJob(spec=a_job(("a", 1, 1)), most=1), "tasks[0].cpu"),
        (PlanJob(spec=a_job(("a", 1, 1000)), most=1001), "most"),
        (PlanJob(spec=a_job(("a", 0, 1000))), "tasks[0].replicas"),
    ],
)
def test_a_plan_that_breaks_a_rule_is_refused_by_its_field(body: PlanJob, field: str) -> None:
    refusal = asked(a_bench((8000,)), body)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.field) == (400, field)


def test_nothing_is_planned_before_the_ledger_is_read() -> None:
    (reply,) = SchedulerCore().handle(Asked(request="r", body=PlanJob(spec=a_job(("a", 1, 1000)))), 0)
    assert isinstance(reply, Reply)
    assert isinstance(reply.body, Refusal)
    assert reply.body.code == 503
