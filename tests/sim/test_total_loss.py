"""Stores are emptied, or restored as they were a while ago, or a node forgets everything: nothing runs on that nobody knows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from colo_common.model.placement import Attempt
from colo_common.ports import Row
from colo_executor.core import ExecutorPolicy
from colo_executor.journal_lines import JournalState
from colo_scheduler.ledger.memory import MemoryLedger
from colo_sim.faults import NO_NETWORK_FAULTS, FaultPlan
from colo_sim.world import World, WorldSettings
from colo_sim.world_client import JobPlan

pytestmark = pytest.mark.sim

MINUTE_MS = 60_000
NO_FAULTS = FaultPlan(network_faults=NO_NETWORK_FAULTS, quiet_after_ms=0, weights=())
SETTINGS = WorldSettings(
    seed=5, nodes=3, jobs=6, online_jobs=4, jobs_within_ms=2 * MINUTE_MS, skew_most_ms=0, spikes=0, faults=NO_FAULTS
)
#: Until a replica that nobody orders is said to run, the order to stop it arrives, and its grace is over.
STOPPED_MS = ExecutorPolicy().unconfirmed_ms + 2 * MINUTE_MS


def for_hours(plan: JobPlan) -> JobPlan:
    """The job with work for hours, and never cancelled."""
    tasks = tuple(
        replace(t, run=replace(t.run, work_mcpu_ms=t.request.cpu_mcpu * 600 * MINUTE_MS)) for t in plan.spec.tasks
    )
    return replace(plan, spec=replace(plan.spec, tasks=tasks), cancel_after_ms=None)


@contextmanager
def a_world() -> Iterator[World]:
    """A world of work that lasts for hours, until the end of the block."""
    with World(SETTINGS) as world:
        world.client.plans = tuple(for_hours(plan) for plan in world.client.plans)
        yield world


def running(world: World) -> set[Attempt]:
    """What the machines run, whatever anybody believes."""
    return {(one.replica, one.attempt) for node in world.nodes.values() for one in node.advance().replicas}


def places(world: World) -> list[tuple[str, str, int]]:
    """What the machines run, and where."""
    return sorted(
        (name, one.replica, one.attempt) for name, node in world.nodes.items() for one in node.advance().replicas
    )


def known_places(world: World) -> list[tuple[str, str, int]]:
    """What jobs knows to be on a node, and on which."""
    return sorted(
        (record.node, job.name(index), record.attempt)
        for job in world.jobs_core.index.jobs.values()
        for index, record in job.replicas()
        if record.node
    )


def ledger_places(world: World) -> list[tuple[str, str, int]]:
    """What the ledger holds, and on which node."""
    rows = asyncio.run(world.ledger.truth.rows(sorted(world.nodes)))
    return sorted((row.node, *hold.attempt) for row in rows for hold in row.holds)


def known(world: World) -> set[Attempt]:
    """What jobs knows to be on a node."""
    return {
        (job.name(index), record.attempt)
        for job in world.jobs_core.index.jobs.values()
        for index, record in job.replicas()
        if record.node
    }


def no_node_restarted(world: World) -> bool:
    return all(node.executor.boots == 1 for node in world.nodes.values())


def lose_all(world: World, rows: dict[str, dict[str, Row]], holds: object) -> None:
    """Every service dies, and Redis is as it was with these rows and holds; the streams are empty."""
    for process in world.services:
        process.crash()
    world.store.lose_since(rows)
    world.ledger.truth.lose_since(holds)
    world.bus.empty()
    for process in world.services:
        process.start()


def test_what_runs_after_a_total_loss_is_stopped_within_two_minutes_on_nodes_that_never_restarted() -> None:
    """Overcommit does not know the nodes whose samples it hears, and has them tell what they are and run."""
    with a_world() as world:
        world.run_until(3 * MINUTE_MS)
        before = running(world)
        assert len(before) > 10
        lose_all(world, {}, MemoryLedger().state())
        world.run_until(3 * MINUTE_MS + 2_000)
        assert (running(world), known(world)) == (before, set())
        world.run_until(5 * MINUTE_MS)
        assert running(world) == known(world) == set()
        assert no_node_restarted(world)


def test_what_a_restored_store_knows_runs_on_and_what_came_after_it_is_stopped() -> None:
    with a_world() as world:
        world.run_until(MINUTE_MS)
        rows, holds = world.store.rows(), world.ledger.truth.state()
        kept = running(world)
        world.run_until(3 * MINUTE_MS)
        later = running(world) - kept
        lose_all(world, rows, holds)
        world.run_until(3 * MINUTE_MS + STOPPED_MS)
        assert running(world) == known(world) >= kept
        assert not running(world) & later
        assert any(replica.startswith("online-") for replica, _ in kept)
        assert no_node_restarted(world)


def test_what_was_accepted_in_the_second_that_redis_lost_with_jobs_is_accepted_again() -> None:
    with a_world() as world:
        rows, accepted = world.store.rows(), set[str]()
        while not accepted:
            rows = world.store.rows()
            world.run_until(world.elapsed_ms + 1_000)
            accepted = world.store.rows().get("job", {}).keys() - rows.get("job", {}).keys() if "job" in rows else set()
        world.jobs.crash()
        world.store.lose_since(rows)
        world.invariant_checker.has_lost_jobs = True
        # However long both are away.
        world.run_until(world.elapsed_ms + 5 * MINUTE_MS)
        world.jobs.start()
        world.run_until(world.elapsed_ms + 3 * MINUTE_MS)
        assert accepted <= world.jobs_core.index.jobs.keys()
        assert world.jobs_core.counters.jobs_restored == len(accepted)
        assert running(world) == known(world)
        assert no_node_restarted(world)


@pytest.mark.parametrize("begin_again", [True, False], ids=["collectors begin again", "nodes are asked"])
def test_what_is_submitted_again_after_a_total_loss_runs_once_and_in_its_place(*, begin_again: bool) -> None:
    """Jobs come back under their ids. Their first attempts are placed while the lost ones of the same numbers run, also on other
    nodes; or the lost ones are said to run while the new ones still wait, because the nodes were asked what they are and run.
    """
    with a_world() as world:
        world.run_until(3 * MINUTE_MS)
        world.invariant_checker.has_two_lives = True
        lose_all(world, {}, MemoryLedger().state())
        collectors = [node.collector for node in world.nodes.values()] if begin_again else []
        for process in (world.submitter, *collectors):
            process.crash()
            process.start()
        world.run_until(6 * MINUTE_MS)
        run_twice = len(places(world)) - len({place[1:] for place in places(world)})
        assert (run_twice > 0) == begin_again
        world.run_until(3 * MINUTE_MS + (STOPPED_MS if begin_again else 5 * MINUTE_MS))
        assert {job.id for job in world.jobs_core.index.jobs.values()} == {plan.job for plan in world.client.plans}
        names = [replica for _, replica, _ in places(world)]
        assert len(names) == len(set(names)) > 10
        assert places(world) == known_places(world) == ledger_places(world)
        assert no_node_restarted(world)


@pytest.mark.parametrize("dies", ["nobody", "scheduler"])
def test_what_a_living_jobs_service_knows_runs_on(dies: str) -> None:
    with a_world() as world:
        world.run_until(3 * MINUTE_MS)
        before = running(world)
        dead = [process for process in world.services if process.key == dies]
        for process in dead:
            process.crash()
        world.store.lose_since({})
        world.ledger.truth.lose_since(MemoryLedger().state())
        world.bus.empty()
        for process in dead:
            process.start()
        world.run_until(3 * MINUTE_MS + STOPPED_MS)
        # A scheduler that began with nothing has the places from jobs, and promises none of them once more.
        assert running(world) == known(world) == before
        assert ledger_places(world) == known_places(world) == places(world)
        assert no_node_restarted(world)


def test_a_node_that_starts_again_in_the_past_without_its_journal_gets_its_work_back_at_once() -> None:
    """Its report looks older than the starts of its replicas, so that jobs does not take it for proof that they are gone. The
    scheduler compares no times: it orders again what the report lacks.
    """
    with a_world() as world:
        world.run_until(3 * MINUTE_MS)
        before = running(world)
        node = max(world.nodes.values(), key=lambda each: len(each.advance().replicas))
        for process in node.processes:
            process.crash()
        node.machine.reboot()
        node.journal = JournalState()
        node.executor.clock.ahead_ms = -60 * MINUTE_MS
        assert running(world) < known(world) == before
        for process in node.processes:
            process.start()
        world.run_until(4 * MINUTE_MS)
        assert running(world) == known(world) == before
