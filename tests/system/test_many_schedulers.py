"""Several scheduler processes on one NATS and one Redis share the work, and one of them is killed in the middle of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import Struct
from redis.asyncio import Redis

from colo_common.adapters.redis_client import redis_client
from colo_common.events.effects import Effect
from colo_common.events.node import AllocatableChanged
from colo_common.events.placement import ApplyPlacements
from colo_scheduler.ledger import NodeRow
from colo_scheduler.ledger_redis import RedisLedger
from tests.bench.bench_end_to_end import Load
from tests.bench.fleet import Cluster, FleetCore, running_cluster
from tests.support.servers import nats_server, redis_server
from tests.support.waiting import eventually

SCHEDULERS = 3
SHARDS = 12
JOBS = 60
REPLICAS = 20
LIMIT_S = 45.0


class NotedFleet(FleetCore):
    """Also remembers where each attempt was ordered to run, and the last allocatable of every node."""

    def __init__(self) -> None:
        super().__init__()
        self.ordered: dict[tuple[str, int], set[str]] = {}
        self.promised: dict[tuple[str, int], int] = {}

    def handle(self, event: Struct, now_ms: int) -> list[Effect]:
        match event:
            case ApplyPlacements():
                for placement in event.placements:
                    self.ordered.setdefault((placement.replica, placement.attempt), set()).add(event.node)
            case AllocatableChanged():
                for zone in event.zones:
                    self.promised[event.node, zone.zone] = zone.batch_cpu_mcpu
            case _:
                pass
        return super().handle(event, now_ms)


def overcommitted(core: NotedFleet, rows: tuple[NodeRow, ...]) -> list[str]:
    """Zones on which the ledger holds more than was ever promised to batch work there."""
    held: dict[tuple[str, int], int] = {}
    for row in rows:
        for one in row.reservations:
            for share in one.placement.zones:
                held[row.node, share.zone] = held.get((row.node, share.zone), 0) + share.cpu_mcpu
    return [f"{key}: {mcpu}" for key, mcpu in held.items() if mcpu > core.promised[key]]


async def owners_of(client: Redis) -> dict[bytes, int]:
    """How many shards each scheduler holds."""
    owners: dict[bytes, int] = {}
    for value in (await client.hgetall("colo:v1:ledger:shards")).values():
        owner = value.split()[0]
        owners[owner] = owners.get(owner, 0) + 1
    return owners


async def the_story(cluster: Cluster, core: NotedFleet, client: Redis, nodes: list[str]) -> None:
    async def shared_by(count: int) -> bool:
        return sorted((await owners_of(client)).values()) == [SHARDS // count] * count

    await eventually(lambda: shared_by(SCHEDULERS), "shards shared by all", limit_s=LIMIT_S)
    ledger = RedisLedger(client)
    load = Load(cluster, "job")
    # What a fleet of 40 nodes holds never shows more than was promised, at any moment of it.
    for number in range(JOBS):
        await load.submit(REPLICAS)
        if number == JOBS // 2:
            cluster.processes.running["scheduler-2"].process.kill()
        assert overcommitted(core, await ledger.rows(nodes)) == []

    async def is_done() -> bool:
        assert overcommitted(core, await ledger.rows(nodes)) == []
        return core.ended >= JOBS * REPLICAS

    await eventually(is_done, "the end of every replica", limit_s=LIMIT_S)
    assert len(core.ordered) == JOBS * REPLICAS
    assert [attempt for attempt, places in core.ordered.items() if len(places) > 1] == []
    assert {attempt for _, attempt in core.ordered} == {1}
    await eventually(lambda: shared_by(SCHEDULERS - 1), "shards shared by those left", limit_s=LIMIT_S)


@pytest.mark.server
async def test_all_is_placed_and_nothing_twice_although_a_scheduler_is_killed(tmp_path: Path) -> None:
    nodes = [f"node-{index:02}" for index in range(40)]
    core = NotedFleet()
    environment = {"COLO_SCHEDULER_LEASE_TTL_MS": "1000", "COLO_SCHEDULER_SHARDS": str(SHARDS)}
    # Servers of their own: the killed scheduler leaves what it had begun.
    with nats_server() as nats, redis_server() as redis:
        client = redis_client(redis.url, name="test")
        async with running_cluster(
            nats, redis, tmp_path, nodes, 2.0, schedulers=SCHEDULERS, core=core, environment=environment
        ) as cluster:
            await the_story(cluster, core, client, nodes)
        await client.aclose()
        await client.connection_pool.disconnect()
