"""Several scheduler processes on one NATS and one Redis share the work; in the middle of it one is killed, or stands still."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from redis.asyncio import Redis

from colo_common.adapters.redis_client import redis_client
from colo_scheduler.ledger.port import NodeRow
from colo_scheduler.ledger.redis import RedisLedger
from tests.bench.bench_end_to_end import Load
from tests.bench.fleet import Cluster, running_cluster
from tests.bench.stand_in import Allocatable, FleetCore, Order, Ordered
from tests.support.servers import nats_server, redis_server
from tests.support.waiting import eventually

SCHEDULERS = 3
SHARDS = 12
JOBS = 60
REPLICAS = 20
LIMIT_S = 120.0


class NotedFleet(FleetCore):
    """Also remembers where each attempt was ordered to run, and the last allocatable of every node."""

    def __init__(self) -> None:
        super().__init__()
        self.ordered: dict[tuple[str, int], set[str]] = {}
        self.promised: dict[tuple[str, int], int] = {}

    def start(self, order: Order, now_ms: int) -> list[Ordered]:
        for placement in order.placements:
            self.ordered.setdefault((placement.replica, placement.attempt), set()).add(order.node)
        return super().start(order, now_ms)

    def promise(self, reported: Allocatable) -> None:
        for zone in reported.zones:
            self.promised[reported.node, zone.zone] = zone.batch_cpu_mcpu
        super().promise(reported)


def overcommitted(core: NotedFleet, rows: tuple[NodeRow, ...]) -> list[str]:
    """Zones on which the ledger holds more than was ever promised to batch work there."""
    held: dict[tuple[str, int], int] = {}
    for row in rows:
        for one in row.holds:
            for share in one.placement.zones:
                held[row.node, share.zone] = held.get((row.node, share.zone), 0) + share.cpu_mcpu
    return [f"{key}: {mcpu}" for key, mcpu in held.items() if mcpu > core.promised[key]]


async def owners_of(client: Redis) -> dict[bytes, int]:
    """How many shards each scheduler holds."""
    owners: dict[bytes, int] = {}
    for value in (await client.hgetall("colo:v1:ledger:leases")).values():
        owner = value.split()[0]
        owners[owner] = owners.get(owner, 0) + 1
    return owners


Trouble = Callable[[int], Awaitable[None]]
"""What goes wrong before the job of that number is submitted."""


async def are_shared(client: Redis, count: int) -> bool:
    """Whether so many schedulers hold all shards, and each its share."""
    return sorted((await owners_of(client)).values()) == [SHARDS // count] * count


async def all_is_placed_once(
    cluster: Cluster, core: NotedFleet, ledger: RedisLedger, nodes: list[str], trouble: Trouble
) -> None:
    load = Load(cluster, "job")
    # What a fleet of 40 nodes holds never shows more than was promised, at any moment of it.
    for number in range(JOBS):
        await trouble(number)
        await load.submit(REPLICAS)
        assert overcommitted(core, await ledger.rows(nodes)) == []

    async def is_done() -> bool:
        assert overcommitted(core, await ledger.rows(nodes)) == []
        return core.ended >= JOBS * REPLICAS

    await eventually(is_done, "the end of every replica", limit_s=LIMIT_S)
    assert load.refused == []
    assert len(core.ordered) == JOBS * REPLICAS
    assert [attempt for attempt, places in core.ordered.items() if len(places) > 1] == []
    assert {attempt for _, attempt in core.ordered} == {1}


async def all_is_released(ledger: RedisLedger, nodes: list[str]) -> None:
    async def is_empty() -> bool:
        return not any(row.holds for row in await ledger.rows(nodes))

    await eventually(is_empty, "nothing that is held", limit_s=LIMIT_S)


async def killed(cluster: Cluster, core: NotedFleet, client: Redis, nodes: list[str]) -> None:
    """One scheduler is killed half-way."""

    async def trouble(number: int) -> None:
        if number == JOBS // 2:
            cluster.processes.running["scheduler-2"].process.kill()

    await all_is_placed_once(cluster, core, RedisLedger(client), nodes, trouble)
    await eventually(lambda: are_shared(client, SCHEDULERS - 1), "shards shared by those left", limit_s=LIMIT_S)


async def stopped(cluster: Cluster, core: NotedFleet, client: Redis, nodes: list[str]) -> None:
    """One after the other stands still in the middle of its work, until the others have its shards, and goes on long after."""
    names = ("scheduler", "scheduler-2", "scheduler-3")
    processes = [cluster.processes.running[name].process for name in names]
    every = JOBS // SCHEDULERS
    ledger = RedisLedger(client)

    async def trouble(number: int) -> None:
        at, step = divmod(number, every)
        if step == every // 4:
            processes[at].send_signal(signal.SIGSTOP)
        elif step == every // 2:
            await eventually(lambda: are_shared(client, SCHEDULERS - 1), "shards taken by the others", limit_s=LIMIT_S)
        elif step == every - 1:
            processes[at].send_signal(signal.SIGCONT)
            await eventually(lambda: are_shared(client, SCHEDULERS), "shards shared by all again", limit_s=LIMIT_S)

    try:
        await all_is_placed_once(cluster, core, ledger, nodes, trouble)
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
    await all_is_released(ledger, nodes)


@pytest.mark.server
@pytest.mark.parametrize("story", [killed, stopped])
async def test_all_is_placed_and_nothing_twice_whatever_becomes_of_a_scheduler(
    tmp_path: Path, story: Callable[[Cluster, NotedFleet, Redis, list[str]], Awaitable[None]]
) -> None:
    nodes = [f"node-{index:02}" for index in range(40)]
    core = NotedFleet()
    environment = {"COLO_SCHEDULER_LEASE_TTL_MS": "1000", "COLO_SCHEDULER_SHARDS": str(SHARDS)}
    # Servers of their own: a killed scheduler leaves what it had begun.
    with nats_server() as nats, redis_server() as redis:
        client = redis_client(redis.url, name="test")
        async with running_cluster(
            nats, redis, tmp_path, nodes, 2.0, schedulers=SCHEDULERS, core=core, environment=environment
        ) as cluster:
            await eventually(lambda: are_shared(client, SCHEDULERS), "shards shared by all", limit_s=LIMIT_S)
            await story(cluster, core, client, nodes)
            assert core.ended == JOBS * REPLICAS
        await client.aclose()
        await client.connection_pool.disconnect()
