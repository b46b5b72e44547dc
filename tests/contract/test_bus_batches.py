"""Many messages at once to a real NATS that syncs its disk for each: batches keep what single messages keep."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest
from nats.js import JetStreamContext
from structlog.testing import capture_logs

from colo_cli.servers import NatsServer
from colo_common.adapters.bus_nats import NatsBus
from colo_common.events.registry import Stream
from colo_common.ports import Outgoing, Refused
from tests.contract.test_bus import kept, live
from tests.support.ports import free_ports
from tests.support.servers import made_streams
from tests.support.waiting import eventually

SUBJECT = "colo.v1.evt.job.changed"
#: A call of so many messages of one stream is a batch.
MANY = 80


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    first = NatsServer(directory=tmp_path, port=free_ports(1)[0], sync_always=True)
    await first.start()
    await made_streams(first.url)
    yield first
    await first.stop()


def many(name: str, subject: str = SUBJECT) -> list[Outgoing]:
    return [kept(subject, f"{name}-{index}", f"{name}-{index}", {"ce-type": name}) for index in range(MANY)]


async def stored(jetstream: JetStreamContext, stream: Stream = Stream.EVT) -> list[tuple[str, dict[str, str]]]:
    """Text and headers of all messages."""
    last = (await jetstream.stream_info(stream.value)).state.last_seq
    messages = [await jetstream.get_msg(stream.value, seq) for seq in range(1, last + 1)]
    return [((message.data or b"").decode(), dict(message.headers or {})) for message in messages]


def texts(found: list[tuple[str, dict[str, str]]]) -> list[str]:
    return [text for text, _ in found]


def batches(found: list[tuple[str, dict[str, str]]]) -> set[str]:
    return {headers["Nats-Batch-Id"] for _, headers in found if "Nats-Batch-Id" in headers}


async def test_many_messages_of_one_stream_are_one_batch_in_order_with_their_headers(
    bus: NatsBus, operator: JetStreamContext
) -> None:
    sent = many("a")
    await bus.publish([*sent[:20], live("colo.v1.tlm.x", "live"), *sent[20:], kept("colo.v1.evt.node.n.x", "node")])
    await bus.publish([kept(SUBJECT, "after")])
    found = await stored(operator)
    assert texts(found) == [*(message.data.decode() for message in sent), "after"]
    assert len(batches(found)) == 1
    assert all(headers["ce-type"] == "a" and headers["Nats-Msg-Id"] == text for text, headers in found[:-1])
    assert texts(await stored(operator, Stream.NODE)) == ["node"]


async def test_a_batch_that_is_sent_again_stores_nothing_twice(bus: NatsBus, operator: JetStreamContext) -> None:
    sent = many("a")
    await bus.publish(sent)
    await bus.publish(sent)
    await bus.publish([*sent[5:], kept(SUBJECT, "new", "new"), *sent[:5]])
    await bus.publish([*many("b"), *many("b")])
    found = await stored(operator)
    assert texts(found) == [*texts_of(sent), "new", *texts_of(many("b"))]
    assert batches(found)


def texts_of(messages: list[Outgoing]) -> list[str]:
    return [message.data.decode() for message in messages]


async def test_where_a_repeated_message_was_stored_before_is_told(bus: NatsBus, operator: JetStreamContext) -> None:
    await bus.publish([kept(SUBJECT, "other", "other"), *(kept(SUBJECT, name, name) for name in "ab")])
    with capture_logs() as lines:
        await bus.publish([kept(SUBJECT, name, name) for name in "abc"])
    found = [line for line in lines if line["event"] == "stored-before"]
    assert [(line["messages"], line["first"], line["stream"], line["seq"], line["last"]) for line in found] == [
        (2, "a", Stream.EVT.value, 2, 3)
    ]
    assert texts(await stored(operator)) == ["other", "a", "b", "c"]


async def test_one_message_that_is_refused_holds_up_no_other_of_its_batch(
    bus: NatsBus, operator: JetStreamContext
) -> None:
    config = (await operator.stream_info(Stream.EVT.value)).config
    await operator.update_stream(config.evolve(max_msg_size=2_000))
    sent = many("a")
    sent[7] = kept(SUBJECT, "x" * 3_000, "large")
    with pytest.raises(Refused, match="message size exceeds"):
        await bus.publish(sent)
    found = await stored(operator)
    assert texts(found) == texts_of([*sent[:7], *sent[8:]])
    assert batches(found) == set()


async def test_a_stream_that_takes_no_batches_gets_single_messages(bus: NatsBus, operator: JetStreamContext) -> None:
    config = (await operator.stream_info(Stream.EVT.value)).config
    await operator.update_stream(config.evolve(allow_atomic=False))
    await bus.publish(many("a"))
    await bus.publish(many("b"))
    found = await stored(operator)
    assert texts(found) == texts_of([*many("a"), *many("b")])
    assert batches(found) == set()


async def test_batches_of_several_calls_at_once_are_each_kept_whole(bus: NatsBus, operator: JetStreamContext) -> None:
    names = "abcdef"
    await asyncio.gather(*(bus.publish(many(name)) for name in names))
    found = await stored(operator)
    assert texts(found) == [text for name in names for text in texts_of(many(name))]


async def test_a_batch_that_was_acknowledged_survives_a_killed_server_and_is_known_to_it(
    server: NatsServer, bus: NatsBus, tmp_path: Path
) -> None:
    await bus.publish(many("a"))
    os.kill(server.pid, signal.SIGKILL)
    await server.stop()
    await eventually(bus.ready, "the bus says that it is away")
    async with NatsServer(directory=tmp_path, port=server.port, sync_always=True) as again:

        async def is_back() -> bool:
            return await bus.ready() == ""

        await eventually(is_back, "the bus is back")
        # As after an acknowledgement that was lost.
        await bus.publish(many("a"))
        await bus.publish(many("b"))
        client = await nats.connect(again.url)
        assert texts(await stored(client.jetstream())) == texts_of([*many("a"), *many("b")])
        await client.close()
