"""What only a real NATS can show: restarts, a server without JetStream, discovery, and what is said when it is away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import nats
import nats.aio.msg
import pytest
from nats.js.api import ConsumerConfig
from nats.js.client import JetStreamContext

from colo_cli.server_process import Recipe, ServerProcess
from colo_cli.servers import NatsServer, find_nats_server
from colo_common.adapters.bus_nats import NatsBus
from colo_common.events.registry import Stream
from colo_common.ports import Outgoing, PoisonMessage, Refused, Source, Unavailable
from tests.contract.test_bus import Received, kept, listening, live
from tests.support.ports import free_ports
from tests.support.servers import made_streams
from tests.support.waiting import LIMIT_S, eventually


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A server of the test's own, which it may stop and start again on the same port and directory."""
    first = NatsServer(directory=tmp_path, port=free_ports(1)[0])
    await first.start()
    await made_streams(first.url)
    yield first
    await first.stop()


@pytest.fixture
def unused_url() -> str:
    """An address where nobody listens."""
    return f"nats://127.0.0.1:{free_ports(1)[0]}"


def bare_arguments(directory: Path, _port: int | None) -> list[str]:
    config = directory / "nats.conf"
    config.write_text(f"listen: 127.0.0.1:-1\nports_file_dir: {json.dumps(str(directory))}\n")
    return ["-c", str(config)]


def bare_url(directory: Path, _port: int | None, pid: int) -> str | None:
    for path in directory.glob(f"*_{pid}.ports"):
        with suppress(OSError, ValueError, KeyError):
            return str(json.loads(path.read_text())["nats"][0])
    return None


#: A nats-server that nobody told to run JetStream.
BARE = Recipe(
    name="nats-server", port_option="nats_port", find=find_nats_server, arguments=bare_arguments, ready_url=bare_url
)


async def connected(url: str, **more: str) -> NatsBus:
    bus = NatsBus(url, name="contract", **more)
    bus.start()
    await bus.connected(LIMIT_S)
    return bus


@asynccontextmanager
async def jetstream_of(server: NatsServer) -> AsyncIterator[JetStreamContext]:
    """What an operator does beside the bus."""
    client = await nats.connect(server.url)
    yield client.jetstream()
    await client.close()


async def says(bus: NatsBus, problem: str) -> None:
    """Wait until the bus is not ready and says exactly this."""

    async def is_reported() -> bool:
        return await bus.ready() == problem

    await eventually(is_reported, problem)


async def test_listeners_and_publishers_heal_when_the_server_comes_back(server: NatsServer, tmp_path: Path) -> None:
    bus = await connected(server.url)
    durable, unnamed, replaying, lossy = Received(), Received(), Received(), Received()
    subject = "colo.v1.evt.job.changed"
    async with (
        listening(bus, Source(subject=subject, stream=Stream.EVT.value, durable="d"), durable),
        listening(bus, Source(subject=subject, stream=Stream.EVT.value), unnamed),
        listening(
            bus, Source(subject="colo.v1.evt.node.*.x", stream=Stream.NODE.value, last_per_subject=True), replaying
        ),
        listening(bus, Source(subject="colo.v1.tlm.*"), lossy),
    ):
        await unnamed.until_received(bus, kept(subject, "probe"))
        before = len(durable.texts)
        await bus.publish([kept("colo.v1.evt.node.n1.x", "n1")])
        await replaying.count(1)
        await server.stop()
        assert await eventually(bus.ready, "the bus says that it is away")
        with pytest.raises(Unavailable):
            await bus.publish([kept(subject, "lost")])
        with pytest.raises(Unavailable):
            await bus.ask("colo.v1.req.jobs.get", b"", 1)
        again = NatsServer(directory=tmp_path, port=server.port)
        await again.start()
        try:
            await eventually(lambda: _is_ready(bus), "the bus is back")
            await bus.publish([kept(subject, "back"), kept("colo.v1.evt.node.n2.x", "n2")])
            await durable.until(lambda: "back" in durable.texts)
            await unnamed.until(lambda: "back" in unnamed.texts)
            await replaying.until(lambda: "n2" in replaying.texts)
            await lossy.until_received(bus, live("colo.v1.tlm.x", "live"))
            assert "lost" not in durable.texts
            assert len(durable.texts) >= before
        finally:
            await bus.close()
            await again.stop()


async def test_a_server_with_an_empty_store_is_waited_for_until_somebody_makes_the_streams(
    server: NatsServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bus = await connected(server.url)
    await server.stop()
    await eventually(bus.ready, "the bus says that it is away")
    empty = NatsServer(directory=tmp_path_factory.mktemp("empty"), port=server.port)
    await empty.start()
    try:
        await says(bus, "stream COLO_NODE is missing: colo admin init")
        await made_streams(empty.url)
        await eventually(lambda: _is_ready(bus), "the bus is back")
        received = Received()
        await bus.publish([kept("colo.v1.evt.job.changed", "x")])
        async with listening(
            bus, Source(subject="colo.v1.evt.job.changed", stream=Stream.EVT.value, durable="d"), received
        ):
            await received.count(1)
        assert received.texts == ["x"]
    finally:
        await bus.close()
        await empty.stop()


async def test_a_stream_that_somebody_deletes_is_named_and_its_messages_wait(server: NatsServer) -> None:
    bus = await connected(server.url)
    async with jetstream_of(server) as jetstream:
        await jetstream.delete_stream(Stream.EVT.value)
    with pytest.raises(Unavailable):
        await bus.publish([kept("colo.v1.evt.job.changed", "x")])
    await says(bus, "stream COLO_EVT is missing: colo admin init")
    await made_streams(server.url)
    await eventually(lambda: _is_ready(bus), "the bus is back")
    await bus.publish([kept("colo.v1.evt.job.changed", "x")])
    await bus.close()


async def test_what_one_call_could_not_publish_is_not_taken_for_what_another_one_could_not(server: NatsServer) -> None:
    bus = await connected(server.url)
    async with jetstream_of(server) as jetstream:
        await jetstream.delete_stream(Stream.EVT.value)
    one, other = kept("colo.v1.evt.job.changed", "one"), kept("colo.v1.evt.job.changed", "other")
    with pytest.raises(Unavailable) as first:
        await bus.publish([one])
    assert first.value.left == (one,)
    # Of another service in the process, or of a call that was sent together with the first: it never reached the server.
    with pytest.raises(Unavailable) as second:
        await bus.publish([other])
    assert second.value.left in (None, (other,))
    assert str(second.value) == str(first.value) or "COLO_EVT" in str(second.value)
    await bus.close()


async def test_a_consumer_that_somebody_deletes_is_made_again(server: NatsServer) -> None:
    bus = await connected(server.url)
    operator = await nats.connect(server.url)
    received = Received()
    subject = "colo.v1.evt.job.changed"
    async with listening(bus, Source(subject=subject, stream=Stream.EVT.value, durable="d"), received):
        await received.until_received(bus, kept(subject, "one"))
        await operator.jetstream().delete_consumer(Stream.EVT.value, "d")
        await bus.publish([kept(subject, "two")])
        await received.until(lambda: "two" in received.texts)
    # The new consumer has no memory of what the old one had acknowledged.
    assert set(received.texts) == {"one", "two"}
    await operator.close()
    await bus.close()


async def test_an_unnamed_consumer_that_is_made_again_goes_on_where_it_began_although_it_heard_nothing_yet(
    server: NatsServer,
) -> None:
    bus = await connected(server.url)
    operator = await nats.connect(server.url)
    received = Received()
    subject = "colo.v1.evt.job.changed"
    await bus.publish([kept(subject, "before")])

    async def names() -> list[str]:
        return [info.name for info in await operator.jetstream().consumers_info(Stream.EVT.value)]

    async with listening(bus, Source(subject=subject, stream=Stream.EVT.value), received):
        (first,) = await eventually(names, "the consumer")
        await operator.jetstream().delete_consumer(Stream.EVT.value, first)
        await bus.publish([kept(subject, "between")])
        await received.until(lambda: "between" in received.texts)
    assert received.texts == ["between"]
    await operator.close()
    await bus.close()


async def test_a_second_process_finds_the_streams_of_the_first(server: NatsServer) -> None:
    first = await connected(server.url)
    second = await connected(server.url)
    assert (await first.ready(), await second.ready()) == ("", "")
    await first.close()
    await second.close()


async def test_a_server_without_jetstream_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async with ServerProcess(BARE, program=None, directory=tmp_path, port=None) as bare:
        bus = NatsBus(bare.url, name="contract")
        bus.start()
        with pytest.raises(Refused, match="without JetStream"):
            await bus.connected(LIMIT_S)
        assert "without JetStream" in await bus.ready()
        with pytest.raises(Refused, match="without JetStream"):
            await bus.publish([kept("colo.v1.evt.job.changed", "x")])
        await bus.close()


async def test_a_server_that_is_not_there_is_unavailable_and_named(unused_url: str) -> None:
    bus = NatsBus(unused_url.replace("//", "//user:secret@"), name="contract")
    bus.start()
    with pytest.raises(Unavailable) as caught:
        await bus.connected(0.3)
    assert unused_url.rpartition("//")[2] in str(caught.value)
    assert "secret" not in str(caught.value)
    with pytest.raises(Unavailable):
        await bus.publish([live("colo.v1.tlm.x", "x")])
    await bus.close()


async def test_a_message_that_is_too_large_is_refused_and_the_next_one_goes(nats_url: str) -> None:
    bus = await connected(nats_url)
    big = Outgoing(subject="colo.v1.evt.job.changed", data=bytes(64 << 20), durable=True)
    with pytest.raises(Refused, match="payload"):
        await bus.publish([big])
    await bus.publish([kept("colo.v1.evt.job.changed", "x")])
    await bus.close()


@pytest.mark.parametrize("durable", [True, False])
async def test_a_message_that_its_headers_make_too_large_is_refused_and_costs_no_connection(
    nats_url: str, durable: bool
) -> None:
    bus = await connected(nats_url)
    connections = bus.connections
    # A server that is told nothing takes a MiB, headers and all, and ends the connection of whoever sends more.
    headers = {"ce-subject": "x" * 400}
    big = Outgoing(subject="colo.v1.evt.job.changed", data=bytes((1 << 20) - 300), headers=headers, durable=durable)
    with pytest.raises(PoisonMessage, match="payload"):
        await bus.publish([big])
    await bus.publish([kept("colo.v1.evt.job.changed", "x")])
    assert bus.connections == connections
    await bus.close()


async def test_a_bus_is_ready_when_the_first_question_finds_its_service(nats_url: str) -> None:
    bus, asker = await connected(nats_url), await connected(nats_url)
    subject = f"colo.v1.req.svc-{uuid4().hex}.get"

    async def answer(data: bytes, headers: Mapping[str, str]) -> bytes:
        return data

    async def is_ready() -> bool:
        return await bus.ready() == ""

    assert await is_ready()
    task = asyncio.create_task(bus.answer("svc", {subject: answer}))
    assert await bus.ready() == "requests are not answered yet"
    await eventually(is_ready, "the bus is ready")
    assert await asker.ask(subject, b"x", LIMIT_S) == b"x"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await bus.close()
    await asker.close()


async def test_services_are_discoverable(nats_url: str) -> None:
    bus = await connected(nats_url, version="1.2.3")
    service = f"svc-{uuid4().hex}"
    subject = f"colo.v1.req.{service}.get"

    async def answer(data: bytes, headers: Mapping[str, str]) -> bytes:
        return data

    task = asyncio.create_task(bus.answer(service, {subject: answer}))
    operator = await nats.connect(nats_url)

    async def tells(verb: str) -> dict[str, Any] | None:
        try:
            msg = await operator.request(f"$SRV.{verb}.colo-{service}", timeout=LIMIT_S)
        except nats.errors.NoRespondersError:
            return None
        delivered: dict[str, Any] = json.loads(msg.data)
        return delivered

    async def info_with_endpoints() -> dict[str, Any] | None:
        delivered = await tells("INFO")
        return delivered if delivered and delivered["endpoints"] else None

    async def deleted() -> bool:
        return await tells("PING") is None

    info = await eventually(info_with_endpoints, "the service tells of its endpoint")
    assert info is not None
    assert (info["name"], info["version"], info["metadata"]) == (f"colo-{service}", "1.2.3", {"schema": "colo.v1"})
    assert [endpoint["subject"] for endpoint in info["endpoints"]] == [subject]
    assert await bus.ask(subject, b"hello", LIMIT_S) == b"hello"
    stats = await tells("STATS")
    assert stats is not None
    assert stats["endpoints"][0]["num_requests"] == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await eventually(deleted, "the service is gone")
    await operator.close()
    await bus.close()


async def _is_ready(bus: NatsBus) -> bool:
    return await bus.ready() == ""


async def test_who_is_cancelled_as_the_answer_comes_ends_all_the_same(server: NatsServer) -> None:
    bus, asker = await connected(server.url), await connected(server.url)
    received = asyncio.Event()

    async def silent(_msg: object) -> None:
        received.set()

    try:
        await bus._connection.client.subscribe("colo.v1.req.jobs.list", cb=silent)
        await bus._connection.client.flush()
        asking = asyncio.create_task(asker.ask("colo.v1.req.jobs.list", b"{}", 30))
        await received.wait()
        (answer,) = asker._connection.client._resp_map.values()
        # Both in one round of the loop: the asker is woken by the answer and by the cancellation.
        answer.set_result(nats.aio.msg.Msg(asker._connection.client, data=b"late"))
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    finally:
        await asker.close()
        await bus.close()


async def test_an_answer_that_is_taken_back_while_it_begins_leaves_the_connection_whole(server: NatsServer) -> None:
    bus = await connected(server.url)

    async def echo(data: bytes, headers: Mapping[str, str]) -> bytes:
        return data

    try:
        for turn in range(60):
            beginning = asyncio.create_task(bus.answer("colo-taken-back", {"colo.v1.req.echo": echo}))
            # At another moment of its beginning each time: the library waits for the server in some of them.
            for _ in range(turn):
                await asyncio.sleep(0)
            beginning.cancel()
            await asyncio.gather(beginning, return_exceptions=True)
        answering = asyncio.create_task(bus.answer("colo-echo", {"colo.v1.req.echo": echo}))

        async def is_answered() -> bytes:
            with suppress(Unavailable):
                return await bus.ask("colo.v1.req.echo", b"still here", 1.0)
            return b""

        assert await eventually(is_answered, "an answer over the same connection") == b"still here"
        assert bus.connections == 1
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
    finally:
        await bus.close()


async def test_how_far_consumers_are_behind_is_listed_whole_and_nothing_for_a_stream_that_is_not_there(
    bus: NatsBus, operator: JetStreamContext
) -> None:
    # The server lists 256 at a time.
    wanted = {f"behind-{number:03}" for number in range(260)}
    for name in sorted(wanted):
        config = ConsumerConfig(durable_name=name, mem_storage=True, filter_subject="colo.v1.evt.>")
        await operator.add_consumer(Stream.EVT.value, config)
    for number in range(3):
        await bus.publish([kept("colo.v1.evt.job.behind", str(number))])
    found = await bus.backlogs([Stream.EVT.value, "COLO_NOT_THERE"], LIMIT_S)
    assert {each.consumer for each in found} == wanted
    assert {(each.stream, each.pending, each.unacknowledged) for each in found} == {(Stream.EVT.value, 3, 0)}
