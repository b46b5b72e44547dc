"""A stream loses its newest facts, which some services had received and others had not: the others hear of them all the same."""

from __future__ import annotations

import pytest

from colo_common.events.fact import Fact
from colo_common.events.job import StopReplicas
from colo_common.model.placement import Attempt
from colo_sim.world import World
from tests.sim.test_total_loss import MINUTE_MS, a_world, known_places, ledger_places, no_node_restarted, places

pytestmark = pytest.mark.sim

EXIT_CODE = 7


def fail_one(world: World) -> Attempt:
    """Let a batch replica fail by itself; returns its attempt."""
    node, found = min(
        ((node, one) for node in world.nodes.values() for one in node.advance().replicas if "job-" in one.replica),
        key=lambda each: each[1].replica,
    )
    assert node.machine.crash_replica(found.replica, EXIT_CODE)
    return found.replica, found.attempt


def is_held(world: World, attempt: Attempt) -> bool:
    return attempt in [place[1:] for place in ledger_places(world)]


def known_end(world: World, attempt: Attempt) -> tuple[int, int | None, int]:
    """The present attempt of the replica as jobs knows it, with the exit code of the last one and the number of failures."""
    found = world.jobs_core.index.find(attempt[0])
    assert found is not None
    record = found[0].replica(found[1])
    return record.attempt, record.exit_code, record.retries


def lose_an_end(world: World) -> Attempt:
    """A replica fails, the scheduler hears of it and releases its place, and the stream loses that before jobs receives it."""
    world.run_until(3 * MINUTE_MS)
    world.jobs.cut()
    attempt = fail_one(world)
    world.run_until(world.elapsed_ms + 3_000)
    assert not is_held(world, attempt)
    assert attempt in [place[1:] for place in known_places(world)]
    lost, found = world.bus.lose_since(world.event_queue.now_ms - 5_000)
    assert lost
    assert found
    return attempt


@pytest.mark.parametrize("dies", ["nobody", "scheduler", "jobs"])
def test_an_end_that_the_scheduler_alone_received_is_told_again_with_its_exit_code(dies: str) -> None:
    """The scheduler says that facts are lost, or begins anew and cannot know. The node says again how the attempt ended."""
    with a_world() as world:
        attempt = lose_an_end(world)
        # Before it can find out.
        dead = [process for process in world.services if process.key == dies]
        for process in dead:
            process.crash()
        world.run_until(world.elapsed_ms + 10_000)
        for process in dead:
            process.start()
        world.jobs.heal()
        world.run_until(world.elapsed_ms + 2 * MINUTE_MS)
        assert known_end(world, attempt) == (2, EXIT_CODE, 1)
        assert places(world) == known_places(world) == ledger_places(world)
        assert no_node_restarted(world)


def test_an_end_is_told_again_also_where_the_order_to_tell_it_is_lost_as_well() -> None:
    with a_world() as world:
        attempt = lose_an_end(world)
        world.jobs.heal()
        checked, ordered, ordered_ms = world.bus.stored, list[Attempt](), list[int]()

        def stored(fact: Fact, msg_id: str) -> None:
            checked(fact, msg_id)
            if isinstance(fact, StopReplicas):
                ordered.extend((stop.replica, stop.attempt) for stop in fact.stops)
                ordered_ms.append(world.event_queue.now_ms)

        world.bus.stored = stored
        for _ in range(MINUTE_MS):
            if ordered:
                break
            world.run_until(world.elapsed_ms + 1)
        assert ordered == [attempt]
        lost, _ = world.bus.lose_since(ordered_ms[0])
        assert lost
        world.run_until(world.elapsed_ms + MINUTE_MS // 2)
        assert known_end(world, attempt) == (1, None, 0)
        world.run_until(world.elapsed_ms + 2 * MINUTE_MS)
        assert ordered == [attempt] * 2
        assert known_end(world, attempt) == (2, EXIT_CODE, 1)
        assert places(world) == known_places(world) == ledger_places(world)
