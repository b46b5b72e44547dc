"""What a node reports one after the other is taken in that order, although reports wait for one another in the inbox."""

import asyncio

from colo_common.events.enforcement import NodeRecovered, PlacementRefused, ReplicaEnded, ReplicaStarted
from colo_common.events.fact import Fact
from colo_common.events.job import PlacementsRequested, ReplicasChanged, StopReplicas
from colo_common.events.node import FreshnessChanged
from colo_common.events.placement import ApplyPlacements, PlacementsDecided
from colo_common.events.requests import SubmitJob
from colo_common.model.freshness import Freshness
from colo_common.model.reasons import EndCause, Reason
from colo_common.runtime.ask import ask
from tests.shell.test_jobs_shell import House as JobsHouse
from tests.shell.test_scheduler_shell import House as SchedulerHouse
from tests.shell.test_scheduler_shell import a_cluster
from tests.support.builders import GIB, a_placement
from tests.support.jobs_world import a_spec, a_task
from tests.support.scheduler_story import a_placement_request, an_allocatable
from tests.support.vloop import run_virtual

FRESH, STALE = Freshness.FRESH, Freshness.STALE

# From one report to the next: shorter than reports may wait.
_NEXT_S = 0.005


async def published_quickly(house: JobsHouse | SchedulerHouse, *facts: Fact) -> None:
    """One after the other, each before the last one is handled; then there is time for all."""
    for fact in facts:
        saying = asyncio.ensure_future(house.say(fact))
        await asyncio.sleep(_NEXT_S)
    await saying


def test_a_place_that_is_refused_at_once_needs_no_stop() -> None:
    async def story() -> None:
        async with JobsHouse() as house:
            await ask(house.bus, SubmitJob(job="j", spec=a_spec(a_task())))
            await published_quickly(
                house,
                PlacementsDecided(placements=(a_placement("j/main/0"),)),
                PlacementRefused(node="n1", replica="j/main/0", job="j", attempt=1, reason=Reason.CGROUP_REFUSED),
            )
            assert [fact.placement_requests[0].attempt for fact in house.reported(PlacementsRequested)] == [1, 2]
            assert house.reported(StopReplicas) == []

    run_virtual(story())


def test_what_ended_before_its_executor_came_back_is_not_missed_there() -> None:
    async def story() -> None:
        async with JobsHouse() as house:
            await ask(house.bus, SubmitJob(job="j", spec=a_spec(a_task())))
            await published_quickly(
                house,
                PlacementsDecided(placements=(a_placement("j/main/0"),)),
                ReplicaStarted(node="n1", replica="j/main/0", job="j", attempt=1),
            )
            await published_quickly(
                house,
                ReplicaEnded(node="n1", replica="j/main/0", job="j", attempt=1, cause=EndCause.EXITED, exit_code=0),
                NodeRecovered(node="n1", running=()),
            )
            states = [change.state for fact in house.reported(ReplicasChanged) for change in fact.changes]
            assert states == ["Assigned", "Starting", "Running", "Succeeded"]

    run_virtual(story())


def test_what_ended_before_its_executor_came_back_is_not_ordered_again() -> None:
    async def story() -> None:
        async with SchedulerHouse() as house:
            await a_cluster(house)
            await house.say(PlacementsRequested(placement_requests=(a_placement_request("j/t/0"),)))
            assert len(house.reported(ApplyPlacements)) == 1
            await published_quickly(
                house,
                ReplicaEnded(node="n1", replica="j/t/0", job="j", attempt=1, cause=EndCause.EXITED, exit_code=0),
                NodeRecovered(node="n1", running=()),
            )
            assert len(house.reported(ApplyPlacements)) == 1

    run_virtual(story())


def test_a_node_that_is_heard_again_gives_what_is_promised_now() -> None:
    async def story() -> None:
        async with SchedulerHouse() as house:
            await a_cluster(house)
            now_ms = house.clock.now_ms()
            await house.say(
                FreshnessChanged(at_ms=now_ms, node="n1", freshness=STALE, previous=FRESH, sample_seq=1, age_ms=0)
            )
            await house.say(PlacementsRequested(placement_requests=(a_placement_request("j/t/0", mcpu=2000),)))
            assert house.reported(PlacementsDecided) == []
            now_ms = house.clock.now_ms()
            await house.say(
                FreshnessChanged(at_ms=now_ms, node="n1", freshness=FRESH, previous=STALE, sample_seq=2, age_ms=0),
                an_allocatable("n1", [(1000, 8 * GIB)], at_ms=now_ms),
            )
            assert house.reported(PlacementsDecided) == []

    run_virtual(story())
