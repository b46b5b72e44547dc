"""Stories: kept as short rows, read as sentences, also those that an earlier version kept."""

import msgspec
import pytest

from colo_common.model.invalid import InvalidInput
from colo_common.model.reasons import EndCause, Reason
from colo_common.ports import Row
from colo_jobs.records import PageRecord, ReplicaRecord, decode_job, decode_page, encode, page_id
from colo_jobs.story import Line, Moved, drop_oldest
from tests.support.jobs_world import JobsWorld, a_spec, a_task


@pytest.fixture
def world() -> JobsWorld:
    return JobsWorld()


def sentences(world: JobsWorld) -> list[str]:
    return [line.what for line in world.job().story]


def test_a_line_names_the_replica_whatever_page_it_is_on_and_after_a_restart(world: JobsWorld) -> None:
    world.submit(a_spec(a_task("first", replicas=30, max_retry=1), a_task("second", replicas=30)))
    world.run("j1/first/0")
    world.run("j1/second/29", node="n2")
    world.feed(world.ended("j1/first/0", cause=EndCause.OOM, code=137))
    lines = sentences(world)
    assert "j1/first/0#1 Running -> Backoff (exit on n1, oom, exit code 137)" in lines
    assert "j1/second/29#1 Starting -> Running (ready on n2)" in lines
    world.restart()
    assert sentences(world) == lines


def test_a_line_has_the_reason_without_an_exit_code(world: JobsWorld) -> None:
    world.submit()
    world.feed(world.placed())
    world.feed(world.refused(reason=Reason.CGROUP_REFUSED))
    assert sentences(world)[-1] == "j1/main/0#1 Assigned -> Pending (place_failed on n1, cgroup-refused)"


def test_a_sentence_has_at_most_240_characters() -> None:
    line = Line(1, 0, Moved(0, 1, "R01", "Pending", "n" * 250, ""))
    assert len(line.sentence(str)) == 240
    assert line.sentence(str).endswith("...")
    assert Line(1, 0, "x" * 240).sentence(str) == "x" * 240


def test_a_page_of_the_first_schema_is_read_and_written_as_the_present_one(world: JobsWorld) -> None:
    world.submit()
    id_ = page_id("j1", 0)
    old = {"replicas": [{}], "story": [[1_000, 7, "j1/main/0#1 did something"]], "schema": 1}
    world.rows["replica-page", id_] = Row(id=id_, value=msgspec.json.encode(old), version=1)
    world.restart()
    assert "j1/main/0#1 did something" in sentences(world)
    world.feed(world.placed())
    page = decode_page(world.rows["replica-page", id_].value, id_)
    assert page.schema == 2
    assert [type(line.what) for line in page.story] == [str, Moved]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"schema": 3}, "knows 1 and 2"),
        ({"story": [Line(1, 0, Moved(0, 1, "R99", "Pending", "", ""))]}, "unknown transition"),
        ({"story": [Line(1, 0, Moved(1, 1, "R01", "Pending", "", ""))]}, "not among its 1"),
        ({"story": [Line(1, 0, Moved(-1, 1, "R01", "Pending", "", ""))]}, "not among its 1"),
    ],
)
def test_a_page_row_is_read_strictly(change: dict[str, object], rule: str) -> None:
    page = msgspec.structs.replace(PageRecord(replicas=[ReplicaRecord()]), **change)
    with pytest.raises(InvalidInput, match=rule):
        decode_page(encode(page), "j/0000")


def test_a_job_row_has_no_moves_of_replicas() -> None:
    value = b'{"job":"j","submitted_at_ms":1,"tasks":[],"story":[[1,0,[0,1,"R01","Pending","n1",""]]]}'
    with pytest.raises(InvalidInput, match="not among its 0"):
        decode_job(value, "j")


def test_the_submission_and_evictions_stay_when_other_lines_are_dropped() -> None:
    story = [Line(0, 0, "submitted: 1 replica in 1 task")]
    for seq in range(1, 200):
        why = ", evicted" if seq in (3, 50) else ""
        story.append(Line(seq, seq, Moved(0, 1, "R06", "Running", "n1", why)))
        drop_oldest(story, 12)
    assert [line.seq for line in story] == [0, 3, 50, *range(191, 200)]


def test_a_story_of_evictions_alone_keeps_the_newest_as_well() -> None:
    story = [Line(0, 0, "submitted")]
    for seq in range(1, 100):
        story.append(Line(seq, seq, Moved(0, 1, "R06", "Running", "n1", ", evicted")))
        drop_oldest(story, 12)
    assert (story[0].seq, story[-1].seq, len(story)) == (0, 99, 12)
