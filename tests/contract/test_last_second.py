"""A Redis that begins again without its last second, as jobs or the scheduler does: the stream of facts has what is missing."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from colo_cli.servers import NatsServer, RedisServer, ServerMissing
from colo_common.adapters.bus_nats import NatsBus
from colo_common.adapters.clock import SystemClock
from colo_common.adapters.redis_client import redis_client
from colo_common.adapters.store_redis import RedisStore
from colo_common.events.effects import Publish
from colo_common.events.enforcement import ReplicaEnded, ReplicaStarted
from colo_common.events.fact import Fact
from colo_common.events.placement import NodeRelease, PlacementsDecided, PlacementsReleased
from colo_common.events.requests import CancelJob, GetJob, JobAccepted, JobDetail, SubmitJob
from colo_common.model.partition import Fence, PartitionsHeld
from colo_common.model.placement import Attempt
from colo_common.model.reasons import EndCause, Reason
from colo_common.ports import Unavailable
from colo_common.runtime.ask import ask
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.stamp import Stamp
from colo_executor.shell import no_span
from colo_jobs.core import JobsCore
from colo_jobs.policy import JobsPolicy
from colo_jobs.shell import JobsShell, jobs_service
from colo_scheduler.ledger.port import (
    CommitLedger,
    Hold,
    Ledger,
    LedgerAnswered,
    LedgerCompared,
    LedgerLoaded,
    LedgerRefused,
    LedgerRows,
    NodeCommit,
)
from colo_scheduler.ledger.redis import RedisLedger
from colo_scheduler.main import scheduler_service
from colo_scheduler.policy import SchedulerPolicy
from colo_scheduler.shell import SchedulerShell
from tests.support.builders import a_placement
from tests.support.jobs_world import a_spec, a_task
from tests.support.servers import missing, nats_server
from tests.support.waiting import LIMIT_S, eventually


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with nats_server() as running:
        yield running


class Redis:
    """A redis-server that keeps what it had when it was told to, and loses what came later."""

    def __init__(self, directory: Path) -> None:
        self._server = RedisServer(directory=directory)
        try:
            self._server.start_blocking()
        except ServerMissing as error:
            missing(str(error))

    @property
    def url(self) -> str:
        return self._server.url

    async def keep(self) -> None:
        client = redis_client(self.url, name="keeper")
        await client.save()
        await client.aclose()

    def lose_power(self) -> None:
        os.kill(self._server.pid, signal.SIGKILL)
        self._server.stop_blocking()
        self._server.start_blocking()

    def stop(self) -> None:
        self._server.stop_blocking()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    found = Redis(tmp_path)
    yield found
    found.stop()


class Publisher:
    """Publishes facts as another service does."""

    def __init__(self, bus: NatsBus, producer: str) -> None:
        self._bus = bus
        self._stamp = Stamp(producer, "b1", SystemClock())
        self._count = 0

    async def __call__(self, *facts: Fact) -> None:
        for fact in facts:
            self._count += 1
            await self._bus.publish([self._stamp.outgoing(Publish(fact=fact, id=f"published:{self._count}"))])


# ---- jobs


@asynccontextmanager
async def jobs_on(bus: NatsBus, redis: Redis) -> AsyncIterator[None]:
    """The jobs service, killed at the end of the block."""
    store, clock = RedisStore.of(redis.url, name="jobs"), SystemClock()
    service = jobs_service(
        JobsCore(JobsPolicy()),
        bus=bus,
        store=store,
        clock=clock,
        boot_id="b",
        shell=JobsShell(store, clock, replay=bus.replay),
    )
    running = asyncio.create_task(service.run(asyncio.Event()))
    yield
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await store.close()


async def in_state(bus: NatsBus, job: str, state: str) -> JobDetail:
    """The job, once jobs says that it is in this state."""

    async def look() -> JobDetail | None:
        try:
            found = await ask(bus, GetJob(job=job))
        except Unavailable:
            return None
        return found if isinstance(found, JobDetail) and found.summary.state == state else None

    found = await eventually(look, f"{job} is {state}")
    assert found is not None
    return found


async def submitted(bus: NatsBus, job: str) -> None:
    async def submit() -> bool:
        try:
            return isinstance(await ask(bus, SubmitJob(job=job, spec=a_spec(a_task()))), JobAccepted)
        except Unavailable:
            return False

    await eventually(submit, f"{job} is accepted")


def started(job: str) -> tuple[Fact, ...]:
    replica = f"{job}/main/0"
    return (
        PlacementsDecided(placements=(a_placement(replica),)),
        ReplicaStarted(node="n1", replica=replica, job=job, attempt=1),
    )


def ended(job: str) -> ReplicaEnded:
    return ReplicaEnded(
        node="n1", replica=f"{job}/main/0", job=job, attempt=1, cause=EndCause.EXITED, exit_code=0, boot_id="n1-b1"
    )


async def test_jobs_that_ended_or_were_cancelled_in_the_second_that_redis_lost_with_jobs_go_on_nowhere(
    bus: NatsBus, redis: Redis
) -> None:
    publish = Publisher(bus, "node")
    async with jobs_on(bus, redis):
        for job in ("older", "cancelled"):
            await submitted(bus, job)
            await publish(*started(job))
            await in_state(bus, job, "Running")
        await redis.keep()
        await submitted(bus, "short")
        await publish(*started("short"), ended("short"), ended("older"))
        for job in ("short", "older"):
            await in_state(bus, job, "Completed")
        assert isinstance(await ask(bus, CancelJob(job="cancelled")), JobAccepted)
        await in_state(bus, "cancelled", "Terminating")
    redis.lose_power()
    async with jobs_on(bus, redis):
        for job in ("short", "older"):
            detail = await in_state(bus, job, "Completed")
            assert [(one.attempt, one.state) for one in detail.replicas] == [(1, "Succeeded")]
        await in_state(bus, "cancelled", "Terminating")
    # It is stored, and no second start finds anything to do.
    async with jobs_on(bus, redis):
        for job in ("short", "older"):
            assert (await in_state(bus, job, "Completed")).version >= 1


# ---- the scheduler


def scheduler_shell(ledger: Ledger, bus: NatsBus, shards: int = 0) -> SchedulerShell:
    """The shell of a scheduler that compares this ledger with the stream."""
    _, shell = scheduler_service(
        SchedulerPolicy(),
        ledger,
        bus,
        SystemClock(),
        store=None,
        span=no_span,
        metrics=Metrics(),
        replay=bus.replay,
        shards=shards,
    )
    return shell


async def loaded(ledger: Ledger, bus: NatsBus) -> tuple[dict[str, set[Attempt]], list[Any]]:
    """What a scheduler that starts finds held, by node, and what it receives before its first decision."""
    shell = scheduler_shell(ledger, bus)
    events = list(await shell.load())
    rows = [row for event in events if isinstance(event, LedgerRows) for row in event.rows]
    (begin,) = [number for number, event in enumerate(events) if isinstance(event, LedgerLoaded)]
    return {row.node: {hold.attempt for hold in row.holds} for row in rows}, events[begin + 1 :]


def commit(node: str, expect: int, *replicas: str) -> NodeCommit:
    holds = tuple(Hold(placement=a_placement(name, node=node), generation=expect + 1) for name in replicas)
    return NodeCommit(node=node, expect=expect, holds=holds)


def released(node: str, *replicas: str) -> PlacementsReleased:
    return PlacementsReleased(nodes=(NodeRelease(node=node, attempts=tuple((name, 1) for name in replicas)),))


async def test_holds_and_releases_that_redis_lost_with_the_scheduler_are_there_before_its_first_decision(
    bus: NatsBus, redis: Redis
) -> None:
    publish = Publisher(bus, "scheduler")
    ledger = RedisLedger(redis_client(redis.url, name="test"))
    await ledger.commit([commit("n1", 0, "a/t/0", "a/t/1", "a/t/2")])
    await publish(PlacementsDecided(placements=tuple(a_placement(f"a/t/{number}") for number in range(3))))
    await redis.keep()
    await ledger.commit([commit("n1", 1, "b/t/0"), commit("n2", 0, "b/t/1", "b/t/2")])
    await publish(
        PlacementsDecided(
            placements=(a_placement("b/t/0"), *(a_placement(f"b/t/{number}", node="n2") for number in (1, 2)))
        )
    )
    await ledger.release([("a/t/0", 1), ("b/t/2", 1), ("a/t/1", 1)])
    await publish(released("n1", "a/t/0"), released("n2", "b/t/2"))
    # Of this one only its node has said that it ended; what nodes say goes on while no scheduler is there.
    last = ReplicaEnded(
        node="n1", replica="a/t/1", job="a", attempt=1, cause=EndCause.EXITED, exit_code=0, boot_id="n1-b1"
    )
    await publish(last)
    await ledger.close()
    redis.lose_power()
    ledger = RedisLedger(redis_client(redis.url, name="test"))
    (row,) = await ledger.rows(["n1"])
    assert {hold.attempt for hold in row.holds} == {("a/t/0", 1), ("a/t/1", 1), ("a/t/2", 1)}
    held, received = await loaded(ledger, bus)
    assert held == {"n1": {("a/t/1", 1), ("a/t/2", 1), ("b/t/0", 1)}, "n2": {("b/t/1", 1)}}
    assert [(fact.replica, fact.node) for fact in received] == [("a/t/1", "n1")]
    # A number that was released is not given again, and no revision comes twice.
    (row,) = await ledger.rows(["n1"])
    (answer,) = await ledger.commit([commit("n1", row.revision, "a/t/0")])
    assert [refused.reason for refused in answer.refused] == [Reason.OLDER_ATTEMPT]
    assert row.revision == 2
    # A second start finds everything as it is.
    assert (await loaded(ledger, bus))[0] == held
    await ledger.close()


async def test_a_place_that_was_decided_again_after_its_release_was_published_stays(bus: NatsBus, redis: Redis) -> None:
    """A scheduler of an earlier version compares nothing: it may decide a number once more whose release Redis lost."""
    publish = Publisher(bus, "scheduler")
    ledger = RedisLedger(redis_client(redis.url, name="test"))
    await publish(PlacementsDecided(placements=(a_placement("a/t/0"),)), released("n1", "a/t/0"))
    again = SystemClock().now_ms() + LIMIT_S * 1_000
    (one,) = commit("n1", 0, "a/t/0").holds
    placement = replace(one.placement, decided_at_ms=int(again))
    await ledger.commit([NodeCommit(node="n1", expect=0, holds=(Hold(placement=placement, generation=1),))])
    held, _ = await loaded(ledger, bus)
    assert held == {"n1": {("a/t/0", 1)}}
    await ledger.close()


async def test_a_scheduler_that_lives_decides_on_no_place_that_another_one_held_in_the_lost_second(
    bus: NatsBus, redis: Redis
) -> None:
    publish = Publisher(bus, "scheduler")
    ledger = RedisLedger(redis_client(redis.url, name="test"))
    await ledger.commit([commit("n1", 0, "a/t/0")])
    await publish(PlacementsDecided(placements=(a_placement("a/t/0"),)))
    shell = scheduler_shell(ledger, bus, shards=1)
    (compared,) = [event.identity for event in await shell.load() if isinstance(event, LedgerCompared)]
    held: list[Fence] = []

    async def inject(event: Struct) -> None:
        if isinstance(event, PartitionsHeld):
            held[:] = event.fences

    async def has_the_shard() -> bool:
        return bool(held)

    running = asyncio.create_task(shell.run(asyncio.Event(), inject))
    await eventually(has_the_shard, "the scheduler has the shard")
    await redis.keep()
    await ledger.commit([commit("n1", 1, "b/t/0")])
    await publish(PlacementsDecided(placements=(a_placement("b/t/0"),)))
    redis.lose_power()
    # Decided on the row that Redis has again, and sent before this scheduler has seen that Redis is another one.
    call = CommitLedger(reserves=(commit("n1", 1, "c/t/0"),), fences=tuple(held), compared=compared)
    (answered,) = await shell.perform_many([call])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    (row,) = await ledger.rows(["n1"])
    assert {hold.attempt for hold in row.holds} == {("a/t/0", 1), ("b/t/0", 1)}
    assert isinstance(answered, LedgerRefused) or (
        isinstance(answered, LedgerAnswered) and not answered.answers[0].accepted
    )
    await ledger.close()
