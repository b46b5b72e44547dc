"""What the store holds of jobs: restarts, conflicts, unreadable rows, and ended jobs that are forgotten."""

import msgspec
import pytest

from colo_common.events.effects import Conflict, Publish, Record, Reply, RequestReceived, Wake
from colo_common.events.job import PlacementsRequested, ReplicasChanged
from colo_common.events.requests import CancelJob, GetJob, Refusal, SubmitJob
from colo_common.events.waiting import ExplainWait
from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_common.model.reasons import EndCause
from colo_common.model.workload import RunSpec
from colo_common.ports import Row
from colo_jobs.core import JobsCore
from colo_jobs.effects import LogUnreadable
from colo_jobs.policy import JobsPolicy
from colo_jobs.records import decode_job, decode_page, page_id
from colo_jobs.retention import RetentionPolicy
from tests.support.jobs_world import JobsWorld, a_spec, a_task, requests_of, stops_of


@pytest.fixture
def world() -> JobsWorld:
    return JobsWorld()


def test_a_restart_finds_every_state_and_requests_waiting_replicas_again(world: JobsWorld) -> None:
    world.submit(a_spec(a_task(replicas=70, max_retry=1)))
    world.run("j1/main/0")
    world.run("j1/main/1")
    world.feed(world.ended("j1/main/1", code=1))
    before = world.job()
    first_ids = {publish.id for publish in world.published if isinstance(publish.fact, PlacementsRequested)}
    facts = world.restart()
    after = world.job()
    assert (after.summary, after.replicas, after.version) == (before.summary, before.replicas, before.version)
    assert after.story == before.story
    assert len(requests_of(facts)) == 68
    assert len(first_ids) == 1
    # The timer of the failed one goes on.
    assert requests_of(world.at(2_000)) == [("j1/main/1", 2)]


def test_a_restart_with_nothing_changed_publishes_the_same_requests_under_the_same_id(world: JobsWorld) -> None:
    world.submit()
    ids = [publish.id for publish in world.published if isinstance(publish.fact, PlacementsRequested)]
    world.restart()
    again = [publish.id for publish in world.published if isinstance(publish.fact, PlacementsRequested)]
    assert again == ids * 2


def test_one_replica_changes_one_page_and_not_the_job(world: JobsWorld) -> None:
    world.submit(a_spec(a_task(replicas=100)))
    world.run("j1/main/0")
    effects = world.core.handle(world.placed("j1/main/99"), world.now_ms) + world.core.handle(Wake(), world.now_ms)
    records = [effect for effect in effects if isinstance(effect, Record)]
    assert [(write.kind, write.id) for write in records[0].writes] == [("replica-page", page_id("j1", 3))]


def test_the_changes_of_a_batch_are_written_and_published_once_for_each_job(world: JobsWorld) -> None:
    world.submit(a_spec(a_task(replicas=3)))
    facts = [world.placed(f"j1/main/{index}") for index in range(3)]
    facts += [world.started(f"j1/main/{index}") for index in range(3)]
    assert [effect for fact in facts for effect in world.core.handle(fact, world.now_ms)] == []
    due_ms = world.core.deadline_ms()
    assert due_ms is not None
    assert due_ms <= world.now_ms
    effects = world.core.handle(Wake(), world.now_ms)
    assert [len(effect.writes) for effect in effects if isinstance(effect, Record)] == [2]
    published = [effect.fact for effect in effects if isinstance(effect, Publish)]
    moves = [change.state for fact in published if isinstance(fact, ReplicasChanged) for change in fact.changes]
    assert moves == ["Assigned"] * 3 + ["Starting", "Running"] * 3


def test_a_cancelled_job_publishes_its_pending_changes_first(world: JobsWorld) -> None:
    world.submit()
    world.feed(world.placed("j1/main/0"), wake=False)
    effects = world.core.handle(RequestReceived(request="r", body=CancelJob(job="j1")), world.now_ms)
    records = [effect for effect in effects if isinstance(effect, Record)]
    assert [write.expect for record in records for write in record.writes if write.kind == "replica-page"] == [1, 2]
    answer = next(effect.body for effect in effects if isinstance(effect, Reply))
    assert answer.version == records[-1].writes[0].expect + 1


def test_the_largest_job_fits_into_one_write_at_its_beginning_and_its_end(world: JobsWorld) -> None:
    world.submit(a_spec(a_task(replicas=10_000)))
    assert len(world.rows) == 315
    assert world.cancel().state == "Terminated"
    placement_requests = [publish.fact for publish in world.published if isinstance(publish.fact, PlacementsRequested)]
    assert {len(placement_request.placement_requests) for placement_request in placement_requests} == {100}


def test_requests_with_long_commands_are_split_over_messages(world: JobsWorld) -> None:
    task = a_task(replicas=50, run=RunSpec(command=("x" * 60_000,)))
    world.submit(a_spec(task))
    placement_requests = [publish.fact for publish in world.published if isinstance(publish.fact, PlacementsRequested)]
    assert sum(len(placement_request.placement_requests) for placement_request in placement_requests) == 50
    assert all(len(msgspec.json.encode(placement_request)) < 700_000 for placement_request in placement_requests)


def test_a_conflict_makes_the_core_take_what_the_store_holds(world: JobsWorld) -> None:
    world.submit()
    stored = dict(world.rows)
    # The placement is handled, but another writer was first: its row is never written here.
    world.core.handle(world.placed(), world.now_ms)
    assert world.replica().state == "Assigned"
    world.rows = stored
    facts = world.feed(Conflict(kind="replica-page", id=page_id("j1", 0), expected=1, found=2))
    assert world.replica().state == "Pending"
    assert requests_of(facts) == [("j1/main/0", 1)]
    assert world.core.counters.conflicts == 1


def test_a_job_whose_rows_were_deleted_is_forgotten_after_a_conflict(world: JobsWorld) -> None:
    world.submit()
    world.rows.clear()
    world.feed(Conflict(kind="job", id="j1", expected=1, found=0))
    assert world.core.index.jobs == {}


def test_a_job_that_cannot_be_read_is_named_and_the_others_are_loaded(world: JobsWorld) -> None:
    world.submit(job="a")
    world.submit(job="b")
    world.rows["job", "a"] = Row(id="a", value=b'{"job": "a"', version=1)
    world.restart()
    assert list(world.core.index.jobs) == ["b"]
    assert world.core.counters.unreadable_rows == 1
    assert "job/a: cannot be read" in next(one.why for one in world.own if isinstance(one, LogUnreadable))


def test_what_runs_of_a_job_that_a_newer_version_stored_is_left_alone(world: JobsWorld) -> None:
    world.submit(job="newer")
    started = world.run("newer/main/0")
    assert started
    row = world.rows["job", "newer"]
    world.rows["job", "newer"] = Row(
        id=row.id, value=row.value.replace(b'"schema":1', b'"schema":9'), version=row.version
    )
    before = dict(world.rows)
    world.restart()
    # That it could not be read is noted, and nothing else.
    assert world.rows.pop(("job-missed", "newer")).version == 1
    assert world.rows == before
    assert stops_of(world.feed(world.recovered("n1", ("newer/main/0", 1), ("unknown/main/0", 1)))) == [
        ("n1", "unknown/main/0", 1)
    ]
    assert stops_of(world.feed(world.started("newer/main/0"), world.ended("newer/main/0"))) == []
    # Whoever asks for it is told so, and not that there is none.
    for refusal in (
        world.submit(job="newer"),
        world.cancel("newer"),
        world.ask(GetJob(job="newer")),
        world.ask(ExplainWait(job="newer")),
    ):
        assert isinstance(refusal, Refusal)
        assert refusal.code == 409
        assert "job/newer: has a schema that this version does not know" in refusal.rule
    assert world.rows == before


def test_a_job_without_one_of_its_pages_is_not_loaded(world: JobsWorld) -> None:
    world.submit(a_spec(a_task(replicas=40)))
    del world.rows["replica-page", page_id("j1", 1)]
    world.restart()
    assert world.core.index.jobs == {}


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (b"[]", "cannot be read"),
        (b'{"job":"x","submitted_at_ms":1,"tasks":[]}', "must hold the job of that id"),
        (b'{"job":"j","submitted_at_ms":1,"tasks":[],"state":"Lost"}', "unknown state"),
        (b'{"job":"j","submitted_at_ms":1,"tasks":[],"schema":9}', "schema"),
    ],
)
def test_a_job_row_is_read_strictly(value: bytes, rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        decode_job(value, "j")


def test_a_replica_that_was_never_placed_takes_two_bytes(world: JobsWorld) -> None:
    world.submit(a_spec(a_task(replicas=2)))
    value = world.rows["replica-page", page_id("j1", 0)].value
    assert b'"replicas":[{},{}]' in value
    assert decode_page(value, "j1/0000").replicas[1].state == "Pending"


def test_the_oldest_ended_jobs_are_deleted_above_the_limit() -> None:
    world = JobsWorld(JobsPolicy(retention=RetentionPolicy(max_ended_jobs=2)))
    for number in range(5):
        world.submit(job=f"j{number}")
        world.cancel(f"j{number}")
        world.now_ms += 1
    assert sorted(world.core.index.jobs) == ["j3", "j4"]
    assert {id_ for kind, id_ in world.rows if kind == "job"} == {"j3", "j4"}
    assert len(world.rows) == 6


def test_a_large_surplus_is_deleted_in_several_steps() -> None:
    world = JobsWorld()
    for number in range(50):
        world.submit(job=f"j{number}")
        world.cancel(f"j{number}")
    world.policy = JobsPolicy(retention=RetentionPolicy(max_ended_jobs=1))
    world.restart()
    assert len(world.core.index.jobs) == 30
    world.at(world.now_ms + 10)
    assert len(world.core.index.jobs) == 1


def test_ended_jobs_are_limited_by_their_replicas_too() -> None:
    world = JobsWorld(JobsPolicy(retention=RetentionPolicy(max_ended_replicas=100)))
    for number in range(3):
        world.submit(a_spec(a_task(replicas=40)), job=f"j{number}")
        world.cancel(f"j{number}")
        world.now_ms += 1
    assert sorted(world.core.index.jobs) == ["j1", "j2"]


def test_an_ended_job_goes_a_stated_time_after_its_end_though_nothing_else_happens() -> None:
    world = JobsWorld(JobsPolicy(retention=RetentionPolicy(ended_ms=60_000)))
    for number in range(3):
        world.submit(job=f"j{number}")
        world.now_ms += 1_000
    world.cancel("j1")
    world.now_ms += 5_000
    world.cancel("j0")
    ended_ms = world.now_ms
    world.at(ended_ms + 54_999)
    assert sorted(world.core.index.jobs) == ["j0", "j1", "j2"]
    world.at(ended_ms + 55_000)
    assert sorted(world.core.index.jobs) == ["j0", "j2"]
    # What has not ended stays, however long it waits.
    world.at(ended_ms + 10 * 60_000)
    assert sorted(world.core.index.jobs) == ["j2"]
    assert {id_.split("/")[0] for _, id_ in world.rows} == {"j2"}


def test_the_time_of_an_ended_job_goes_on_over_a_restart() -> None:
    world = JobsWorld(JobsPolicy(retention=RetentionPolicy(ended_ms=60_000)))
    world.submit(job="j1")
    world.cancel("j1")
    ended_ms = world.now_ms
    world.now_ms += 40_000
    world.restart()
    assert world.core.deadline_ms() == ended_ms + 60_000
    world.now_ms += 30_000
    world.restart()
    assert world.rows == {}


def test_a_job_that_ended_anew_has_all_its_time() -> None:
    world = JobsWorld(JobsPolicy(retention=RetentionPolicy(ended_ms=60_000)))
    world.submit(job="j1")
    world.cancel("j1")
    # Somebody took its rows away, and it came back under its id.
    world.rows.clear()
    world.feed(Conflict(kind="job", id="j1", expected=1, found=0))
    world.now_ms += 50_000
    world.submit(job="j1")
    world.cancel("j1")
    world.at(world.now_ms + 59_999)
    assert list(world.core.index.jobs) == ["j1"]
    world.at(world.now_ms + 1)
    assert world.core.index.jobs == {}


def test_without_a_time_ended_jobs_stay_up_to_their_number() -> None:
    world = JobsWorld(JobsPolicy(retention=RetentionPolicy(ended_ms=0, max_ended_jobs=1)))
    world.submit(job="j1")
    world.cancel("j1")
    world.at(world.now_ms + 400 * 86_400_000)
    assert list(world.core.index.jobs) == ["j1"]
    world.submit(job="j2")
    world.cancel("j2")
    assert list(world.core.index.jobs) == ["j2"]


def test_a_week_is_the_time_of_an_ended_job_and_it_cannot_be_negative(world: JobsWorld) -> None:
    world.submit(job="j1")
    world.cancel("j1")
    ended_ms = world.now_ms
    world.at(ended_ms + 1_000)
    assert world.core.deadline_ms() == ended_ms + 7 * 86_400_000
    with pytest.raises(InvalidInput, match="ended_ms"):
        JobsPolicy(retention=RetentionPolicy(ended_ms=-1)).validate()


def test_the_same_events_give_the_same_effects(world: JobsWorld) -> None:
    other = JobsCore(world.policy)
    asked = RequestReceived(request="r", body=SubmitJob(job="j1", spec=a_spec(a_task(replicas=2))))
    assert world.core.handle(asked, 1_000) == other.handle(asked, 1_000)
    for event in (world.placed("j1/main/1"), world.started("j1/main/1"), world.ended("j1/main/1", code=3)):
        assert world.core.handle(event, 1_000) == other.handle(event, 1_000)


def test_a_story_is_bounded_and_keeps_its_beginning(world: JobsWorld) -> None:
    world.submit()
    for attempt in range(1, 60):
        world.run(attempt=attempt)
        world.feed(world.ended(attempt=attempt, cause=EndCause.EVICTED, code=143))
        world.at(world.now_ms + 60_000)
    story = world.job().story
    assert story[0].what == "submitted: 1 replica in 1 task"
    assert len(story) <= 84


def test_a_restart_keeps_the_order_of_waiting(world: JobsWorld) -> None:
    for job in ("c", "a", "b"):
        world.now_ms += 1
        world.submit(job=job)
    world.restart()
    assert [job.id for job, _ in world.core.index.pending()] == ["c", "a", "b"]


def test_much_is_checked_in_turn(world: JobsWorld) -> None:
    for number in range(3):
        world.submit(a_spec(a_task(replicas=9_000)), job=f"j{number}")
    world.core.index.jobs["j1"].counts[0]["Running"] += 1
    broken = 0
    for _ in range(3):
        try:
            world.core.check()
        except InvariantBroken:
            broken += 1
    assert broken >= 1
