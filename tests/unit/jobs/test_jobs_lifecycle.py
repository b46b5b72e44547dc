"""A plain job from submission to its end, and what evictions, failures, losses and cancellations do to it."""

from typing import TypeVar

import pytest
from msgspec.structs import replace

from colo_common.events.effects import BusReachable
from colo_common.events.fact import Fact
from colo_common.events.job import (
    JobStateChanged,
    JobSubmitted,
    PlacementsRequested,
    QueueChanged,
    ReplicasChanged,
    ReplicasWithdrawn,
)
from colo_common.events.placement import PlacementRejected, PlacementsDecided, ReasonCount
from colo_common.events.requests import Refusal
from colo_common.model.freshness import Freshness
from colo_common.model.reasons import EndCause, Reason
from colo_jobs.admission import QueueLimits
from colo_jobs.effects import LogRefused
from colo_jobs.policy import JobsPolicy
from colo_jobs.requeue import RetryPolicy
from tests.support.jobs_world import JobsWorld, a_spec, a_task, requests_of, stops_of

Kind = TypeVar("Kind", bound=Fact)


def only(facts: list[Fact], kind: type[Kind]) -> list[Kind]:
    return [fact for fact in facts if isinstance(fact, kind)]


def steps(facts: list[Fact]) -> list[str]:
    return [
        f"{change.previous}-{change.transition}->{change.state}"
        for fact in only(facts, ReplicasChanged)
        for change in fact.changes
    ]


@pytest.fixture
def world() -> JobsWorld:
    return JobsWorld()


def test_a_submitted_job_is_recorded_published_and_requested(world: JobsWorld) -> None:
    answer = world.submit(a_spec(a_task(replicas=3)))
    assert (answer.job, answer.state, answer.version) == ("j1", "Inqueue", 1)
    facts = [publish.fact for publish in world.published]
    assert [type(fact) for fact in facts] == [JobSubmitted, JobStateChanged, PlacementsRequested, QueueChanged]
    assert requests_of(facts) == [("j1/main/0", 1), ("j1/main/1", 1), ("j1/main/2", 1)]
    assert only(facts, QueueChanged)[0].waiting == 3
    assert {kind for kind, _ in world.rows} == {"job", "job-spec", "replica-page"}


def test_a_queue_s_counts_are_published_four_times_a_second_and_in_the_end_as_they_are(world: JobsWorld) -> None:
    world.submit(a_spec(a_task(replicas=40)))
    for index in range(40):
        world.at(world.now_ms + 10)
        world.run(f"j1/main/{index}")
    world.at(world.now_ms + 1_000)
    published = only([publish.fact for publish in world.published], QueueChanged)
    assert [(fact.at_ms, fact.waiting, fact.running) for fact in published] == [
        (1_000, 40, 0),
        (1_250, 16, 24),
        (1_500, 0, 40),
    ]
    assert world.core.deadline_ms() is None


def test_counts_that_were_not_published_before_the_end_are_published_after_the_next_start(world: JobsWorld) -> None:
    world.submit()
    world.cancel()
    assert [fact.waiting for fact in only([publish.fact for publish in world.published], QueueChanged)] == [1]
    assert [(fact.waiting, fact.running) for fact in only(world.restart(), QueueChanged)] == [(0, 0)]
    assert only(world.restart(), JobStateChanged) == []


def test_each_queue_s_counts_are_published_by_themselves() -> None:
    world = JobsWorld(JobsPolicy(queues={"default": QueueLimits(), "night": QueueLimits()}))
    world.submit()
    world.at(1_100)
    world.submit(a_spec(queue="night"), job="j2")
    world.submit(job="j3")
    world.at(5_000)
    published = only([publish.fact for publish in world.published], QueueChanged)
    assert [(fact.queue, fact.at_ms, fact.waiting) for fact in published] == [
        ("default", 1_000, 1),
        ("night", 1_100, 1),
        ("default", 1_250, 2),
    ]


def test_a_placement_request_has_everything_that_a_decision_needs(world: JobsWorld) -> None:
    world.submit(a_spec(priority=5))
    placement_request = only([publish.fact for publish in world.published], PlacementsRequested)[0].placement_requests[
        0
    ]
    assert (placement_request.queue, placement_request.priority, placement_request.request.cpu_mcpu) == (
        "default",
        5,
        1000,
    )
    assert placement_request.queued_at_ms == 1_000
    assert placement_request.traceparent.startswith("00-")


def test_a_job_runs_when_its_first_replica_has_a_place_and_completes_when_all_succeeded(world: JobsWorld) -> None:
    world.submit(a_spec(a_task(replicas=2)))
    world.feed(world.placed("j1/main/0"))
    assert world.state() == "Running"
    world.feed(world.started("j1/main/0"))
    world.feed(world.ended("j1/main/0"))
    assert world.state() == "Running"
    world.run("j1/main/1")
    facts = world.feed(world.ended("j1/main/1"))
    assert world.state() == "Completed"
    assert only(facts, JobStateChanged)[0].transition == "J14"
    summary = world.job().summary
    assert (summary.succeeded, summary.waiting, summary.running, summary.ended_at_ms) == (2, 0, 0, 1_000)


def test_a_start_is_two_steps_of_the_table(world: JobsWorld) -> None:
    world.submit()
    world.feed(world.placed())
    assert steps(world.feed(world.started())) == ["Assigned-R03->Starting", "Starting-R04->Running"]


def test_a_failure_waits_and_tries_again_until_no_retry_is_left(world: JobsWorld) -> None:
    world.submit(a_spec(a_task(max_retry=2)))
    for attempt, wait_ms in ((1, 1_000), (2, 2_000)):
        world.run(attempt=attempt)
        assert requests_of(world.feed(world.ended(attempt=attempt, code=1))) == []
        assert world.replica().state == "Backoff"
        assert {type(fact) for fact in world.at(world.now_ms + wait_ms - 1)} <= {QueueChanged}
        assert requests_of(world.at(world.now_ms + 1)) == [("j1/main/0", attempt + 1)]
    world.run(attempt=3)
    world.feed(world.ended(attempt=3, code=7))
    assert world.state() == "Failed"
    replica = world.job().replicas[0]
    assert (replica.state, replica.retries, replica.exit_code) == ("Failed", 2, 7)


def test_backoff_doubles_up_to_its_cap() -> None:
    world = JobsWorld(JobsPolicy(retry=RetryPolicy(backoff_ms=1_000, backoff_max_ms=3_000)))
    world.submit(a_spec(a_task(max_retry=5)))
    waits = []
    for attempt in range(1, 5):
        world.run(attempt=attempt)
        world.feed(world.ended(attempt=attempt, code=1))
        waits.append(world.replica().due_ms - world.now_ms)
        world.at(world.replica().due_ms)
    assert waits == [1_000, 2_000, 3_000, 3_000]


def test_an_evicted_replica_is_wanted_again_at_once_elsewhere_and_uses_no_retry(world: JobsWorld) -> None:
    world.submit()
    world.run()
    facts = world.feed(world.ended(cause=EndCause.EVICTED, code=143))
    assert steps(facts) == ["Running-R06->Backoff", "Backoff-R17->Pending"]
    placement_request = only(facts, PlacementsRequested)[0].placement_requests[0]
    assert (placement_request.attempt, placement_request.avoid) == (2, (("n1", 61_000),))
    replica = world.job().replicas[0]
    assert (replica.evictions, replica.retries, replica.attempt) == (1, 0, 2)
    assert world.state() == "Running"


def test_an_evicted_replica_that_exits_well_has_not_done_its_work(world: JobsWorld) -> None:
    world.submit()
    world.run()
    world.feed(world.ended(cause=EndCause.EVICTED, code=0))
    assert world.replica().state == "Pending"


def test_a_replica_that_is_evicted_again_and_again_waits_longer(world: JobsWorld) -> None:
    world.submit()
    for attempt in (1, 2, 3):
        world.run(attempt=attempt)
        world.feed(world.ended(attempt=attempt, cause=EndCause.EVICTED, code=143))
        world.at(world.now_ms + (0, 1_000, 1_999)[attempt - 1])
    assert (world.replica().state, world.replica().attempt) == ("Backoff", 3)
    assert requests_of(world.at(world.now_ms + 1)) == [("j1/main/0", 4)]


def test_an_expired_node_is_no_longer_avoided(world: JobsWorld) -> None:
    world.submit(a_spec(a_task(max_retry=9)))
    world.run()
    world.feed(world.ended(cause=EndCause.EVICTED, code=143))
    world.now_ms += 60_000
    world.run(node="n2", attempt=2)
    facts = world.feed(world.ended(node="n2", attempt=2, cause=EndCause.EVICTED, code=143)) + world.at(200_000)
    assert only(facts, PlacementsRequested)[0].placement_requests[0].avoid == (("n2", 121_000),)


def test_a_node_that_evicts_again_is_avoided_twice_as_long_and_quiet_time_takes_that_back(world: JobsWorld) -> None:
    world.submit()
    waits = []
    # Back on the node as soon as it may be, five times; then 45 minutes from the last eviction to the next.
    for attempt, quiet_ms in enumerate((0, 0, 0, 0, 0, 1_800_000), start=1):
        world.run(attempt=attempt)
        world.at(world.now_ms + quiet_ms)
        world.feed(world.ended(attempt=attempt, cause=EndCause.EVICTED, code=143))
        ((node, until_ms),) = world.replica().avoid
        waits.append((node, until_ms - world.now_ms))
        world.at(until_ms)
    assert waits == [("n1", 1_000 * s) for s in (60, 120, 240, 480, 900, 240)]


def test_a_node_that_refuses_is_avoided_and_the_replica_wanted_under_a_new_attempt(world: JobsWorld) -> None:
    world.submit()
    world.feed(world.placed())
    facts = world.feed(world.refused(reason=Reason.CGROUP_REFUSED))
    assert steps(facts) == ["Assigned-R02->Pending"]
    assert requests_of(facts) == [("j1/main/0", 2)]
    assert world.replica().avoid == (("n1", 61_000),)


def test_a_command_that_cannot_start_is_a_failure_of_the_replica(world: JobsWorld) -> None:
    world.submit()
    world.feed(world.placed())
    world.feed(world.refused(reason=Reason.START_FAILED))
    assert (world.state(), world.job().replicas[0].exit_code) == ("Failed", 127)


def test_the_first_failure_for_good_fails_the_task_and_stops_the_rest(world: JobsWorld) -> None:
    world.submit(a_spec(a_task(replicas=3)))
    world.run("j1/main/0")
    world.run("j1/main/1")
    facts = world.feed(world.ended("j1/main/0", code=1))
    assert world.state() == "Running"
    assert stops_of(facts) == [("n1", "j1/main/1", 1)]
    assert only(facts, ReplicasWithdrawn)[0].attempts == (("j1/main/2", 1),)
    facts = world.feed(world.ended("j1/main/1", cause=EndCause.STOPPED, code=143))
    assert world.state() == "Failed"
    assert [fact.transition for fact in only(facts, JobStateChanged)] == ["J19", "J29"]


def test_max_failed_tolerates_failures(world: JobsWorld) -> None:
    world.submit(a_spec(a_task(replicas=3, max_failed=2, min_succeeded=1)))
    world.run("j1/main/0")
    world.feed(world.ended("j1/main/0", code=1))
    assert world.state() == "Running"
    world.run("j1/main/1")
    world.feed(world.ended("j1/main/1"))
    assert world.state() == "Completed"
    assert world.replica("j1/main/2").state == "Stopped"


def test_cancelling_a_waiting_job_ends_it_at_once(world: JobsWorld) -> None:
    world.submit(a_spec(a_task(replicas=2)))
    answer = world.cancel()
    assert answer.state == "Terminated"
    withdrawn = only([publish.fact for publish in world.published], ReplicasWithdrawn)
    assert withdrawn[0].attempts == (("j1/main/0", 1), ("j1/main/1", 1))
    assert withdrawn[0].reason is Reason.CANCELLED
    assert world.core.index.queues["default"].waiting == 0


def test_cancelling_a_running_job_waits_until_its_processes_have_exited(world: JobsWorld) -> None:
    world.submit(a_spec(a_task(replicas=2)))
    world.run("j1/main/0")
    assert world.cancel().state == "Terminating"
    assert stops_of([publish.fact for publish in world.published]) == [("n1", "j1/main/0", 1)]
    assert world.cancel().state == "Terminating"
    world.feed(world.ended("j1/main/0", cause=EndCause.STOPPED, code=143))
    assert world.state() == "Terminated"
    late = world.cancel()
    assert isinstance(late, Refusal)
    assert (late.code, late.field) == (409, "job")


def test_a_stopped_assigned_replica_is_withdrawn_and_stopped_on_its_node(world: JobsWorld) -> None:
    world.submit()
    world.feed(world.placed())
    begin = len(world.published)
    assert world.cancel().state == "Terminated"
    facts = [publish.fact for publish in world.published[begin:]]
    assert only(facts, ReplicasWithdrawn)[0].attempts == (("j1/main/0", 1),)
    assert stops_of(facts) == [("n1", "j1/main/0", 1)]
    # It had started meanwhile: the order is given again, under another id, for the bus would drop a copy.
    assert stops_of(world.feed(world.started())) == [("n1", "j1/main/0", 1)]
    orders = [publish.id for publish in world.published if publish.id.startswith("jobs:stop:")]
    assert len(set(orders)) == 2


def test_a_place_for_a_job_that_was_cancelled_meanwhile_is_given_back(world: JobsWorld) -> None:
    world.submit()
    world.cancel()
    assert stops_of(world.feed(world.placed())) == [("n1", "j1/main/0", 1)]
    assert world.replica().state == "Stopped"


def test_replicas_of_a_lost_node_wait_and_are_wanted_again_once(world: JobsWorld) -> None:
    world.submit(a_spec(a_task(replicas=2)))
    world.run("j1/main/0")
    world.feed(world.placed("j1/main/1"))
    facts = world.feed(world.freshness())
    # What was only placed goes elsewhere at once; what ran is waited for.
    assert requests_of(facts) == [("j1/main/1", 2)]
    assert world.replica("j1/main/0").state == "Unknown"
    assert requests_of(world.feed(world.freshness())) == []
    facts = world.at(world.now_ms + 60_000)
    assert requests_of(facts) == [("j1/main/0", 2)]
    assert only(facts, ReplicasWithdrawn)[0].attempts == (("j1/main/0", 1),)
    assert stops_of(facts) == [("n1", "j1/main/0", 1)]
    assert world.at(world.now_ms + 600_000) == []
    # The node is back and still runs the old attempt.
    assert stops_of(world.feed(world.recovered("n1", ("j1/main/0", 1)))) == [("n1", "j1/main/0", 1)]
    assert world.job().replicas[0].attempt == 2


def test_a_node_that_is_back_in_time_keeps_its_replicas(world: JobsWorld) -> None:
    world.submit()
    world.run()
    world.feed(world.freshness())
    world.now_ms += 59_000
    assert steps(world.feed(world.freshness(state=Freshness.WARMING))) == ["Unknown-R09->Running"]
    assert world.at(world.now_ms + 600_000) == []
    world.feed(world.ended())
    assert world.state() == "Completed"


@pytest.mark.parametrize("away_ms", [1_000, 59_000, 3_600_000])
@pytest.mark.parametrize("lost_for_ms", [0, 59_999])
def test_while_the_bus_is_away_the_lost_time_of_a_replica_stands_still(
    world: JobsWorld, lost_for_ms: int, away_ms: int
) -> None:
    world.submit()
    world.run()
    world.feed(world.freshness())
    assert requests_of(world.at(world.now_ms + lost_for_ms)) == []
    world.feed(BusReachable(is_reachable=False))
    assert requests_of(world.at(world.now_ms + away_ms)) == []
    world.feed(BusReachable(is_reachable=True))
    left_ms = max(60_000 - lost_for_ms, 5_000)
    back_ms = world.now_ms
    assert requests_of(world.at(back_ms + left_ms - 1)) == []
    assert requests_of(world.at(back_ms + left_ms)) == [("j1/main/0", 2)]


def test_an_end_that_waited_while_the_bus_was_away_counts(world: JobsWorld) -> None:
    world.submit()
    world.run()
    world.feed(world.freshness())
    world.feed(BusReachable(is_reachable=False))
    world.at(world.now_ms + 120_000)
    world.feed(BusReachable(is_reachable=True))
    world.now_ms += 1_000
    world.feed(world.ended())
    assert world.state() == "Completed"


def test_an_end_reported_by_a_lost_node_counts(world: JobsWorld) -> None:
    world.submit()
    world.run()
    world.feed(world.freshness())
    world.feed(world.ended())
    assert world.state() == "Completed"
    ended_ms = world.now_ms
    assert [type(fact) for fact in world.at(ended_ms + 250)] == [QueueChanged]
    assert world.core.deadline_ms() == ended_ms + world.policy.retention.ended_ms


def test_a_cancelled_replica_on_a_lost_node_counts_as_stopped_after_the_lost_time(world: JobsWorld) -> None:
    world.submit()
    world.run()
    world.feed(world.freshness())
    assert world.cancel().state == "Terminating"
    world.at(world.now_ms + 60_000)
    assert world.state() == "Terminated"


def test_a_replica_that_a_recovered_node_does_not_name_is_lost_after_a_while(world: JobsWorld) -> None:
    world.submit()
    world.run()
    world.now_ms += 1_000
    assert steps(world.feed(world.recovered("n1"))) == ["Running-R08->Unknown"]
    world.feed(world.freshness(state=Freshness.FRESH))
    assert world.replica().state == "Unknown"
    assert requests_of(world.at(world.now_ms + 60_000)) == [("j1/main/0", 2)]


def test_a_start_after_the_recovery_is_not_taken_for_missing(world: JobsWorld) -> None:
    world.submit()
    recovered = world.recovered("n1")
    world.now_ms += 1_000
    world.run()
    world.feed(recovered)
    assert world.replica().state == "Running"


def test_a_place_on_a_node_that_is_known_to_be_lost_is_given_up_at_once(world: JobsWorld) -> None:
    world.submit()
    world.feed(world.freshness())
    facts = world.feed(world.placed())
    assert requests_of(facts) == [("j1/main/0", 2)]
    assert stops_of(facts) == [("n1", "j1/main/0", 1)]


def test_an_end_may_arrive_before_the_start_and_the_decision(world: JobsWorld) -> None:
    world.submit()
    placed, started, ended = world.placed(), world.started(), world.ended()
    world.feed(ended)
    assert world.state() == "Completed"
    assert steps(world.feed(started, placed)) == []
    assert world.core.counters.illegal == {}


def test_a_start_may_arrive_before_the_decision(world: JobsWorld) -> None:
    world.submit()
    placed, started = world.placed(), world.started()
    world.feed(started)
    assert (world.state(), world.replica().state, world.replica().zones) == ("Running", "Running", ())
    world.feed(placed)
    assert world.replica().zones == (0,)
    assert world.core.counters.illegal == {}


def test_reports_of_an_older_attempt_change_nothing(world: JobsWorld) -> None:
    world.submit()
    world.run()
    world.feed(world.ended(cause=EndCause.EVICTED, code=143))
    world.run(node="n2", attempt=2)
    assert steps(world.feed(world.ended(), world.placed(), world.refused())) == []
    assert world.replica().state == "Running"
    assert stops_of(world.feed(world.started())) == [("n1", "j1/main/0", 1)]


def test_reports_of_an_attempt_that_was_never_wanted_change_nothing(world: JobsWorld) -> None:
    world.submit()
    world.feed(world.placed(attempt=9), world.started(attempt=9), world.ended(attempt=9))
    assert world.replica().state == "Pending"
    assert world.core.counters.future == 3


def test_a_second_place_for_the_same_attempt_is_refused_counted_and_logged_with_the_story(world: JobsWorld) -> None:
    world.submit()
    world.run()
    world.feed(world.placed(node="n2"))
    assert (world.replica().state, world.replica().node) == ("Running", "n1")
    assert world.core.counters.illegal == {("replica", "Running", "place"): 1}
    assert "Starting -> Running (ready on n1)" in world.own[-1].story  # type: ignore[attr-defined]


def test_a_refusal_is_logged_once_whatever_follows_in_the_same_batch(world: JobsWorld) -> None:
    world.submit()
    world.run()
    world.feed(world.placed(node="n2"), world.placed(node="n3"), world.ended())
    assert [effect.event for effect in world.own if isinstance(effect, LogRefused)] == ["place", "place"]
    assert world.state() == "Completed"


def test_what_runs_for_no_known_job_is_stopped(world: JobsWorld) -> None:
    assert stops_of(world.feed(world.started("gone/main/0"))) == [("n1", "gone/main/0", 1)]
    assert stops_of(world.feed(world.recovered("n2", ("gone/main/0", 3)))) == [("n2", "gone/main/0", 3)]


def test_the_reason_why_a_replica_waits_is_shown_until_it_has_a_place(world: JobsWorld) -> None:
    world.submit()
    world.feed(
        PlacementRejected(
            replica="j1/main/0",
            job="j1",
            attempt=1,
            nodes=2,
            counts=(ReasonCount(reason=Reason.BATCH_CPU_SHORT, nodes=2),),
        )
    )
    assert "2 x not enough batch CPU" in world.job().replicas[0].reason
    assert any("waits: none of 2 nodes" in line.what for line in world.job().story)
    world.run()
    assert world.job().replicas[0].reason == ""


def test_a_request_that_breaks_a_rule_waits_with_the_rule_until_it_is_cancelled(world: JobsWorld) -> None:
    world.submit()
    world.feed(
        PlacementRejected(
            replica="j1/main/0",
            job="j1",
            attempt=1,
            nodes=0,
            counts=(ReasonCount(reason=Reason.REQUEST_MALFORMED, nodes=0),),
            never=True,
            broken_rule="request.cpu_mcpu: must be from 1 to 16777216 (got 0)",
        )
    )
    says = "breaks a rule, so no node was asked: request.cpu_mcpu: must be from 1 to 16777216 (got 0)"
    assert says in world.job().replicas[0].reason
    assert world.job().replicas[0].state == "Pending"
    assert any(says in line.what for line in world.job().story)


def test_a_placement_message_may_hold_replicas_of_many_jobs(world: JobsWorld) -> None:
    world.submit(job="a")
    world.submit(job="b")
    both = PlacementsDecided(
        placements=tuple(world.placed(f"{job}/main/0").placements[0] for job in ("b", "nobody", "a"))
    )
    world.feed(both)
    assert (world.state("a"), world.state("b"), world.core.counters.unknown_replica) == ("Running", "Running", 1)


def test_a_job_under_an_id_that_was_used_before_asks_for_a_newer_attempt(world: JobsWorld) -> None:
    world.submit(a_spec(a_task(replicas=2)))
    rejected = PlacementRejected(at_ms=0, replica="j1/main/0", job="j1", attempt=1, nodes=0, counts=(), newest_over=3)
    facts = world.feed(rejected)
    assert requests_of(facts) == [("j1/main/0", 4)]
    # Received twice, and late.
    assert requests_of(world.feed(rejected)) == []
    world.restart()
    assert [world.replica(f"j1/main/{index}").attempt for index in (0, 1)] == [4, 1]


@pytest.mark.parametrize(("code", "state"), [(0, "Succeeded"), (1, "Backoff")])
def test_what_has_ended_is_stopped_where_it_is_said_to_run_again_and_a_late_start_is_late(
    world: JobsWorld, code: int, state: str
) -> None:
    world.submit(a_spec(a_task(replicas=2, max_retry=3)))
    world.run("j1/main/0")
    start = world.started("j1/main/0")
    assert world.feed(replace(start, again=True)) == []
    world.feed(world.ended("j1/main/0", code=code))
    assert world.replica("j1/main/0").state == state
    assert stops_of(world.feed(start)) == []
    assert stops_of(world.feed(replace(start, again=True))) == [("n1", "j1/main/0", 1)]
    assert world.replica("j1/main/0").state == state
    # Of a job that nobody knows.
    assert stops_of(world.feed(replace(start, replica="other/main/0", again=True))) == [("n1", "other/main/0", 1)]
