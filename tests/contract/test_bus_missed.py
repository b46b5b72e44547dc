"""What a stream discarded before its consumer received it is noticed, and so is what the server says by itself."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from shutil import copytree, move, rmtree

import pytest
from msgspec import structs
from nats.js.client import JetStreamContext

from colo_cli.servers import NatsServer
from colo_common.adapters.bus_nats import NatsBus
from colo_common.adapters.nats_access import NatsAccess
from colo_common.adapters.nats_stream_config import StreamWish
from colo_common.adapters.nats_streams import make_streams
from colo_common.events.registry import Stream
from colo_common.ports import Advisory, Delivery, PortError, Source
from tests.contract.test_bus import kept
from tests.support.ports import free_ports
from tests.support.servers import made_streams
from tests.support.waiting import LIMIT_S, eventually

RECEIVED, OTHER = "colo.v1.evt.job.changed", "colo.v1.evt.queue.changed"
SOURCE = Source(subject=RECEIVED, stream=Stream.EVT.value, durable="d", batch=1)
FOLLOWED = Source(subject=RECEIVED, stream=Stream.EVT.value, since_s=60, since_most=9)
LAST = Source(subject="colo.v1.evt.node.*.topology", stream=Stream.NODE.value, last_per_subject=True)


class Slow:
    """Receives one message and no further one until it may."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.missed: list[str] = []
        self.may_go_on = asyncio.Event()

    async def __call__(self, delivery: Delivery) -> None:
        self.texts.append(delivery.data.decode())
        await self.may_go_on.wait()
        await delivery.ack()

    async def note(self, why: str) -> None:
        self.missed.append(why)

    async def has(self, *texts: str) -> None:
        async def all_there() -> bool:
            return set(texts) <= set(self.texts)

        await eventually(all_there, f"{texts} are received")

    async def has_missed(self) -> str:
        async def any_missed() -> list[str]:
            return self.missed

        return (await eventually(any_missed, "something was missed"))[0]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    found = NatsServer(directory=tmp_path)
    await found.start()
    await made_streams(found.url)
    yield found
    await found.stop()


@asynccontextmanager
async def listening(bus: NatsBus, slow: Slow, source: Source = SOURCE) -> AsyncIterator[None]:
    task = asyncio.create_task(bus.listen(source, slow, slow.note))
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def say(bus: NatsBus, *texts: str, subject: str = RECEIVED) -> None:
    await bus.publish([kept(subject, text, f"{subject}:{text}") for text in texts])


async def keep_one(operator: JetStreamContext) -> None:
    """A limit that the stream has reached: its oldest messages go."""
    config = (await operator.stream_info(Stream.EVT.value)).config
    await operator.update_stream(config.evolve(max_msgs=1))


async def test_messages_that_a_limit_took_before_they_were_received_are_missed(
    bus: NatsBus, operator: JetStreamContext
) -> None:
    slow = Slow()
    await say(bus, "1", "2", "3", "4")
    async with listening(bus, slow):
        await slow.has("1")
        await keep_one(operator)
        slow.may_go_on.set()
        await slow.has("1", "4")
        assert await slow.has_missed() == "COLO_EVT discarded messages from 2 to 3"
    assert slow.texts == ["1", "4"]


async def test_messages_of_other_subjects_are_not_missed(bus: NatsBus) -> None:
    slow = Slow()
    slow.may_go_on.set()
    async with listening(bus, slow):
        for number in range(3):
            await say(bus, f"{number}", subject=OTHER)
            await say(bus, f"{number}")
            await slow.has(f"{number}")
    # A consumer that continues looks first of all at what it continues after.
    async with listening(bus, slow):
        await say(bus, "last")
        await slow.has("last")
    assert slow.missed == []


async def test_a_rare_fact_misses_nothing_when_the_stream_has_discarded_what_lay_between(
    bus: NatsBus, operator: JetStreamContext
) -> None:
    slow = Slow()
    slow.may_go_on.set()
    async with listening(bus, slow, structs.replace(SOURCE, batch=2)):
        await say(bus, "1")
        await slow.has("1")
        await keep_one(operator)
        await say(bus, "a", "b", "c", subject=OTHER)
        slow.may_go_on.clear()
        await say(bus, "2")
        await slow.has("2")
        # It asked for two messages, and asks for no more before it has handled the second.
        await say(bus, "3", "4", "5")
        slow.may_go_on.set()
        await slow.has("5")
        why = await slow.has_missed()
    assert slow.missed == [why] == ["COLO_EVT discarded messages from 6 to 7"]


async def test_what_went_while_nobody_listened_is_missed_at_the_start(bus: NatsBus, operator: JetStreamContext) -> None:
    slow = Slow()
    slow.may_go_on.set()
    await say(bus, "1")
    async with listening(bus, slow):
        await slow.has("1")
        await _acknowledged(operator)
    await say(bus, "2", "3", "4")
    await keep_one(operator)
    async with listening(bus, slow):
        assert await slow.has_missed() == "COLO_EVT discarded messages from 2 to 3"
        await slow.has("4")


@pytest.mark.parametrize("durable", ["d", ""])
@pytest.mark.parametrize("stored", [1, 3, 5])
async def test_who_hears_a_stream_that_was_made_again_has_missed_what_was_lost_and_receives_all_that_is_new(
    server: NatsServer, bus: NatsBus, operator: JetStreamContext, durable: str, stored: int
) -> None:
    """Also when the new stream holds as many messages by then as were received from the one before, or more."""
    slow = Slow()
    new = [f"new {number}" for number in range(stored)]
    source = Source(subject=RECEIVED, stream=Stream.EVT.value, durable=durable, batch=3, since_s=60, since_most=9)
    async with listening(bus, slow, source):
        slow.may_go_on.set()
        await say(bus, "1", "2")
        await slow.has("1", "2")
        slow.may_go_on.clear()
        await say(bus, "3")
        await slow.has("3")
        # While it handles the third it does not notice that its consumer is gone.
        await operator.delete_stream(Stream.EVT.value)
        await make_streams(NatsAccess(url=server.url), StreamWish(), upgrade=False)
        await say(bus, *new)
        slow.may_go_on.set()
        why = await slow.has_missed()
        await slow.has(*new)
    assert slow.missed == [why] == [f"COLO_EVT was made again, or restored: it ends at {stored}, and 3 was received"]
    assert slow.texts == ["1", "2", "3", *new]


async def test_what_the_server_says_about_consumers_of_colo_is_received(
    bus: NatsBus, operator: JetStreamContext
) -> None:
    received: list[Advisory] = []

    async def note(advisory: Advisory) -> None:
        received.append(advisory)

    async def ending(delivery: Delivery) -> None:
        await delivery.term()

    listening = asyncio.create_task(bus.advisories(note))

    async def is_received(kind: str) -> bool:
        """Made and deleted until it is received: nobody says when the listener has subscribed."""
        for name in ("colo-jobs-evt", "other"):
            await operator.add_consumer(Stream.EVT.value, durable_name=name, ack_policy="explicit")
            await operator.delete_consumer(Stream.EVT.value, name)
        return any(advisory.kind == kind for advisory in received)

    await eventually(lambda: is_received("consumer-deleted"), "the deletion is received")
    consuming = asyncio.create_task(bus.listen(structs.replace(SOURCE, durable="colo-jobs-evt"), ending))
    await say(bus, "poison")

    async def is_ended() -> bool:
        return any(advisory.kind == "message-terminated" for advisory in received)

    await eventually(is_ended, "the end of the message is received")
    for task in (listening, consuming):
        task.cancel()
    await asyncio.gather(listening, consuming, return_exceptions=True)
    assert {(advisory.stream, advisory.consumer) for advisory in received} == {("COLO_EVT", "colo-jobs-evt")}


async def _acknowledged(operator: JetStreamContext) -> None:
    async def is_acknowledged() -> bool:
        return (await operator.consumer_info(Stream.EVT.value, "d")).num_ack_pending == 0

    await eventually(is_acknowledged, "the message is acknowledged")


async def test_who_hears_last_messages_is_told_when_their_stream_is_made_again(
    server: NatsServer, bus: NatsBus, operator: JetStreamContext
) -> None:
    """However many messages the new stream has by then: it is known by the time at which it was made."""
    slow, subject = Slow(), "colo.v1.evt.node.n1.topology"
    slow.may_go_on.set()
    async with listening(bus, slow, Source(subject=subject, stream=Stream.NODE.value, last_per_subject=True)):
        await say(bus, "old", subject=subject)
        await slow.has("old")
        await operator.delete_stream(Stream.NODE.value)
        await made_streams(server.url)
        await say(bus, "new", "newer", subject=subject)
        await slow.has("newer")
    # Whoever begins to listen cannot compare, and is told of a stream that is young.
    young, again = slow.missed
    assert re.fullmatch(r"COLO_NODE was made \d+ s ago, and may have been lost before", young)
    assert again == "COLO_NODE was made again, or restored"


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[NatsBus]:
    bus = NatsBus(url, name="contract")
    bus.start()
    await bus.connected(LIMIT_S)
    yield bus
    await bus.close()


async def is_stored(bus: NatsBus, text: str, subject: str) -> bool:
    try:
        await say(bus, text, subject=subject)
    except PortError:
        return False
    return True


@pytest.mark.parametrize("source", [SOURCE, FOLLOWED, LAST], ids=["durable", "unnamed", "last"])
async def test_a_stream_that_lost_its_newest_messages_and_stored_others_under_their_numbers_is_noticed(
    tmp_path: Path, source: Source
) -> None:
    """As after a loss of power: what was not on the disk is gone, and the stream is as it was made."""
    subjects = [source.subject.replace("*", f"n{number}") for number in range(4)]
    slow, (port, other_port) = Slow(), free_ports(2)
    slow.may_go_on.set()
    server = NatsServer(directory=tmp_path / "server", port=port)
    await server.start()
    await made_streams(server.url)
    async with connected(server.url) as bus, listening(bus, slow, source):
        await say(bus, "1", subject=subjects[0])
        await slow.has("1")
        await server.stop()
        copytree(tmp_path / "server", tmp_path / "copy")
        await server.start()
        await eventually(lambda: is_stored(bus, "2", subjects[1]), "the server is back")
        await say(bus, "3", subject=subjects[2])
        await slow.has("1", "2", "3")
        await server.stop()
        rmtree(tmp_path / "server")
        move(tmp_path / "copy", tmp_path / "server")
        # Others are faster than the one that listens.
        async with (
            NatsServer(directory=tmp_path / "server", port=other_port) as elsewhere,
            connected(elsewhere.url) as other,
        ):
            for text, subject in zip(("a", "b", "c"), subjects[1:], strict=True):
                await say(other, text, subject=subject)
        await server.start()
        await slow.has("a", "b", "c")

        async def is_noticed() -> bool:
            return bool(slow.missed) and slow.missed[-1].startswith(
                f"{source.stream} was restored: it has another message "
            )

        await eventually(is_noticed, "the loss is noticed")
        await say(bus, "4", subject=subjects[0])
        await slow.has("4")
    # Whoever begins with the last messages of a young stream asks for what it had before.
    assert len(slow.missed) == 1 + source.last_per_subject
    assert slow.texts[-1] == "4"
    await server.stop()
