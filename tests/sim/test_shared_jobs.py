"""Worlds in which several instances of jobs share the jobs: a share moves in time, and nothing is lost or done twice by it."""

from __future__ import annotations

import pytest

from colo_sim.faults import FORGETFUL, FORGETFUL_STREAMS, HARSH, NO_NETWORK_FAULTS, FaultPlan
from colo_sim.world import World, WorldSettings
from tests.sim.drawn import settings_from
from tests.sim.lives import lived, versions
from tests.sim.test_world import live, living
from tests.support.older_wire import OlderWire
from tests.support.profiles import seeds

pytestmark = [pytest.mark.sim, pytest.mark.timeout(240)]

PARTITIONS = 4
NO_FAULTS = FaultPlan(network_faults=NO_NETWORK_FAULTS, quiet_after_ms=0, weights=())
MOVES_WITHIN_MS = 10_000
MINUTE_MS = 60_000


def calm(seed: int, partitions: int) -> WorldSettings:
    """A world without faults in which two instances share the jobs, some of which are submitted late."""
    return WorldSettings(
        seed=seed,
        nodes=6,
        job_sharers=2,
        job_partitions=partitions,
        faults=NO_FAULTS,
        spikes=0,
        jobs=24,
        jobs_within_ms=150_000,
    )


def shares(world: World) -> list[int]:
    """How many partitions each instance that runs serves."""
    return [len(process.role.cores) for process in world.all_jobs if process.is_up]


def test_a_share_moves_within_ten_seconds_and_every_job_ends_once() -> None:
    with living(calm(14, PARTITIONS)) as world:
        world.run_until(MINUTE_MS)
        assert shares(world) == [2, 2]
        assert {core.share.partition for core in world.jobs_cores} == set(range(PARTITIONS))
        assert all(core.index.jobs for core in world.jobs_cores)
        world.all_jobs[0].crash()
        world.run_until(MINUTE_MS + MOVES_WITHIN_MS)
        assert shares(world) == [PARTITIONS]
        world.all_jobs[0].start()
        world.run_until(MINUTE_MS + 2 * MOVES_WITHIN_MS)
        assert shares(world) == [2, 2]
        # One that stands still and wakes up finds that its share is another's.
        world.all_jobs[1].stop()
        world.run_until(2 * MINUTE_MS)
        assert shares(world)[0] == PARTITIONS
        world.all_jobs[1].resume()
        world.run_until(2 * MINUTE_MS + MOVES_WITHIN_MS)
        assert shares(world) == [2, 2]
        assert world.run().judged["ReplicaEnded"] > 24


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 3)])
def test_the_number_of_partitions_is_changed_by_a_rolling_restart(before: int, after: int) -> None:
    with living(calm(15, before)) as world:
        world.run_until(MINUTE_MS)
        assert sum(shares(world)) == before
        world.partitions["jobs"] = after
        for number in (0, 1):
            world.all_jobs[number].crash()
            world.all_jobs[number].start()
            world.run_until(MINUTE_MS + (number + 1) * MOVES_WITHIN_MS)
            # The first one waits for the other one, which has the old number and holds everything meanwhile.
            assert sum(shares(world)) == (before if number == 0 else after)
        assert {core.share.partitions for core in world.jobs_cores} == {after}
        assert world.run().judged["ReplicaEnded"] > 24


@pytest.mark.parametrize("seed", seeds((4,), nightly=range(40)))
def test_a_rolling_update_of_those_that_share_the_jobs_loses_and_doubles_nothing(seed: int) -> None:
    settings = WorldSettings(
        seed=seed, job_sharers=2, job_partitions=PARTITIONS, schedulers=2, shards=4, faults=HARSH, other_versions=9
    )
    life = lived(settings)
    assert not life.broken, "\n".join((life.broken, *life.lines[-40:]))
    assert life.outcome.reached["versions changed"] >= 9
    assert life.outcome.judged["ReplicaEnded"] > 10


def test_beside_those_that_share_the_jobs_no_version_runs_that_does_not_know_of_it() -> None:
    drawn = [settings_from(seed) for seed in range(60)]
    both = [settings for settings in drawn if settings.other_versions and settings.job_partitions]
    assert len(both) > 3
    assert all(not isinstance(version, OlderWire) for settings in both for version in versions(settings))


@pytest.mark.parametrize("seed", seeds((4, 9, 17), nightly=range(40)))
@pytest.mark.parametrize("faults", [HARSH, FORGETFUL, FORGETFUL_STREAMS], ids=["harsh", "forgetful", "streams"])
def test_whatever_strikes_those_that_share_every_job_ends_and_nothing_runs_twice(seed: int, faults: FaultPlan) -> None:
    settings = WorldSettings(
        seed=seed,
        job_sharers=2 + seed % 2,
        job_partitions=PARTITIONS,
        schedulers=2,
        shards=4,
        jobs_within_ms=60_000,
        faults=faults,
    )
    outcome = live(settings)[1]
    for judged in ("commits", "launches", "ReplicaEnded", "ReplicasChanged"):
        assert outcome.judged[judged] > 10, f"the invariant checker saw too little: {outcome.judged}"
