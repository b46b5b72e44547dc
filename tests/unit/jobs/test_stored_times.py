"""The wall clock was set between two starts, or the next start is on a machine with another one."""

import pytest

from colo_common.model.reasons import EndCause
from colo_jobs.policy import JobsPolicy
from colo_jobs.requeue import RetryPolicy
from tests.support.jobs_world import JobsWorld, a_spec, a_task, requests_of

HOUR_MS = 3_600_000
BEGIN_MS = 10 * HOUR_MS
RETRY = RetryPolicy()


@pytest.fixture
def world() -> JobsWorld:
    world = JobsWorld(JobsPolicy(retry=RETRY))
    world.now_ms = BEGIN_MS
    world.submit(a_spec(a_task(max_retry=5)))
    world.run()
    return world


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS], ids=["forth", "back"])
def test_the_lost_time_of_a_replica_is_neither_over_at_once_nor_longer_after_a_restart(
    world: JobsWorld, step_ms: int
) -> None:
    world.feed(world.freshness())
    world.now_ms += 10_000 + step_ms
    assert requests_of(world.restart()) == []
    assert world.replica().state == "Unknown"
    begin_ms = world.now_ms
    assert requests_of(world.at(begin_ms + RETRY.lost_after_ms - 1)) == []
    assert requests_of(world.at(begin_ms + RETRY.lost_after_ms)) == [("j1/main/0", 2)]


def test_the_lost_time_goes_on_after_a_restart_under_the_same_clock(world: JobsWorld) -> None:
    world.feed(world.freshness())
    since_ms = world.now_ms
    world.now_ms += 10_000
    world.restart()
    assert requests_of(world.at(since_ms + RETRY.lost_after_ms)) == [("j1/main/0", 2)]


def test_a_retry_waits_no_longer_than_any_retry_when_the_clock_went_back(world: JobsWorld) -> None:
    world.feed(world.ended(code=1))
    assert world.replica().state == "Backoff"
    world.now_ms -= HOUR_MS
    world.restart()
    assert requests_of(world.at(world.now_ms + RETRY.backoff_max_ms)) == [("j1/main/0", 2)]


def test_no_node_is_left_out_for_longer_than_any_is_when_the_clock_went_back(world: JobsWorld) -> None:
    world.feed(world.ended(cause=EndCause.EVICTED, code=143))
    ((_, until_ms),) = world.replica().avoid
    world.now_ms -= HOUR_MS
    world.restart()
    ((node, read_ms),) = world.replica().avoid
    assert node == "n1"
    assert read_ms == world.now_ms + RETRY.avoid_max_ms < until_ms
    assert [strike.at_ms for strike in world.replica().strikes] == [world.now_ms]
