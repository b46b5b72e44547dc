"""A disk that is really full under NATS or Redis: what services say, what is lost (nothing), docs/runbooks/full-disk.md."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import nats
import pytest
import redis.asyncio
from nats.aio.client import Client
from nats.js.client import JetStreamContext

from colo_cli.servers import NatsServer, RedisServer
from colo_common.events import requests as rq
from colo_common.events import wire
from colo_common.events.job import JobSubmitted
from tests.chaos.disk import Disk
from tests.chaos.stores import rewrite_aof
from tests.support.ports import free_ports
from tests.support.servers import made_streams, nats_server, redis_server
from tests.support.waiting import eventually
from tests.system.bad_input import RunningService, Servers, ask, submission

pytestmark = pytest.mark.server

_PIECE_BYTES = 3_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A small file system of its own."""
    found = Disk(tmp_path / "disk")
    try:
        if not found.can_fill:
            pytest.skip("NOT PROVED: this process may not mount a file system")
        yield found
    finally:
        found.close()


async def is_answered(client: Client, name: str) -> bool:
    """Submit a job; whether it was accepted within a second."""
    try:
        return isinstance(await ask(client, submission(name), 1), rq.JobAccepted)
    except nats.errors.TimeoutError:
        return False


async def accepted_until_closed(client: Client, name: str) -> list[str]:
    """Submit jobs until one is not accepted; those that were."""
    found: list[str] = []
    while await is_answered(client, one := f"{name}-{len(found)}"):
        found.append(one)
    return found


async def refused(client: Client) -> rq.Refusal | None:
    """The refusal of a job; None where it was taken, and is answered when its facts are stored."""
    try:
        answer = await ask(client, submission("refused"), 1)
    except nats.errors.TimeoutError:
        return None
    return answer if isinstance(answer, rq.Refusal) else None


async def stores(jetstream: JetStreamContext) -> bool:
    """Whether the stream of somebody else stores a message."""
    try:
        await jetstream.publish("other", os.urandom(_PIECE_BYTES), timeout=0.5)
    except (nats.errors.TimeoutError, nats.js.errors.APIError):
        return False
    return True


async def fill(store: redis.asyncio.Redis) -> None:
    """Write until the store refuses."""
    while True:
        await store.set("other", os.urandom(_PIECE_BYTES))


async def lists_jobs(gateway: RunningService) -> bool:
    return (await gateway.get("/v1/jobs"))[0] == 200


async def test_nats_with_a_full_disk_closes_the_door_and_after_the_runbook_all_is_told(
    tmp_path: Path, disk: Disk
) -> None:
    (port,) = free_ports(1)
    bus = NatsServer(directory=disk.path / "nats", port=port)
    with redis_server() as store:
        await bus.start()
        try:
            await made_streams(bus.url)
            servers = Servers(bus.url, store.url, tmp_path)
            async with servers.service("jobs") as jobs, servers.service("gateway") as gateway:
                async with servers.client() as client:
                    jetstream = client.jetstream()
                    await jetstream.add_stream(name="OTHER", subjects=["other"])
                    await jobs.ready()
                    await eventually(partial(lists_jobs, gateway), "the gateway asks jobs")
                    assert await is_answered(client, "before")
                    disk.fill()
                    while await stores(jetstream):
                        pass
                    during = await accepted_until_closed(client, "during")
                    assert "its disk may be full" in await jobs.not_ready("[-]nats", "no answer in time")
                    refusal = await eventually(partial(refused, client), "the door is closed")
                    assert (refusal.code, "its disk may be full" in refusal.rule) == (503, True)
                    job = {"name": "x", "cpu": "1", "memory": "64Mi", "work": "10 cpu-s"}
                    status, headers, text = await gateway.post("/v1/jobs", json.dumps(job).encode())
                    assert (status, headers["Retry-After"], "its disk may be full" in text) == (503, "2", True)
                    kept = [each.job for each in (await ask(client, rq.ListJobs())).jobs]
                    assert {"before", *during} <= set(kept)
                    # Room alone heals no stream that met the full disk.
                    disk.free()
                    assert not await stores(jetstream)
                await bus.stop()
                await bus.start()
                await jobs.ready()
                async with servers.client() as client:
                    assert await stores(client.jetstream())
                    assert await is_answered(client, "after")
                    assert sorted(await submitted(client)) == sorted([*kept, "after"])
                kept_rows = redis.asyncio.from_url(store.url)

                async def cleared() -> bool:
                    return await kept_rows.hlen("colo:v1:outbox-jobs") == 0

                async with kept_rows:
                    await eventually(cleared, "the outbox is empty")
        finally:
            await bus.stop()


async def test_redis_with_a_full_disk_goes_on_by_itself_and_reads_its_file_once_that_is_rewritten(
    tmp_path: Path, disk: Disk
) -> None:
    (port,) = free_ports(1)
    store = RedisServer(directory=disk.path / "redis", port=port, appendfsync="everysec")
    with nats_server() as bus:
        await store.start()
        try:
            servers = Servers(bus.url, store.url, tmp_path)
            # A file that replaced another one is the one that gets a hole.
            await rewrite_aof(store)
            async with servers.service("jobs") as jobs, servers.client() as client:
                await jobs.ready()
                assert await is_answered(client, "before")
                disk.fill()
                async with redis.asyncio.from_url(store.url) as other:
                    with pytest.raises(redis.ResponseError, match="No space left on device"):
                        await fill(other)
                during = await accepted_until_closed(client, "during")
                assert "No space left on device" in await jobs.not_ready("[-]redis", "MISCONF")
                disk.free()
                await jobs.ready()
                assert await is_answered(client, "after")
                await rewrite_aof(store)
                await store.stop()
                await store.start()
                await jobs.ready()
                kept = {each.job for each in (await ask(client, rq.ListJobs())).jobs}
                assert {"before", *during, "after"} <= kept
                assert set(await submitted(client)) == kept
        finally:
            await store.stop()


async def submitted(client: Client) -> list[Any]:
    """Every job that the stream says was accepted."""
    reader = await client.jetstream().pull_subscribe("colo.v1.evt.job.submitted", stream="COLO_EVT")
    waiting = (await reader.consumer_info()).num_pending or 0
    facts = [wire.decode(each.subject, each.data) for each in await reader.fetch(waiting, timeout=30)]
    return [fact.job for fact in facts if isinstance(fact, JobSubmitted)]
