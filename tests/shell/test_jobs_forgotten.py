"""A job that was deleted a stated time after its end is no job that the store has lost."""

import pytest

from colo_common.adapters.store_memory import MemoryStore
from colo_common.events.effects import Write
from colo_common.model.partition import WHOLE
from colo_jobs.effects import JobsLost
from colo_jobs.records import MARK_KIND, MARK_USED, mark_id
from colo_jobs.retention import RetentionPolicy
from colo_jobs.shell import JobsShell
from tests.support.jobs_world import JobsWorld
from tests.support.kept_facts import KeptFacts
from tests.support.vloop import VirtualClock, run_virtual


@pytest.mark.parametrize(("age_ms", "comes_back"), [(59_000, ["done"]), (60_000, [])])
def test_what_was_published_of_a_job_brings_it_back_only_within_its_time(age_ms: int, comes_back: list[str]) -> None:
    world = JobsWorld()
    world.submit(job="done")
    world.cancel("done")
    stream = KeptFacts([publish.fact for publish in world.published])

    async def found() -> JobsLost:
        store = MemoryStore()
        await store.write([Write(kind=MARK_KIND, id=mark_id(WHOLE), value=MARK_USED, expect=0)])
        clock = VirtualClock(world.now_ms + age_ms)
        shell = JobsShell(store, clock, replay=stream, retention=RetentionPolicy(ended_ms=60_000))
        return next(event for event in await shell.load() if isinstance(event, JobsLost))

    assert [end.job for end in run_virtual(found()).ends] == comes_back
