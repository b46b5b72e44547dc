"""A dead letter names a message by its place in a stream. In a stream that was made again another message has that place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
from msgspec import structs
from nats.js import JetStreamContext

from colo_cli.servers import NatsServer
from colo_common.adapters.bus_nats import NatsBus
from colo_common.adapters.clock import SystemClock
from colo_common.events.registry import Stream
from colo_common.events.service import DeadLettered
from colo_common.ports import DeadLetter, Delivery, NotKept, Outgoing, Source
from colo_common.runtime.stamp import Stamp
from tests.contract.test_bus import kept
from tests.support.servers import made_streams
from tests.support.waiting import eventually

SUBJECT: Final = "colo.v1.evt.queue.changed"
#: So large that a letter does not hold it.
LARGE: Final = "{" * 600_000
LOST: Final = "does not hold its message, and COLO_EVT no longer keeps it (message 1"
REMADE: Final = f"{LOST} is another one since it was made again or restored)"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    found = NatsServer(directory=tmp_path)
    await found.start()
    await made_streams(found.url)
    yield found
    await found.stop()


@pytest.fixture
def stamp() -> Stamp:
    return Stamp("jobs", "b1", SystemClock())


async def received(bus: NatsBus) -> Delivery:
    """The message that the stream begins with, as a service receives it."""
    found: list[Delivery] = []

    async def sink(delivery: Delivery) -> None:
        found.append(delivery)

    async def any_found() -> list[Delivery]:
        return found

    source = Source(subject=SUBJECT, stream=Stream.EVT.value, since_s=3_600, since_most=9)
    task = asyncio.create_task(bus.listen(source, sink))
    try:
        return (await eventually(any_found, "the message is received"))[0]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def made_again(server: NatsServer, operator: JetStreamContext, stream: Stream) -> None:
    await operator.delete_stream(stream.value)
    await made_streams(server.url)


async def dead_letters(bus: NatsBus) -> list[DeadLetter]:
    return list(await bus.dead_letters.page(0, 10))


async def test_a_message_that_has_the_place_of_another_one_is_never_taken_for_it(
    server: NatsServer, bus: NatsBus, operator: JetStreamContext, stamp: Stamp
) -> None:
    await bus.publish([kept(SUBJECT, f"{LARGE}1", "1")])
    await bus.publish([stamp.dead_letter(await received(bus), "because")])
    (letter,) = await dead_letters(bus)
    assert not letter.letter.data
    found = await bus.dead_letters.message_of(letter)
    assert isinstance(found, Outgoing)
    assert found.data.decode() == f"{LARGE}1"

    await made_again(server, operator, Stream.EVT)
    assert await bus.dead_letters.message_of(letter) == NotKept(f"{LOST})")
    await bus.publish([kept(SUBJECT, f"{LARGE}2", "2")])
    assert await bus.dead_letters.message_of(letter) == NotKept(REMADE)


@pytest.mark.parametrize("other", ["[" * len(LARGE), f"{LARGE}["])
async def test_a_letter_of_an_earlier_version_is_compared_with_what_it_holds(bus: NatsBus, other: str) -> None:
    fact = DeadLettered(
        service="jobs",
        subject=SUBJECT,
        reason="because",
        payload=LARGE[:2_048],
        size_bytes=len(LARGE),
        stream=Stream.EVT.value,
        stream_seq=1,
    )
    await bus.publish([kept(SUBJECT, other, "1"), kept(SUBJECT, LARGE, "2")])
    assert await bus.dead_letters.message_of(DeadLetter(seq=1, letter=fact)) == NotKept(REMADE)
    whole = await bus.dead_letters.message_of(DeadLetter(seq=2, letter=structs.replace(fact, stream_seq=2)))
    assert isinstance(whole, Outgoing)


async def test_each_message_that_cannot_be_handled_gets_its_letter_also_in_the_place_of_another_one(
    server: NatsServer, bus: NatsBus, operator: JetStreamContext, stamp: Stamp
) -> None:
    await bus.publish([kept(SUBJECT, "1", "1")])
    first = await received(bus)
    # Its acknowledgement is lost, and it comes once more.
    await bus.publish([stamp.dead_letter(first, "because"), stamp.dead_letter(await received(bus), "because")])
    assert [each.letter.data for each in await dead_letters(bus)] == [b"1"]
    await made_again(server, operator, Stream.EVT)
    await bus.publish([kept(SUBJECT, "2", "2")])
    second = await received(bus)
    assert second.stream_seq == first.stream_seq == 1
    await bus.publish([stamp.dead_letter(second, "because")])
    assert [each.letter.data for each in await dead_letters(bus)] == [b"1", b"2"]


async def test_two_letters_of_one_number_are_both_replayed_and_each_of_them_once(
    server: NatsServer, bus: NatsBus, operator: JetStreamContext, stamp: Stamp
) -> None:
    for text in ("1", "2"):
        delivery = Delivery(SUBJECT, text.encode(), stream=Stream.EVT.value, stream_seq=7, stored_us=int(text))
        await bus.publish([stamp.dead_letter(delivery, "because")])
        (letter,) = await dead_letters(bus)
        assert letter.seq == 1
        for _ in range(2):
            message = await bus.dead_letters.message_of(letter)
            assert isinstance(message, Outgoing)
            await bus.publish([message])
        await made_again(server, operator, Stream.DEAD)
    state = (await operator.stream_info(Stream.EVT.value)).state
    assert state.messages == 2
