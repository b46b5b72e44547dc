"""Processes of an older and of a later version on one NATS and one Redis, and the rolling update from one to the other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from colo_common.adapters.redis_client import redis_client
from colo_common.events.placement import PlacementsDecided
from colo_common.events.registry import STREAMS
from colo_common.ports import Delivery, Outgoing
from colo_common.runtime.core import Subscription, source_of
from tests.bench.bench_end_to_end import Load
from tests.bench.fleet import Cluster, running_cluster
from tests.bench.stand_in import FleetCore, Order, Ordered
from tests.support.servers import nats_server, redis_server
from tests.support.waiting import eventually
from tests.system.test_many_schedulers import owners_of

pytestmark = [pytest.mark.server, pytest.mark.failover, pytest.mark.timeout(400)]

ROOT: Final = Path(__file__).parents[2]
PROGRAM: Final = "tests.support.other_version"
SERVICES: Final = ("jobs", "scheduler", "overcommit")
REPLICAS: Final = 10
JOBS: Final = 20
TURNS_MOST: Final = 10
LIMIT_S: Final = 120.0
#: Subjects of types that come later, in every stream that keeps all of a domain.
LATER: Final = tuple(
    f"colo.v1.evt.{subject}.checkpointed"
    for subject in ("enforcement.node-00", "node.node-00", "job", "placement", "freshness.node-00")
)


class NotedFleet(FleetCore):
    """Also remembers where each attempt was ordered to run."""

    def __init__(self) -> None:
        super().__init__()
        self.ordered: dict[tuple[str, int], set[str]] = {}

    def start(self, order: Order, now_ms: int) -> list[Ordered]:
        for placement in order.placements:
            self.ordered.setdefault((placement.replica, placement.attempt), set()).add(order.node)
        return super().start(order, now_ms)


def program(version: str, service: str) -> tuple[str, Mapping[str, str]]:
    """A service as that version speaks, whatever directory it is started in."""
    return PROGRAM, {"OTHER_VERSION": f"{version} {service}", "PYTHONPATH": str(ROOT)}


def later(subject: str, number: int) -> Outgoing:
    """An event of a type that this version does not have."""
    return Outgoing(subject=subject, data=b'{"later_ms":7}', durable=True, msg_id=f"{subject}:{number}")


async def works(cluster: Cluster, core: FleetCore, load: Load, before: int) -> None:
    """Hand in jobs, and wait until every replica of all so far has ended. Meanwhile a later version says what nobody here knows."""
    await cluster.bus.publish([later(subject, before) for subject in LATER])
    for _ in range(JOBS):
        await load.submit(REPLICAS)

    async def ended() -> bool:
        return core.ended >= before + JOBS * REPLICAS

    await eventually(ended, "the end of every replica", limit_s=LIMIT_S)


async def is_all_handled(cluster: Cluster) -> bool:
    found = await cluster.bus.backlogs([stream.value for stream in STREAMS], 5.0)
    return bool(found) and not any(each.pending or each.unacknowledged for each in found)


async def replaced(cluster: Cluster, name: str, service: str) -> None:
    """The rolling update of one instance: it leaves, and the later version starts in its place."""
    module, given = program("newer", service)
    await cluster.processes.stop([name])
    await cluster.processes.start(name, module, {"COLO_LOG_LEVEL": "info", **given})
    await cluster.processes.wait_ready([name])


async def test_an_older_and_a_later_version_share_the_work_and_a_rolling_update_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    core = NotedFleet()
    versions = {"": "older", "-2": "newer"}
    programs = {f"{name}{end}": program(version, name) for name in SERVICES for end, version in versions.items()}
    environment = {"COLO_OVERCOMMIT_PARTITIONS": "4"}
    nodes = [f"node-{number:02}" for number in range(20)]
    with nats_server() as nats, redis_server() as redis:
        async with running_cluster(
            nats,
            redis,
            tmp_path,
            nodes,
            2.0,
            schedulers=2,
            others=2,
            core=core,
            environment=environment,
            programs=programs,
        ) as cluster:
            client = redis_client(redis.url, name="test")

            async def are_shared() -> bool:
                return len(await owners_of(client)) == 2

            await eventually(are_shared, "both schedulers hold shards", limit_s=LIMIT_S)
            await client.aclose()
            await client.connection_pool.disconnect()
            load = Load(cluster, "job")
            published: set[bool] = set()

            async def note(delivery: Delivery) -> None:
                published.add(b'"later_ms"' in delivery.data)

            async with asyncio.TaskGroup() as listening:
                source = source_of("test", Subscription(type=PlacementsDecided, durable=False, since_s=600))
                listener = listening.create_task(cluster.bus.listen(source, note))
                # Which scheduler a job is for is chance, and one of them may hold few shards yet.
                for turn in range(TURNS_MOST):
                    await works(cluster, core, load, turn * JOBS * REPLICAS)
                    if published == {True, False}:
                        break

                async def both_spoke() -> bool:
                    return published == {True, False}

                await eventually(both_spoke, "schedulers of both versions placed something", limit_s=LIMIT_S)
                listener.cancel()
            for service in SERVICES:
                await replaced(cluster, service, service)
                await works(cluster, core, load, core.ended)
            assert load.refused == []
            assert len(core.ordered) == (turn + 1 + len(SERVICES)) * JOBS * REPLICAS
            assert [attempt for attempt, places in core.ordered.items() if len(places) > 1] == []
            assert {attempt for _, attempt in core.ordered} == {1}
            # What another version said is nobody's dead letter, nor is the event that this one does not know.
            assert await cluster.bus.dead_letters.page(0, 10) == ()
            assert [
                each.name for each in cluster.processes.running.values() if each.process.returncode is not None
            ] == []
            await eventually(lambda: is_all_handled(cluster), "every consumer handled everything", limit_s=LIMIT_S)
