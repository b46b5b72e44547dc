"""The bus's promises, kept alike by the memory twin and by a real NATS with JetStream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from uuid import uuid4

import nats.errors
import pytest
from nats.aio.client import Client

from colo_common.adapters.bus_nats import NatsBus
from colo_common.events.external import SetExternalCapacity
from colo_common.events.registry import Stream, request_spec_of
from colo_common.ports import Bus, Delivery, Outgoing, Refused, Source, Unavailable
from tests.support.bus_memory import MemoryBus
from tests.support.waiting import LIMIT_S, eventually


@pytest.fixture(params=["memory", "nats"])
async def bus(request: pytest.FixtureRequest) -> AsyncIterator[Bus]:
    if request.param == "memory":
        yield MemoryBus()
        return
    real = NatsBus(request.getfixturevalue("nats_url"), name="contract")
    real.start()
    await real.connected(LIMIT_S)
    yield real
    await real.close()


@pytest.fixture
def own() -> str:
    """One token that no other test uses in its subjects."""
    return uuid4().hex


class Received:
    """Collects deliveries; does with each what `act` says, and waits for counts without guessing spans."""

    def __init__(self, act: str = "ack") -> None:
        self.deliveries: list[Delivery] = []
        self._act = act
        self._more = asyncio.Event()

    async def __call__(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        self._more.set()
        if self._act == "ack":
            await delivery.ack()

    @property
    def texts(self) -> list[str]:
        return [delivery.data.decode() for delivery in self.deliveries]

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not holds():
                self._more.clear()
                await self._more.wait()

    async def until_received(self, bus: Bus, message: Outgoing) -> None:
        """Live and unnamed listeners need a moment until they hear; say it again until they do."""
        text = message.data.decode()

        async def is_received() -> bool:
            if text not in self.texts:
                await bus.publish([message])
            return text in self.texts

        await eventually(is_received, f"{text} is heard", limit_s=LIMIT_S)

    async def count(self, wanted: int) -> list[Delivery]:
        await self.until(lambda: len(self.deliveries) >= wanted)
        return self.deliveries


@asynccontextmanager
async def listening(bus: Bus, source: Source, sink: Received) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(bus.listen(source, sink))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def kept(subject: str, text: str, msg_id: str = "", headers: dict[str, str] | None = None) -> Outgoing:
    return Outgoing(subject=subject, data=text.encode(), durable=True, msg_id=msg_id, headers=headers or {})


def live(subject: str, text: str) -> Outgoing:
    return Outgoing(subject=subject, data=text.encode(), durable=False)


def event(own: str, *words: str) -> str:
    return ".".join(("colo.v1.evt.job", own, *words))


def durable_source(own: str, name: str = "d", **more: int) -> Source:
    return Source(subject=event(own, "*"), stream=Stream.EVT.value, durable=f"{name}-{own}", **more)  # type: ignore[arg-type]


async def test_a_live_message_reaches_every_listener_of_a_fitting_subject(bus: Bus, own: str) -> None:
    first, second, other = Received(), Received(), Received()
    async with (
        listening(bus, Source(subject=f"colo.v1.tlm.{own}.*.usage"), first),
        listening(bus, Source(subject=f"colo.v1.tlm.{own}.>"), second),
        listening(bus, Source(subject=f"colo.v1.tlm.{own}.a"), other),
    ):
        await first.until_received(bus, live(f"colo.v1.tlm.{own}.n1.usage", "x"))
        await second.until_received(bus, live(f"colo.v1.tlm.{own}.n1.usage", "x"))
    assert first.deliveries[0].subject == f"colo.v1.tlm.{own}.n1.usage"
    assert first.deliveries[0].data == b"x"
    assert other.deliveries == []


class Gated(Received):
    """A sink that is stuck in its first delivery until the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def __call__(self, delivery: Delivery) -> None:
        await super().__call__(delivery)
        await self.gate.wait()


async def test_a_slow_live_listener_keeps_the_newest_of_each_subject(bus: Bus, own: str) -> None:
    slow, fast = Gated(), Received()
    source = Source(subject=f"colo.v1.tlm.{own}.*")
    async with listening(bus, source, slow), listening(bus, source, fast):
        await slow.until_received(bus, live(f"colo.v1.tlm.{own}.a", "first"))
        await fast.until_received(bus, live(f"colo.v1.tlm.{own}.a", "first"))
        # The fast listener says when each pair has arrived.
        for number in range(50):
            await bus.publish([live(f"colo.v1.tlm.{own}.{name}", f"{name}{number}") for name in "ab"])
            await fast.until(lambda last=f"b{number}": last in fast.texts)  # type: ignore[misc]
        slow.gate.set()
        await slow.until(lambda: {"a49", "b49"} <= set(slow.texts))
    assert len(slow.texts) < 20
    assert slow.texts[-1] in ("a49", "b49")


async def test_a_durable_listener_gets_what_was_said_before_it_came_in_order(bus: Bus, own: str) -> None:
    await bus.publish([kept(event(own, "a"), str(number)) for number in range(1_500)])
    received = Received()
    async with listening(bus, durable_source(own), received):
        await received.count(1_500)
    assert received.texts == [str(number) for number in range(1_500)]
    assert all(delivery.deliveries == 1 for delivery in received.deliveries)


async def test_a_durable_listener_goes_on_where_it_stopped(bus: Bus, own: str) -> None:
    await bus.publish([kept(event(own, "a"), "one")])
    first = Received()
    async with listening(bus, durable_source(own), first):
        await first.count(1)
    await bus.publish([kept(event(own, "a"), "two")])
    second = Received()
    async with listening(bus, durable_source(own), second):
        await second.count(1)
    assert (first.texts, second.texts) == (["one"], ["two"])


async def test_two_durable_consumers_each_get_everything(bus: Bus, own: str) -> None:
    await bus.publish([kept(event(own, "a"), "x")])
    first, second = Received(), Received()
    async with listening(bus, durable_source(own, "d1"), first), listening(bus, durable_source(own, "d2"), second):
        await first.count(1)
        await second.count(1)
    assert (first.texts, second.texts) == (["x"], ["x"])


async def test_what_is_not_acknowledged_comes_again_after_the_wait(bus: Bus, own: str) -> None:
    await bus.publish([kept(event(own, "a"), "x")])
    received = Received(act="nothing")
    async with listening(bus, durable_source(own, ack_wait_s=1), received):
        await received.count(2)
    # It comes as often as a second passes before the listener ends.
    assert [delivery.deliveries for delivery in received.deliveries][:2] == [1, 2]


async def test_a_message_of_a_stream_says_where_it_is_stored_however_often_it_comes(bus: Bus, own: str) -> None:
    await bus.publish([kept(event(own, "a"), "x")])
    received = Received(act="nothing")
    async with listening(bus, durable_source(own), received):
        await received.count(1)
        for number in range(25):
            await received.deliveries[number].nak()
            await received.count(number + 2)
    assert [delivery.deliveries for delivery in received.deliveries] == list(range(1, 27))
    assert len({(delivery.stream, delivery.stream_seq) for delivery in received.deliveries}) == 1
    assert received.deliveries[0].stream_seq > 0


async def test_nak_brings_a_message_back_and_ack_and_term_do_not(bus: Bus, own: str) -> None:
    await bus.publish([kept(event(own, "a"), text) for text in ("again", "done", "dead")])
    received = Received(act="nothing")
    async with listening(bus, durable_source(own), received):
        again, done, dead = await received.count(3)
        await done.ack()
        await dead.term()
        await again.nak(0.2)
        await received.count(4)
        await received.deliveries[3].nak()
        await received.count(5)
        await received.deliveries[4].ack()
        await bus.publish([kept(event(own, "a"), "end")])
        await received.count(6)
    assert received.texts == ["again", "done", "dead", "again", "again", "end"]
    assert [delivery.deliveries for delivery in received.deliveries] == [1, 1, 1, 2, 3, 1]


async def test_a_second_message_of_the_same_id_is_dropped(bus: Bus, own: str) -> None:
    await bus.publish(
        [kept(event(own, "a"), "one", msg_id=f"{own}-1"), kept(event(own, "a"), "copy", msg_id=f"{own}-1")]
    )
    await bus.publish(
        [kept(event(own, "a"), "copy", msg_id=f"{own}-1"), kept(event(own, "a"), "two", msg_id=f"{own}-2")]
    )
    received = Received()
    async with listening(bus, durable_source(own), received):
        await received.count(2)
    assert received.texts == ["one", "two"]


async def test_many_messages_of_one_call_are_kept_once_however_often_they_are_sent(bus: Bus, own: str) -> None:
    def some(first: int, count: int) -> list[Outgoing]:
        return [kept(event(own, "ab"[n % 2]), str(n), msg_id=f"{own}-{n}") for n in range(first, first + count)]

    # Overlaps with what was sent before at the front, and not at all; then everything once more.
    for first in (0, 40, 80, 100, 140, 180):
        await bus.publish(some(first, 40))
    await bus.publish(some(0, 220))
    received = Received()
    async with listening(bus, durable_source(own), received):
        await bus.publish([kept(event(own, "a"), "end")])
        await received.until(lambda: "end" in received.texts)
    assert received.texts == [*map(str, range(220)), "end"]


async def test_a_replaying_listener_gets_the_last_of_each_subject_then_what_comes(bus: Bus, own: str) -> None:
    def node(name: str) -> str:
        return f"colo.v1.evt.node.{own}-{name}.topology"

    await bus.publish([kept(node("a"), "a1"), kept(node("b"), "b1"), kept(node("a"), "a2")])
    received = Received()
    # The pattern has no room for the own token: others' messages are filtered out here.
    source = Source(subject="colo.v1.evt.node.*.topology", stream=Stream.NODE.value, last_per_subject=True)
    async with listening(bus, source, received):
        await received.until(lambda: len(_of(received, own)) == 2)
        await bus.publish([kept(node("c"), "c1"), kept(node("a"), "a3")])
        await received.until(lambda: len(_of(received, own)) == 4)
    assert _of(received, own) == ["b1", "a2", "c1", "a3"]
    # What was there before is as old as the bus says, what comes is new.
    ages = {one.data.decode(): one.age_ms for one in received.deliveries if f".{own}-" in one.subject}
    assert {name: age_ms > 0 for name, age_ms in ages.items()} == {"b1": True, "a2": True, "c1": False, "a3": False}
    later = Received()
    async with listening(bus, source, later):
        await later.until(lambda: len(_of(later, own)) == 3)
    assert all(one.age_ms > 0 for one in later.deliveries if f".{own}-" in one.subject)


async def test_an_unnamed_listener_begins_now(bus: Bus, own: str) -> None:
    await bus.publish([kept(event(own, "a"), "before")])
    received = Received()
    async with listening(bus, Source(subject=event(own, "*"), stream=Stream.EVT.value), received):
        await received.until_received(bus, kept(event(own, "a"), "after"))
    assert set(received.texts) == {"after"}


@pytest.mark.parametrize("is_named", [False, True])
async def test_a_new_listener_may_begin_some_time_ago(bus: Bus, own: str, is_named: bool) -> None:
    await bus.publish([kept(event(own, "a"), "old")])
    numbers = iter(range(1_000))

    async def begins_later() -> bool:
        """Whether it heard what was said before it came and not what was said long before: a second is soon over."""
        new = f"new{next(numbers)}"
        durable = f"late-{own}-{new}" if is_named else ""
        source = Source(subject=event(own, "*"), stream=Stream.EVT.value, durable=durable, since_s=1, since_most=100)
        await bus.publish([kept(event(own, "b"), new)])
        received = Received()
        async with listening(bus, source, received):
            after = iter(range(1_000))

            async def is_received() -> bool:
                await bus.publish([kept(event(own, "a"), f"after {new} {next(after)}")])
                return any(new in text.split() for text in received.texts)

            await eventually(is_received, f"{new} is received, or what came after it", limit_s=LIMIT_S)
        assert received.texts == sorted(set(received.texts), key=received.texts.index)
        return new in received.texts and "old" not in received.texts

    await eventually(begins_later, "the first message is too old", limit_s=LIMIT_S)


async def test_a_named_listener_may_begin_some_time_ago_and_continues_where_it_stopped(bus: Bus, own: str) -> None:
    source = Source(subject=event(own, "a"), stream=Stream.EVT.value, durable=f"since-{own}", since_s=3_600)
    await bus.publish([kept(event(own, "a"), str(number)) for number in range(3)])
    for number, expected in ((3, ["0", "1", "2"]), (4, ["3"]), (5, ["4"])):
        received = Received()
        async with listening(bus, source, received):
            await received.count(len(expected))
        assert received.texts == expected
        await bus.publish([kept(event(own, "a"), str(number))])


async def test_an_unnamed_listener_that_begins_some_time_ago_begins_with_the_newest_messages(
    bus: Bus, own: str
) -> None:
    await bus.publish([kept(event(own, "a"), str(number)) for number in range(20)])
    for most, expected in ((20, range(20)), (5, range(15, 20))):
        received = Received()
        source = Source(subject=event(own, "*"), stream=Stream.EVT.value, since_s=3_600, since_most=most)
        async with listening(bus, source, received):
            await received.count(len(expected))
        assert received.texts == [str(number) for number in expected]


async def test_one_consumer_delivers_several_subjects_in_the_order_of_the_stream(bus: Bus, own: str) -> None:
    sent = [(dead_letter, str(number)) for number, dead_letter in enumerate("abcabacb")]
    source = Source(subject=event(own, "a"), also=(event(own, "b"),), stream=Stream.EVT.value, durable=f"many-{own}")
    await bus.publish([kept(event(own, dead_letter), text) for dead_letter, text in sent[:4]])
    received = Received()
    async with listening(bus, source, received):
        await received.count(3)
        await bus.publish([kept(event(own, dead_letter), text) for dead_letter, text in sent[4:]])
        await received.count(6)
    assert received.texts == [text for dead_letter, text in sent if dead_letter != "c"]


async def test_one_pattern_may_span_all_subjects_of_a_stream(bus: Bus, own: str) -> None:
    sent = [kept(f"colo.v1.evt.{domain}.{own}", domain) for domain in ("job", "placement", "queue")]
    received = Received()
    async with listening(bus, Source(subject="colo.v1.evt.>", stream=Stream.EVT.value, durable=f"all-{own}"), received):
        await bus.publish(sent)
        await received.until(lambda: len(_of(received, own)) == 3)
    assert _of(received, own) == ["job", "placement", "queue"]


async def test_a_replaying_listener_of_several_subjects_gets_the_last_of_each(bus: Bus, own: str) -> None:
    def node(name: str, word: str) -> str:
        return f"colo.v1.evt.node.{own}-{name}.{word}"

    await bus.publish([kept(node("a", "topology"), "t1"), kept(node("a", "allocatable"), "a1")])
    await bus.publish([kept(node("a", "topology"), "t2"), kept(node("a", "other"), "o1")])
    received = Received()
    topology, allocatable = "colo.v1.evt.node.*.topology", "colo.v1.evt.node.*.allocatable"
    source = Source(subject=topology, also=(allocatable,), stream=Stream.NODE.value, last_per_subject=True)
    async with listening(bus, source, received):
        await received.until(lambda: len(_of(received, own)) == 2)
        await bus.publish([kept(node("b", "allocatable"), "a2")])
        await received.until(lambda: len(_of(received, own)) == 3)
    assert _of(received, own) == ["a1", "t2", "a2"]


async def test_an_unnamed_listener_hears_everything_once_whatever_it_answers(bus: Bus, own: str) -> None:
    received = Received("nothing")
    async with listening(bus, Source(subject=event(own, "*"), stream=Stream.EVT.value), received):
        await received.until_received(bus, kept(event(own, "a"), "probe"))
        for delivery in tuple(received.deliveries):
            await delivery.nak()
        await bus.publish([kept(event(own, "a"), "last")])
        await received.until(lambda: received.texts[-1] == "last")
    assert received.texts.count("last") == 1
    assert all(delivery.deliveries == 1 for delivery in received.deliveries)


async def test_headers_travel_with_the_message(bus: Bus, own: str) -> None:
    headers = {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "ce-type": "x"}
    await bus.publish([kept(event(own, "a"), "x", headers=headers)])
    received = Received()
    async with listening(bus, durable_source(own), received):
        (delivery,) = await received.count(1)
    assert headers.items() <= dict(delivery.headers).items()


async def test_a_live_listener_also_hears_what_a_stream_keeps(bus: Bus, own: str) -> None:
    received = Received()
    async with listening(bus, Source(subject=event(own, "*")), received):
        await received.until_received(bus, kept(event(own, "a"), "x"))
    assert received.texts[0] == "x"


async def test_a_durable_message_that_no_stream_keeps_is_refused(bus: Bus, own: str) -> None:
    with pytest.raises(Refused, match=own):
        await bus.publish([kept(f"elsewhere.{own}", "x")])


async def test_a_slow_sink_holds_its_own_consumer_back_and_no_other(bus: Bus, own: str) -> None:
    await bus.publish([kept(event(own, "a"), str(number)) for number in range(50)])
    slow, fast = Gated(), Received()
    async with listening(bus, durable_source(own, "slow"), slow), listening(bus, durable_source(own, "fast"), fast):
        await fast.count(50)
        assert len(slow.deliveries) <= 1
        slow.gate.set()
        await slow.count(50)
    assert slow.texts == [str(number) for number in range(50)]


# ---------------------------------------------------------------- questions


@asynccontextmanager
async def answering(bus: Bus, service: str, **answers: str) -> AsyncIterator[None]:
    """Answers `subject` with a text, the request and a header."""

    def answerer(text: str):  # type: ignore[no-untyped-def]
        async def answer(data: bytes, headers: Mapping[str, str]) -> bytes:
            return f"{text}:{data.decode()}:{headers.get('traceparent', '')}".encode()

        return answer

    task = asyncio.create_task(
        bus.answer(service, {subject.replace("_", "."): answerer(text) for subject, text in answers.items()})
    )
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def asked(bus: Bus, subject: str, data: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """Ask until somebody answers: an answerer needs a moment until it is heard of."""

    async def answer() -> tuple[bytes] | None:
        try:
            return (await bus.ask(subject, data, 5, headers),)
        except Unavailable:
            return None

    found = await eventually(answer, f"{subject} is answered", limit_s=LIMIT_S)
    assert found is not None
    return found[0]


async def test_a_question_gets_the_answer_of_its_subject(bus: Bus, own: str) -> None:
    async with answering(bus, f"svc{own}", **{f"colo_v1_req_{own}_get": "got", f"colo_v1_req_{own}_list": "listed"}):
        assert await asked(bus, f"colo.v1.req.{own}.get", b"7", {"traceparent": "tp"}) == b"got:7:tp"
        assert await asked(bus, f"colo.v1.req.{own}.list", b"8") == b"listed:8:"


async def test_a_server_that_is_slow_to_take_the_subjects_is_waited_for(
    nats_url: str, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush, slow = Client.flush, [True] * 3

    async def slowly(client: Client, timeout: int = 10) -> None:
        if slow:
            slow.pop()
            raise nats.errors.FlushTimeoutError
        await flush(client, timeout)

    bus = NatsBus(nats_url, name="contract")
    bus.start()
    await bus.connected(LIMIT_S)
    monkeypatch.setattr(Client, "flush", slowly)
    async with answering(bus, f"svc{own}", **{f"colo_v1_req_{own}_get": "got"}):
        assert await bus.ready() == "requests are not answered yet"
        assert await asked(bus, f"colo.v1.req.{own}.get", b"7") == b"got:7:"
        assert (slow, await bus.ready()) == ([], "")
    await bus.close()


async def test_each_question_is_answered_by_one_member_of_the_service(bus: Bus, own: str) -> None:
    subject = f"colo_v1_req_{own}_get"
    async with answering(bus, f"svc{own}", **{subject: "one"}), answering(bus, f"svc{own}", **{subject: "two"}):
        seen: set[bytes] = set()
        async with asyncio.timeout(LIMIT_S):
            while len(seen) < 2:
                seen.add(await asked(bus, f"colo.v1.req.{own}.get", b""))
    assert seen == {b"one::", b"two::"}


async def test_a_question_about_a_part_of_the_work_is_answered_by_whoever_holds_that_part(bus: Bus, own: str) -> None:
    subject = request_spec_of(SetExternalCapacity).subject.template

    def holder(part: bytes):  # type: ignore[no-untyped-def]
        async def answer(data: bytes, headers: Mapping[str, str]) -> bytes:
            return b"of " + part if data == part else b""

        return answer

    service = f"svc{own}"
    members = [asyncio.create_task(bus.answer(service, {subject: holder(part)})) for part in (b"a", b"b")]
    for part in (b"a", b"b"):
        await asked(bus, subject, part)
    for part in (b"a", b"b") * 4:
        assert await bus.ask(subject, part, LIMIT_S) == b"of " + part
    for member in members:
        member.cancel()
    await asyncio.gather(*members, return_exceptions=True)


async def test_questions_of_one_subject_are_answered_beside_each_other(bus: Bus, own: str) -> None:
    subject = f"colo.v1.req.{own}.get"
    both = asyncio.Barrier(2)

    async def answer(data: bytes, headers: Mapping[str, str]) -> bytes:
        if data != b"probe":
            await both.wait()
        return data

    task = asyncio.create_task(bus.answer(f"svc{own}", {subject: answer}))
    await asked(bus, subject, b"probe")
    assert await asyncio.gather(bus.ask(subject, b"a", LIMIT_S), bus.ask(subject, b"b", LIMIT_S)) == [b"a", b"b"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_question_that_nobody_answers_is_unavailable(bus: Bus, own: str) -> None:
    with pytest.raises(Unavailable, match=own):
        await bus.ask(f"colo.v1.req.{own}.get", b"", 1)


async def test_an_answer_that_takes_too_long_is_unavailable(bus: Bus, own: str) -> None:
    subject = f"colo.v1.req.{own}.get"

    async def never(data: bytes, headers: Mapping[str, str]) -> bytes:
        if data == b"probe":
            return data
        await asyncio.get_running_loop().create_future()
        return b""

    task = asyncio.create_task(bus.answer(f"svc{own}", {subject: never}))
    await asked(bus, subject, b"probe")
    with pytest.raises(Unavailable, match=own):
        await bus.ask(subject, b"", 0.2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_bus_that_works_is_ready(bus: Bus) -> None:
    assert await bus.ready() == ""


def _of(received: Received, own: str) -> list[str]:
    return [delivery.data.decode() for delivery in received.deliveries if own in delivery.subject]
