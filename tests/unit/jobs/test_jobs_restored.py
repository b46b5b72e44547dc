"""The store was emptied while no jobs service was alive: accepted jobs come back from the facts that the stream keeps."""

from collections.abc import Iterable

from msgspec import structs
from structlog.testing import capture_logs

from colo_common.adapters.clock import SystemClock
from colo_common.adapters.store_memory import MemoryStore
from colo_common.events.fact import Fact
from colo_common.events.job import JobStateChanged, ReplicasChanged
from colo_common.events.requests import HoldEntry, HoldsListed
from colo_common.model.placement import ZoneShare
from colo_common.model.reasons import EndCause
from colo_common.ports import Row
from colo_jobs.effects import AskHolds, JobsLost
from colo_jobs.rebuild import REBUILT_FROM, FactsOfJobs
from colo_jobs.records import MARK_KIND
from colo_jobs.shell import JobsShell
from tests.support.jobs_world import JobsWorld, a_spec, a_task, requests_of, stops_of
from tests.support.kept_facts import KeptFacts
from tests.support.vloop import run_virtual


def folded(facts: Iterable[Fact]) -> FactsOfJobs:
    found = FactsOfJobs()
    for fact in facts:
        if isinstance(fact, REBUILT_FROM):
            found.take(fact)
    return found


def an_emptied(world: JobsWorld, first: int = 0) -> tuple[JobsWorld, FactsOfJobs]:
    """Another service on an empty store, and what it finds in the stream, of which the first facts are gone."""
    return JobsWorld(), folded(publish.fact for publish in world.published[first:])


def test_unfinished_jobs_wait_again_with_newer_attempts_and_what_has_ended_stays_so() -> None:
    world = JobsWorld()
    world.submit(a_spec(a_task(replicas=3)), job="half")
    world.run("half/main/0")
    world.feed(world.ended("half/main/0"))
    world.run("half/main/1")
    world.submit(job="done")
    world.run("done/main/0")
    world.feed(world.ended("done/main/0"))
    world.submit(job="cancelled")
    world.run("cancelled/main/0")
    world.cancel("cancelled")
    again, facts = an_emptied(world)
    published = again.feed(JobsLost(jobs=facts.lost()))
    assert requests_of(published) == [("half/main/1", 2), ("half/main/2", 1)]
    assert [again.replica(f"half/main/{index}").state for index in range(3)] == ["Succeeded", "Pending", "Pending"]
    assert (again.state("half"), again.state("cancelled")) == ("Running", "Terminated")
    assert "done" not in again.core.index.jobs
    assert [row.value for row in again.of_kind(MARK_KIND)] == [b"used"]
    # What still runs of the old attempts is stopped, and the rest is finished as ever.
    assert AskHolds() in again.own
    hold = HoldEntry(
        node="n7", replica="half/main/1", attempt=1, zones=(ZoneShare(zone=0, cpu_mcpu=1_000, memory_bytes=1),)
    )
    assert stops_of(again.feed(HoldsListed(holds=(hold,), asked_at_ms=5))) == [("n7", "half/main/1", 1)]
    again.restart()
    for index, attempt in ((1, 2), (2, 1)):
        again.run(f"half/main/{index}", attempt=attempt)
        again.feed(again.ended(f"half/main/{index}", attempt=attempt))
    assert again.state("half") == "Completed"


def test_a_job_whose_acceptance_is_not_kept_any_more_is_named() -> None:
    world = JobsWorld()
    world.submit()
    again, facts = an_emptied(world, first=1)
    assert (facts.lost(), facts.unknown) == ((), ("j1",))
    again.feed(JobsLost(jobs=facts.lost(), unknown=facts.unknown))
    assert AskHolds() not in again.own
    # Until somebody submits it again.
    again.submit(job="other")
    assert again.core.unknown == {"j1"}
    again.submit()
    assert again.core.unknown == set()


def test_every_job_that_nobody_can_rebuild_is_logged_with_its_id() -> None:
    jobs = tuple(f"j{number:03}" for number in range(250))
    kept = tuple(
        JobStateChanged(job=job, queue="q", state="Running", previous="Pending", transition="J3", version=2)
        for job in jobs
    )
    with capture_logs() as lines:
        loaded = run_virtual(JobsShell(MemoryStore(), SystemClock(), replay=KeptFacts(kept)).load())
    lost = loaded[-1]
    assert isinstance(lost, JobsLost)
    assert (lost.jobs, lost.unknown) == ((), jobs)
    named = [line for line in lines if line["event"] == "jobs-unknown"]
    assert [(line["number"], line["of"], line["not_named"]) for line in named] == [
        (1, 250, 0),
        (101, 250, 0),
        (201, 250, 0),
    ]
    assert [job for line in named for job in line["jobs"]] == list(jobs)


def test_a_store_in_use_gets_back_what_it_lost_last_and_its_other_jobs_are_compared_with_the_ledger() -> None:
    world = JobsWorld()
    world.submit(job="kept")
    world.run("kept/main/0")
    kept = dict(world.rows)
    # Of this one its row lacks the end: it is only to be asked for.
    world.feed(world.ended("kept/main/0"))
    world.submit(job="lost")
    world.run("lost/main/0")
    facts = folded(publish.fact for publish in world.published)
    # Redis starts again as it was a second ago, and jobs too.
    world.rows, world.own = kept, []
    world.restart()
    assert "lost" not in world.core.index.jobs
    lost = tuple(job for job in facts.lost() if job.job == "lost")
    for _ in range(2):
        world.feed(JobsLost(jobs=lost, mark_version=None, moved=facts.moved))
    assert (world.replica("lost/main/0").state, world.replica("lost/main/0").attempt) == ("Pending", 1)
    assert world.core.counters.jobs_restored == 1
    assert world.of_kind(MARK_KIND) == ()
    assert AskHolds() in world.own
    # What the ledger holds goes on; of a job whose place is not there any more its node says how it ended.
    hold = HoldEntry(
        node="n7", replica="lost/main/0", attempt=1, zones=(ZoneShare(zone=0, cpu_mcpu=1_000, memory_bytes=1),)
    )
    stops = stops_of(world.feed(HoldsListed(holds=(hold,), asked_at_ms=5)))
    assert [replica for _, replica, _ in stops] == ["kept/main/0"]
    world.run("lost/main/0", node="n7")
    assert world.replica("lost/main/0").state == "Running"


def a_store_of_a_second_ago(world: JobsWorld, rows: dict[tuple[str, str], Row]) -> tuple[FactsOfJobs, list[Fact]]:
    """Redis starts again with these rows, and jobs with it: the facts of the stream, and what jobs publishes at its start."""
    facts = folded(publish.fact for publish in world.published)
    world.rows = dict(rows)
    world.restart()
    known = world.core.index.jobs
    lost = tuple(job for job in facts.lost() if job.job not in known)
    event = JobsLost(jobs=lost, mark_version=None, moved=facts.moved, ends=tuple(facts.ends.values()))
    return facts, world.feed(event)


def test_a_job_that_was_accepted_and_ended_in_the_lost_second_is_known_as_ended() -> None:
    world = JobsWorld()
    rows = dict(world.rows)
    world.submit(a_spec(a_task(replicas=2), a_task("other", max_retry=0)), job="done")
    for name, code in (("done/main/0", 0), ("done/main/1", 0), ("done/other/0", 3)):
        world.run(name)
        world.feed(world.ended(name, code=code))
    before = world.job("done")
    assert before.summary.state == "Failed"
    for _ in range(2):
        _, published = a_store_of_a_second_ago(world, rows)
        assert published == []
        after = world.job("done")
        assert after.summary == before.summary
        # Which zones they had is published nowhere.
        assert after.replicas == tuple(structs.replace(one, zones=()) for one in before.replicas)
        rows = dict(world.rows)
    assert AskHolds() not in world.own
    # It is counted and kept as every ended job, and its id is taken.
    assert world.submit(job="done").code == 409
    world.restart()
    assert world.state("done") == "Failed"


def test_a_row_that_is_older_than_the_published_end_is_moved_to_it() -> None:
    world = JobsWorld()
    world.submit(a_spec(a_task(replicas=3, min_succeeded=1)), job="done")
    world.submit(a_spec(a_task(replicas=2)), job="gone")
    for replica in ("done/main/0", "done/main/1", "gone/main/0"):
        world.run(replica)
    rows = dict(world.rows)
    world.feed(world.ended("done/main/0"))
    world.feed(world.ended("done/main/1", cause=EndCause.STOPPED))
    world.cancel("gone")
    world.feed(world.ended("gone/main/0", cause=EndCause.STOPPED))
    before = world.job("done"), world.job("gone")
    assert [job.summary.state for job in before] == ["Completed", "Terminated"]
    _, published = a_store_of_a_second_ago(world, rows)
    assert published == []
    after = world.job("done"), world.job("gone")
    assert [job.replicas for job in after] == [job.replicas for job in before]
    assert [job.summary for job in after] == [job.summary for job in before]


def test_what_was_cancelled_in_the_lost_second_is_stopped_again() -> None:
    world = JobsWorld()
    world.submit(job="gone")
    world.run("gone/main/0")
    rows = dict(world.rows)
    world.cancel("gone")
    assert world.state("gone") == "Terminating"
    _, published = a_store_of_a_second_ago(world, rows)
    assert stops_of(published) == [("n1", "gone/main/0", 1)]
    assert world.state("gone") == "Terminating"
    world.feed(world.ended("gone/main/0", cause=EndCause.STOPPED))
    assert world.state("gone") == "Terminated"


def test_a_job_that_came_back_under_its_id_after_the_published_end_goes_on() -> None:
    world = JobsWorld()
    world.submit(job="again")
    world.run("again/main/0")
    world.feed(world.ended("again/main/0"))
    ended = dict(world.rows)
    published = list(world.published)
    world.rows.clear()
    world.restart()
    world.now_ms += 1
    world.submit(job="again")
    # Its acceptance was recorded and waits to be published.
    world.published = published
    a_store_of_a_second_ago(world, dict(world.rows))
    assert world.state("again") == "Inqueue"
    a_store_of_a_second_ago(world, ended)
    assert world.state("again") == "Completed"


def test_a_job_that_cannot_be_read_is_not_accepted_again() -> None:
    world = JobsWorld()
    world.submit()
    facts = folded(publish.fact for publish in world.published)
    key = ("job", "j1")
    world.rows[key] = structs.replace(world.rows[key], value=b"not a job")
    world.restart()
    world.feed(JobsLost(jobs=facts.lost(), mark_version=None))
    assert world.core.index.jobs == {}


def test_a_restoration_that_a_crash_cut_off_goes_on() -> None:
    world = JobsWorld()
    world.submit(job="a")
    world.submit(job="b")
    again, facts = an_emptied(world)
    first, second = facts.lost()
    again.feed(JobsLost(jobs=(first,)))
    begun = again.of_kind(MARK_KIND)[0]
    again.restart()
    again.feed(JobsLost(jobs=(first, second), mark_version=begun.version))
    assert sorted(again.core.index.jobs) == ["a", "b"]


def test_a_version_that_a_store_gives_again_after_it_lost_its_last_second_hides_no_fact() -> None:
    """The bus drops a message of an id that it had within two minutes."""
    world = JobsWorld()
    world.submit()
    world.feed(world.placed())
    kept = dict(world.rows)

    def published_after(fact: Fact) -> set[str]:
        """The ids of what comes of it a second later, on the rows that were kept."""
        world.rows = dict(kept)
        world.restart()
        world.now_ms += 1_000
        begin = len(world.published)
        world.feed(fact)
        return {publish.id for publish in world.published[begin:] if isinstance(publish.fact, ReplicasChanged)}

    first = published_after(world.started())
    assert first
    assert published_after(world.started()) == first, "the same moves are told once"
    assert not published_after(world.refused()) & first
