"""Servers that refuse, go away or lack something: services say so once, wait, and heal; what was accepted is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import nats
import pytest
import redis.asyncio
from nats.aio.client import Client
from nats.js.client import JetStreamContext
from nats.js.errors import ServiceUnavailableError

from colo_cli.server_process import Recipe, ServerProcess
from colo_cli.servers import NatsServer, RedisServer, find_nats_server
from colo_common.events import requests as rq
from colo_common.events import wire
from colo_common.events.job import JobSubmitted
from colo_common.events.registry import request_spec_of
from colo_common.events.status import GetServiceStatus, ServiceStatus
from tests.support.servers import made_streams, nats_server, redis_server
from tests.support.waiting import eventually
from tests.system.bad_input import RunningService, Servers, ask, refused_start, submission

pytestmark = pytest.mark.server


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    """Healthy servers of the test's own."""
    with nats_server() as bus, redis_server() as store:
        yield Servers(bus.url, store.url, tmp_path)


# ---------------------------------------------------------------- Redis


async def answered(client: Client, name: str) -> Any:
    """The answer to a submission, asked again while nobody answers: the same id makes that harmless."""

    async def accepted() -> Any:
        try:
            return await ask(client, submission(name), 1)
        except nats.errors.TimeoutError:
            return None

    return await eventually(accepted, f"{name} is answered")


@pytest.mark.parametrize(
    ("harm", "cure", "says"),
    [
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE"), "read only replica"),
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0"), "maxmemory"),
    ],
    ids=["replica", "out of memory"],
)
async def test_a_redis_that_refuses_writes_is_waited_for(
    servers: Servers, harm: tuple[str, ...], cure: tuple[str, ...], says: str
) -> None:
    store = redis.asyncio.from_url(servers.redis_url)
    async with servers.service("jobs") as jobs, servers.client() as client, store:
        await jobs.ready()
        assert isinstance(await ask(client, submission("before")), rq.JobAccepted)
        await store.execute_command(*harm)  # type: ignore[no-untyped-call]
        with pytest.raises(nats.errors.TimeoutError):
            await ask(client, submission("during"), 1)
        assert says in await jobs.not_ready("[-]redis", says)
        assert "[+]nats ok" in (await jobs.get("/readyz?verbose"))[1]
        await jobs.reaches('colo_jobs_retries_total{port="store"}', 3)
        await store.execute_command(*cure)  # type: ignore[no-untyped-call]
        await jobs.ready()
        assert isinstance(await answered(client, "during"), rq.JobAccepted)
        assert [each.job for each in (await ask(client, rq.ListJobs())).jobs] == ["during", "before"]
        # Said when it went and when it came back, not at every try.
        assert len(jobs.log("port-away", port="store")) == 1
        assert len(jobs.log("port-back", port="store")) == 1


async def test_a_redis_without_an_append_only_file_is_named_at_the_start_though_nobody_asks(servers: Servers) -> None:
    async with servers.service("jobs") as jobs:
        line = await jobs.logged("redis-appends-nothing")
        assert line["why"] == "it has no append-only file: what it acknowledged is lost when it ends"
        # It serves all the same: who keeps no data on purpose is not kept from working.
        await jobs.ready()


async def test_a_table_that_a_later_version_wrote_is_named_where_services_are_listed_and_stays(
    servers: Servers,
) -> None:
    table = b'1\n{"revision":7,"restrictions":[{"kind":"of-later","scope":"node","target":"n1"}]}'
    why = "restrictions/table: Invalid enum value 'of-later' - at `$.restrictions[0].kind`"
    status = request_spec_of(GetServiceStatus).subject.of(service="gateway")
    async with redis.asyncio.from_url(servers.redis_url) as store:
        await store.hset("colo:v1:restrictions", "table", table)
        async with servers.service("gateway") as gateway, servers.client() as client:

            async def has_named() -> bool:
                try:
                    reply = await client.request(status, wire.encode_request(GetServiceStatus(service="gateway")))
                except (nats.errors.NoRespondersError, nats.errors.TimeoutError):
                    return False
                answer = wire.decode_reply(GetServiceStatus, reply.data)
                assert isinstance(answer, ServiceStatus)
                return (answer.problems.get("redis"), answer.problems.get("restrictions")) == (why, "is still loading")

            await eventually(has_named, "the status of the gateway says what it cannot read")
            assert why in await gateway.not_ready("[-]redis", why)
            assert await store.hget("colo:v1:restrictions", "table") == table


async def test_a_redis_that_comes_back_finds_all_that_was_accepted(tmp_path: Path) -> None:
    store = RedisServer(directory=tmp_path / "redis")
    with nats_server() as bus:
        await store.start()
        try:
            servers = Servers(bus.url, store.url, tmp_path)
            async with servers.service("jobs") as jobs, servers.client() as client:
                await jobs.ready()
                assert isinstance(await ask(client, submission("before")), rq.JobAccepted)
                async with redis.asyncio.from_url(store.url) as kept:
                    await kept.save()
                await store.stop()
                await jobs.not_ready("[-]redis")
                with pytest.raises(nats.errors.TimeoutError):
                    await ask(client, submission("during"), 1)
                await store.start()
                await jobs.ready()
                assert isinstance(await answered(client, "during"), rq.JobAccepted)
                assert len(jobs.log("port-away", port="store")) == 1
            async with servers.service("jobs") as again, servers.client() as client:
                await again.ready()
                jobs_known = (await ask(client, rq.ListJobs())).jobs
                assert [each.job for each in jobs_known] == ["during", "before"]
        finally:
            await store.stop()


# ---------------------------------------------------------------- NATS


def _plain_arguments(directory: Path, port: int | None) -> list[str]:
    config = directory / "plain.conf"
    config.write_text(f'listen: 127.0.0.1:{-1 if port is None else port}\nports_file_dir: "{directory}"\n')
    return ["-c", str(config)]


def _plain_url(directory: Path, _port: int | None, pid: int) -> str | None:
    try:
        return str(json.loads((directory / f"nats-server_{pid}.ports").read_text())["nats"][0])
    except (OSError, ValueError):
        return None


class PlainNats(ServerProcess):
    """nats-server without JetStream."""

    def __init__(self, *, directory: Path | None = None, port: int | None = None) -> None:
        recipe = Recipe(
            name="nats-server",
            port_option="nats_port",
            find=find_nats_server,
            arguments=_plain_arguments,
            ready_url=_plain_url,
        )
        super().__init__(recipe, program=None, directory=directory, port=port)


@pytest.mark.parametrize("name", ["jobs", "overcommit", "sim"])
def test_a_nats_without_jetstream_is_refused_at_the_start(name: str) -> None:
    bus = PlainNats()
    bus.start_blocking()
    try:
        lines = refused_start(f"colo_{name}", {"COLO_NATS_URL": bus.url, "COLO_NODES": "1"})
    finally:
        bus.stop_blocking()
    assert lines == [
        f"colo {name}: stream COLO_NODE: the NATS server runs without JetStream: its disk was full, make room and start it"
        " again; or it was started without -js and without a jetstream section"
    ]


async def test_a_nats_that_comes_back_is_found_again_and_nothing_accepted_is_lost(tmp_path: Path) -> None:
    directory = tmp_path / "nats"
    first = NatsServer(directory=directory)
    with redis_server() as store:
        await first.start()
        await made_streams(first.url)
        url, port = first.url, int(first.url.rpartition(":")[2])
        servers = Servers(url, store.url, tmp_path)
        running: ServerProcess = first
        try:
            async with servers.service("jobs") as jobs:
                await jobs.ready()
                async with servers.client() as client:
                    assert isinstance(await ask(client, submission("before")), rq.JobAccepted)
                await first.stop()
                await jobs.not_ready("[-]nats failed: NATS at")
                # A server without JetStream takes its place for a while: connected, and of no use.
                running = PlainNats(port=port)
                await running.start()
                await jobs.not_ready("[-]nats", "runs without JetStream")
                await running.stop()
                running = NatsServer(directory=directory, port=port)
                await running.start()
                await jobs.ready()
                async with servers.client() as client:
                    assert isinstance(await ask(client, submission("after")), rq.JobAccepted)
                    assert {each.job for each in (await ask(client, rq.ListJobs())).jobs} == {"before", "after"}
                    assert await submitted(client) == ["before", "after"]
                assert await jobs.number("colo_bus_connections") == 3
                # Said when it went, when it came of no use, when that went too: not at every try.
                assert len(jobs.log("nats-away")) == 3
        finally:
            await running.stop()


#: Every stream has the least that one may have, and OTHER takes the rest of the disk.
SMALL_BYTES = 1


def _small_arguments(directory: Path, _port: int | None) -> list[str]:
    config = directory / "small.conf"
    limits = "max_file_store: 16MB, max_memory_store: 1MB"
    store = json.dumps(str(directory / "jetstream"))
    config.write_text(
        f'listen: 127.0.0.1:-1\nports_file_dir: "{directory}"\njetstream {{ store_dir: {store}, {limits} }}\n'
    )
    return ["-c", str(config)]


async def is_full(jetstream: JetStreamContext) -> bool:
    """Publish to the stream of somebody else; whether the server refuses it for lack of room."""
    try:
        await jetstream.publish("other", b"x" * 100_000)
    except ServiceUnavailableError:
        return True
    return False


async def lists_jobs(gateway: RunningService) -> bool:
    """Whether the gateway answers with what jobs say; it is not ready where the other services do not run."""
    return (await gateway.get("/v1/jobs"))[0] == 200


async def test_a_jetstream_at_its_limit_is_waited_for_and_the_door_is_closed_meanwhile(tmp_path: Path) -> None:
    """The server answers every publish with 10023 until an operator makes room; what was accepted before is published then."""
    recipe = Recipe(
        name="nats-server",
        port_option="nats_port",
        find=find_nats_server,
        arguments=_small_arguments,
        ready_url=_plain_url,
    )
    with redis_server() as store:
        async with ServerProcess(recipe, program=None, directory=tmp_path / "nats", port=None) as bus:
            servers = Servers(bus.url, store.url, tmp_path)
            async with servers.client() as client:
                jetstream = client.jetstream()
                await made_streams(bus.url, disk_bytes=SMALL_BYTES)
                await jetstream.add_stream(name="OTHER", subjects=["other"])
                async with servers.service("jobs") as jobs, servers.service("gateway") as gateway:
                    await jobs.ready()
                    await eventually(partial(lists_jobs, gateway), "the gateway asks jobs")
                    assert isinstance(await ask(client, submission("before")), rq.JobAccepted)
                    while not await is_full(jetstream):
                        pass
                    with pytest.raises(nats.errors.TimeoutError):
                        await ask(client, submission("during"), 2)
                    assert "(10023)" in await jobs.not_ready("[-]nats", "insufficient resources")
                    refusal = await ask(client, submission("after"))
                    assert isinstance(refusal, rq.Refusal)
                    assert (refusal.code, "(10023)" in refusal.rule) == (503, True)
                    job = {"name": "x", "cpu": "1", "memory": "64Mi", "work": "10 cpu-s"}
                    status, headers, text = await gateway.post("/v1/jobs", json.dumps(job).encode())
                    assert (status, headers["Retry-After"]) == (503, "2")
                    assert "insufficient resources" in text
                    listed = await ask(client, rq.ListJobs())
                    assert [each.job for each in listed.jobs] == ["during", "before"]
                    await jetstream.purge_stream("OTHER")
                    await jobs.ready()
                    assert isinstance(await answered(client, "after"), rq.JobAccepted)
                    assert await submitted(client) == ["before", "during", "after"]
                    kept = redis.asyncio.from_url(store.url)

                    async def cleared() -> bool:
                        return await kept.hlen("colo:v1:outbox-jobs") == 0

                    async with kept:
                        await eventually(cleared, "the outbox is empty")


async def submitted(client: Client) -> list[str]:
    """Every job that the stream says was accepted."""
    reader = await client.jetstream().pull_subscribe("colo.v1.evt.job.submitted", stream="COLO_EVT")
    waiting = (await reader.consumer_info()).num_pending or 0
    facts = [wire.decode(each.subject, each.data) for each in await reader.fetch(waiting, timeout=30)]
    return [fact.job for fact in facts if isinstance(fact, JobSubmitted)]
