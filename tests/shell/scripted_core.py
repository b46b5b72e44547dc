"""A core that does as it is told, and a bus and a store that write down in one list what is asked of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from colo_common.adapters.store_memory import MemoryStore
from colo_common.events.effects import Effect, Publish, Record, Wake, Write
from colo_common.events.fact import Fact
from colo_common.events.job import QueueChanged, ReplicasWithdrawn
from colo_common.events.node import LeaseRenewed
from colo_common.events.registry import subject_of
from colo_common.events.wire import decode, encode
from colo_common.model.invalid import InvalidInput
from colo_common.model.reasons import Reason
from colo_common.ports import Delivery, Missed, Outgoing, Settlement, Sink, Source, Unavailable
from colo_common.runtime.core import Subscription
from colo_common.runtime.service import Service
from tests.support.bus_memory import MemoryBus
from tests.support.vloop import VirtualClock

START_MS = 1_700_000_000_000


WITHDRAWN = Subscription(type=ReplicasWithdrawn)
LEASES = Subscription(type=LeaseRenewed)


class Local(Struct, frozen=True):
    text: str = ""


class Own(Struct, frozen=True):
    text: str = ""


def withdrawn(replica: str = "j/t/0") -> ReplicasWithdrawn:
    return ReplicasWithdrawn(attempts=((replica, 1),), reason=Reason.CANCELLED)


def message(fact: Fact, durable: bool = True) -> Outgoing:
    return Outgoing(subject=subject_of(fact), data=encode(fact), durable=durable)


def changed(queue: str = "q") -> Publish:
    return Publish(fact=QueueChanged(queue=queue, waiting=0, running=0, capacity=1))


def row(id_: str, expect: int = 0, value: bytes | None = b"v") -> Record:
    return Record(writes=(Write(kind="job", id=id_, value=value, expect=expect),))


class ScriptedCore:
    """Answers each event with what `react` says; everything it handled is in `handled`."""

    def __init__(self, react: Callable[[Struct], Sequence[Effect]] = lambda _event: ()) -> None:
        self.react = react
        self.handled: list[Struct] = []
        self.times_ms: list[int] = []
        self.deadline: int | None = None
        self.checked = 0

    def handle(self, event: Struct, now_ms: int) -> Sequence[Effect]:
        self.handled.append(event)
        self.times_ms.append(now_ms)
        if isinstance(event, Wake):
            self.deadline = None
        return self.react(event)

    def deadline_ms(self) -> int | None:
        return self.deadline

    def check(self) -> None:
        self.checked += 1


class RecordingBus(MemoryBus):
    """Writes down publishes (one line a call) and what becomes of deliveries."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(keep_sent=True)
        self.lines = lines

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        await super().publish(messages)
        self.lines.append("publish " + " ".join(_short(message.subject) for message in messages))

    async def listen(self, source: Source, sink: Sink, missed: Missed | None = None) -> None:
        async def delivered(delivery: Delivery) -> None:
            async def settle(settlement: Settlement, delay_s: float) -> None:
                self.lines.append(f"{settlement.value} {_short(delivery.subject)}")
                match settlement:
                    case Settlement.ACK:
                        await delivery.ack()
                    case Settlement.NAK:
                        await delivery.nak(delay_s)
                    case Settlement.TERM:
                        await delivery.term()

            place = {"stream": delivery.stream, "stream_seq": delivery.stream_seq}
            await sink(
                Delivery(
                    delivery.subject,
                    delivery.data,
                    delivery.headers,
                    deliveries=delivery.deliveries,
                    **place,
                    settle=settle,
                )
            )

        await super().listen(source, delivered)

    async def say(self, *messages: Outgoing) -> None:
        """Publish as somebody else: no line, and not among what was sent."""
        kept = len(self.sent)
        await MemoryBus.publish(self, messages)
        del self.sent[kept:]


class RecordingStore(MemoryStore):
    """Writes down the rows of each call that went through; the answers of the next `lose_answers` calls get lost."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines
        self.lose_answers = 0

    async def write(self, writes: Sequence[Write]) -> None:
        await super().write(writes)
        if writes[0].kind.startswith("running-"):
            return  # the shell's own note that it runs, which no conversation is about
        self.lines.append("record " + " ".join(f"{'-' if w.value is None else ''}{w.kind}/{_row(w)}" for w in writes))
        if self.lose_answers:
            self.lose_answers -= 1
            raise Unavailable("the answer was lost")


class World:
    """One service between a recording bus and a recording store."""

    def __init__(self, core: ScriptedCore | None = None) -> None:
        self.lines: list[str] = []
        self.bus = RecordingBus(self.lines)
        self.store = RecordingStore(self.lines)
        self.core = core or ScriptedCore()
        self.stop = asyncio.Event()

    def service(self, subscriptions: Sequence[Subscription] = (), **more: Any) -> Service:
        defaults: dict[str, Any] = {
            "name": "told",
            "core": self.core,
            "bus": self.bus,
            "store": self.store,
            "clock": VirtualClock(START_MS),
            "subscriptions": subscriptions,
            "seed": 1,
            "boot_id": "boot",
            "discoverable": False,
        }
        return Service(**{**defaults, **more})

    @asynccontextmanager
    async def running(self, service: Service) -> AsyncIterator[asyncio.Task[None]]:
        """The service at work; stopped and awaited at the end."""
        task = asyncio.get_running_loop().create_task(service.run(self.stop))
        await settled()
        try:
            yield task
            await settled()
        finally:
            self.stop.set()
            await asyncio.wait([task])
        await task

    def facts(self, kind: type[Struct]) -> list[Any]:
        """What was published of one type, in order."""
        found = [decode(message.subject, message.data) for message in self.bus.sent]
        return [fact for fact in found if isinstance(fact, kind)]


async def settled(iterations: int = 50) -> None:
    """Let everything that can run now run; virtual time stands still."""
    for _ in range(iterations):
        await asyncio.sleep(0)


def refuse(field: str, rule: str) -> Sequence[Effect]:
    """A core that does not take an event."""
    raise InvalidInput(field, rule, "x")


def _short(subject: str) -> str:
    return subject.removeprefix("colo.v1.")


def _row(write: Write) -> str:
    return "row" if write.kind.startswith("outbox-") else write.id
