"""The sender keeps several calls of the bus in flight: replies keep their order, and a failed call waits for all earlier ones.

Outbox rows are removed once their messages are stored, whatever errors the store answers with.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from colo_common.adapters.store_memory import MemoryStore
from colo_common.events.effects import Write
from colo_common.model.invalid import InvariantBroken
from colo_common.ports import Outgoing, Refused, Row, Store, Unavailable
from colo_common.runtime.metrics import Metrics, ServiceMetrics
from colo_common.runtime.outgoing import OutgoingBatch, Sender
from colo_common.runtime.retry import Retrier
from tests.support.bus_memory import MemoryBus
from tests.support.vloop import run_virtual


class SlowBus(MemoryBus):
    """Answers a call after `seconds`, and fails it as often as `failures` gives."""

    def __init__(self, seconds: dict[str, float], failures: dict[str, int] | None = None) -> None:
        super().__init__()
        self.seconds = seconds
        self.failures = failures or {}
        self.begun: list[str] = []
        self.at_once = 0
        self.most_at_once = 0

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        name = messages[0].msg_id
        self.begun.append(name)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(self.seconds[name])
        self.at_once -= 1
        if self.failures.get(name, 0):
            self.failures[name] -= 1
            raise Unavailable(f"{name} was not acknowledged")


def an_outgoing_batch(name: str) -> OutgoingBatch:
    # Too large to share a call with another one.
    message = Outgoing(subject="colo.v1.evt.job.changed", data=b"{}", durable=True, msg_id=name)
    return OutgoingBatch(messages=[message] * 600, replies=[(name, b"")])


async def sent(bus: SlowBus, names: Sequence[str]) -> list[str]:
    """Send an outgoing batch of each name; the order of their replies."""
    replied: list[str] = []
    metrics = ServiceMetrics(Metrics(), "test")
    retrier = Retrier("bus", random.Random(1), metrics.retries, asyncio.Event())
    sender = Sender(bus, None, retrier, metrics, lambda request, _body: replied.append(request))
    for name in names:
        sender.put(an_outgoing_batch(name))
    task = asyncio.create_task(sender.run())
    await sender.drained()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return replied


def test_answers_keep_their_order_although_a_later_call_is_done_first() -> None:
    bus = SlowBus({"a": 3.0, "b": 1.0, "c": 2.0})
    assert run_virtual(sent(bus, "abc")) == ["a", "b", "c"]
    assert bus.begun == ["a", "b", "c"]
    assert bus.most_at_once == 2


def test_no_more_than_two_calls_are_in_flight() -> None:
    bus = SlowBus(dict.fromkeys("abcdefgh", 1.0))
    assert run_virtual(sent(bus, "abcdefgh")) == list("abcdefgh")
    assert bus.most_at_once == 2


def test_what_failed_is_tried_again_when_all_before_it_are_done_and_before_all_behind_it() -> None:
    bus = SlowBus({"a": 5.0, "b": 1.0, "c": 1.0}, {"b": 1})
    assert run_virtual(sent(bus, "abc")) == ["a", "b", "c"]
    # That a works at last says nothing of b.
    assert bus.begun == ["a", "b", "b", "c"]


def test_while_one_is_tried_again_no_further_call_begins() -> None:
    bus = SlowBus(dict.fromkeys("abcdef", 1.0), {"a": 3})
    assert run_virtual(sent(bus, "abcdef")) == list("abcdef")
    assert bus.begun[:2] == list("ab")
    assert bus.begun.index("c") > max(number for number, name in enumerate(bus.begun) if name == "a")


class LosingBus(MemoryBus):
    """Stores no message that is named in `lost` at its first try; the others of its call are stored."""

    def __init__(self, lost: set[str]) -> None:
        super().__init__()
        self.lost = lost
        self.stored: list[tuple[str, bytes]] = []
        self.ids: set[str] = set()

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        # Both calls are under way before the first one is answered.
        await asyncio.sleep(1)
        left = tuple(message for message in messages if message.msg_id in self.lost)
        for message in messages:
            if message not in left and message.msg_id not in self.ids:
                self.ids.add(message.msg_id)
                self.stored.append((message.subject, message.data))
        self.lost -= {message.msg_id for message in left}
        if left:
            error = Unavailable("the leader of the stream moved")
            error.left = left
            raise error


@pytest.mark.parametrize("calls", [1, 2], ids=["in one call", "in two calls"])
def test_the_last_message_of_a_subject_is_the_newest_although_an_earlier_one_was_stored_late(calls: int) -> None:
    node, other = "colo.v1.evt.node.n1.allocatable", "colo.v1.evt.node.n2.allocatable"
    job = "colo.v1.evt.job.changed"
    filler = [Outgoing(subject=job, data=b"", durable=True, msg_id=f"f{at}") for at in range(600)]
    older = [
        Outgoing(subject=subject, data=b"1", durable=True, msg_id=f"{subject}:1") for subject in (node, other, job)
    ]
    newer = [
        Outgoing(subject=subject, data=b"2", durable=True, msg_id=f"{subject}:2") for subject in (node, other, job)
    ]

    async def story() -> list[tuple[str, bytes]]:
        bus = LosingBus({f"{node}:1", f"{job}:1"})
        metrics = ServiceMetrics(Metrics(), "test")
        retrier = Retrier("bus", random.Random(1), metrics.retries, asyncio.Event())
        sender = Sender(bus, None, retrier, metrics, lambda _request, _body: None)
        if calls == 1:
            sender.put(OutgoingBatch(messages=[*older, *newer]))
        else:
            sender.put(OutgoingBatch(messages=[*older, *filler]))
            sender.put(OutgoingBatch(messages=[*[structs.replace(m, msg_id=f"g{m.msg_id}") for m in filler], *newer]))
        running = asyncio.create_task(sender.run())
        assert await sender.drained() == ""
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return [stored for stored in bus.stored if stored[1]]

    stored = run_virtual(story())
    assert [data for subject, data in stored if subject == node] == [b"2", b"1", b"2"]
    assert [data for subject, data in stored if subject == other] == [b"1", b"2"]
    # A stream that keeps all: who reads it orders the facts of a start by their sequence.
    assert [data for subject, data in stored if subject == job] == [b"2", b"1"]


def test_what_comes_before_a_call_has_run_goes_with_it() -> None:
    async def story() -> tuple[list[str], list[str]]:
        bus = SlowBus({"a": 1.0, "d": 1.0})
        replied: list[str] = []
        exposition = Metrics()
        metrics = ServiceMetrics(exposition, "test")
        retrier = Retrier("bus", random.Random(1), metrics.retries, asyncio.Event())
        sender = Sender(bus, None, retrier, metrics, lambda request, _body: replied.append(request))
        task = asyncio.create_task(sender.run())
        await asyncio.sleep(1)
        for names in ("abc", "def"):
            for name in names:
                message = Outgoing(subject="colo.v1.evt.job.changed", data=b"{}", durable=True, msg_id=name)
                sender.put(OutgoingBatch(messages=[message], replies=[(name, b"")]))
            assert b"colo_test_outgoing_messages 3.0" in exposition.text()
            await sender.drained()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return bus.begun, replied

    assert run_virtual(story()) == (["a", "d"], list("abcdef"))


def test_what_waits_in_all_services_of_a_process_is_one_sum_and_one_that_ended_counts_no_more() -> None:
    async def story() -> list[int]:
        metrics = ServiceMetrics(Metrics(), "test")
        retrier = Retrier("bus", random.Random(1), metrics.retries, asyncio.Event())
        senders = [Sender(SlowBus({"a": 9.0}), None, retrier, metrics, lambda _request, _body: None) for _ in range(2)]
        tasks = [asyncio.create_task(sender.run()) for sender in senders]
        await asyncio.sleep(1)
        message = Outgoing(subject="colo.v1.evt.job.changed", data=b"{}", durable=True, msg_id="a")
        for sender, count in zip(senders, (3, 4), strict=True):
            sender.put(OutgoingBatch(messages=[message] * count))
        found = [metrics.outgoing_messages.total()]
        for task in tasks:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            found.append(metrics.outgoing_messages.total())
        return found

    assert run_virtual(story()) == [7, 4, 0]


# ---------------------------------------------------------------- outbox


class CountingStore(MemoryStore):
    """Counts calls; `defect` is what a write raises that no store should."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.defect: Exception | None = None

    async def write(self, writes: Sequence[Write]) -> None:
        self.writes += 1
        if self.defect is not None:
            raise self.defect
        await super().write(writes)

    async def load(self, kind: str) -> tuple[Row, ...]:
        """What is written while the rows come is not among them."""
        rows = await super().load(kind)
        await asyncio.sleep(1)
        return rows


def outbox(begin: int, end: int, value: bytes | None = None) -> list[Write]:
    expect = 0 if value is not None else 1
    return [Write(kind="outbox-test", id=f"{number:06d}", value=value, expect=expect) for number in range(begin, end)]


@asynccontextmanager
async def sending(store: Store, bus: MemoryBus | None = None) -> AsyncIterator[tuple[Sender, asyncio.Task[None]]]:
    metrics = ServiceMetrics(Metrics(), "test")
    retrier = Retrier("bus", random.Random(1), metrics.retries, asyncio.Event())
    sender = Sender(bus or MemoryBus(), store, retrier, metrics, lambda _request, _body: None)
    task = asyncio.create_task(sender.run())
    try:
        yield sender, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_a_store_that_was_away_is_asked_again_although_nothing_more_is_published() -> None:
    async def story() -> None:
        store = CountingStore()
        await store.write(outbox(0, 3, b"row"))
        async with sending(store) as (sender, _task):
            store.fault = Unavailable("away")
            sender.put(OutgoingBatch(outbox=outbox(0, 3)))
            await asyncio.sleep(60)
            store.fault = None
            await asyncio.sleep(3)
            assert await store.load("outbox-test") == ()

    run_virtual(story())


def test_a_store_that_refuses_removals_is_logged_once_and_retried_in_intervals() -> None:
    async def story() -> None:
        store = CountingStore()
        store.fault = Refused("out of memory")
        with capture_logs() as lines:
            async with sending(store) as (sender, _task):
                for number in range(600):
                    sender.put(OutgoingBatch(outbox=outbox(number, number + 1)))
                    await asyncio.sleep(0.1)
                assert store.writes <= 32
                store.fault = None
                await asyncio.sleep(5)
        assert [line["event"] for line in lines] == ["outbox-kept", "outbox-cleared"]

    run_virtual(story())


def test_rows_that_another_instance_removed_are_forgotten_together() -> None:
    async def story() -> None:
        store = CountingStore()
        await store.write(outbox(900, 901, b"row"))
        async with sending(store) as (sender, _task):
            sender.put(OutgoingBatch(outbox=outbox(0, 901)))
            await asyncio.sleep(0.5)
            # Recorded and published while the store is asked which rows are left.
            await store.write(outbox(901, 902, b"row"))
            sender.put(OutgoingBatch(outbox=outbox(901, 902)))
            await asyncio.sleep(5)
            assert await store.load("outbox-test") == ()
        assert store.writes <= 6

    run_virtual(story())


def test_what_no_store_should_raise_ends_the_sender_and_who_waits_for_it() -> None:
    async def story() -> None:
        store = CountingStore()
        store.defect = ValueError("a defect")
        async with sending(store, SlowBus({"a": 3600.0})) as (sender, task):
            sender.put(OutgoingBatch(outbox=outbox(0, 1)))
            await asyncio.sleep(0.1)
            for _ in range(10):
                sender.put(an_outgoing_batch("a"))
            async with asyncio.timeout(60):
                await sender.room()
            with pytest.raises(ValueError, match="a defect"):
                await task
            with pytest.raises(ValueError, match="a defect"):
                await sender.drained()

    run_virtual(story())


class CancelledBus(MemoryBus):
    """A bus whose calls are cancelled although the sender did not cancel them."""

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        raise asyncio.CancelledError


def test_a_call_that_was_cancelled_from_outside_fails_the_sender() -> None:
    async def story() -> None:
        metrics = ServiceMetrics(Metrics(), "test")
        retrier = Retrier("bus", random.Random(1), metrics.retries, asyncio.Event())
        sender = Sender(CancelledBus(), None, retrier, metrics, lambda _request, _body: None)
        running = asyncio.ensure_future(sender.run())
        for name in ("a", "b", "c"):
            sender.put(an_outgoing_batch(name))
        async with asyncio.timeout(10):
            assert await sender.drained() == "sending has failed"
        with pytest.raises(InvariantBroken, match="cancelled"):
            await running

    run_virtual(story())
