"""What the generic shell costs: events a second in memory, over a real NATS, and requests that are recorded in a real Redis."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from msgspec import Struct

from colo_common.adapters.bus_nats import NatsBus
from colo_common.adapters.clock import SystemClock
from colo_common.adapters.store_redis import RedisStore
from colo_common.events.effects import Effect, Publish, Record, Reply, RequestReceived, Write
from colo_common.events.job import QueueChanged, ReplicasWithdrawn
from colo_common.events.registry import Stream
from colo_common.events.requests import CancelJob, JobAccepted
from colo_common.events.wire import encode
from colo_common.model.reasons import Reason
from colo_common.ports import Bus, Delivery, Outgoing, Source
from colo_common.runtime import logs
from colo_common.runtime.ask import ask
from colo_common.runtime.core import Subscription
from colo_common.runtime.service import Service
from tests.support.bus_memory import MemoryBus
from tests.support.servers import nats_server, redis_server

EVENTS: Final = 20_000
REQUESTS: Final = 3_000
AT_ONCE: Final = 100
#: What takes longer will never end.
LIMIT_S: Final = 120
SUBJECT: Final = "colo.v1.evt.replica.withdrawn"
BODY: Final = encode(ReplicasWithdrawn(attempts=(("job/main/0", 1),), reason=Reason.CANCELLED))


class Echo:
    """For each event one message, for each request one row, one message and the reply."""

    def __init__(self, wanted: int) -> None:
        self.count = 0
        self.wanted = wanted
        self.done = asyncio.Event()
        self._versions: dict[str, int] = {}

    def handle(self, event: Struct, now_ms: int) -> Sequence[Effect]:
        self.count += 1
        if self.count == self.wanted:
            self.done.set()
        reported = Publish(fact=QueueChanged(queue="q", waiting=self.count, running=0, capacity=1, at_ms=now_ms))
        match event:
            case RequestReceived(request=request, body=CancelJob(job=job)):
                version = self._versions.get(job, 0)
                self._versions[job] = version + 1
                row = Write(kind="bench", id=job, value=b"x" * 300, expect=version)
                reply = JobAccepted(job=job, state="stopping", version=version + 1)
                return [Record(writes=(row,)), reported, Reply(request=request, body=reply)]
            case ReplicasWithdrawn():
                return [reported]
        return []

    def deadline_ms(self) -> int | None:
        return None

    def check(self) -> None:
        """Nothing to check."""


@asynccontextmanager
async def running(service: Service):  # type: ignore[no-untyped-def]
    stop = asyncio.Event()
    task = asyncio.create_task(service.run(stop))
    try:
        yield
    finally:
        stop.set()
        await task


def messages(count: int, run: str) -> list[Outgoing]:
    return [Outgoing(subject=SUBJECT, data=BODY, durable=True, msg_id=f"{run}-{number}") for number in range(count)]


def tell(name: str, count: int, seconds: float) -> None:
    print(f"{name:66} {count / seconds:9,.0f} /s  {seconds / count * 1e6:8.1f} us each")


async def publish(bus: Bus) -> None:
    """Durable messages with ids, 1,000 a call, acknowledged by the stream."""
    batches = [messages(1_000, f"publish{number}") for number in range(10)]
    start_s = time.perf_counter()
    for batch in batches:
        await bus.publish(batch)
    tell("publish, durable, ids, acknowledged, 1,000 a call", 10_000, time.perf_counter() - start_s)


async def consume(bus: Bus) -> None:
    """The same messages delivered to a durable consumer and acknowledged."""
    count = 0
    done = asyncio.Event()

    async def sink(delivery: Delivery) -> None:
        nonlocal count
        await delivery.ack()
        count += 1
        if count == 10_000:
            done.set()

    start_s = time.perf_counter()
    source = Source(subject=SUBJECT, stream=Stream.ASK.value, durable="bench-consume")
    task = asyncio.create_task(bus.listen(source, sink))
    async with asyncio.timeout(LIMIT_S):
        await done.wait()
    tell("deliver and acknowledge, durable consumer", 10_000, time.perf_counter() - start_s)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def loop(bus: Bus, name: str, label: str) -> None:
    """Events through a service that says one durable message for each."""
    core = Echo(EVENTS)
    for start in range(0, EVENTS, 1_000):
        await bus.publish(messages(1_000, f"{name}{start}"))
    subscriptions = [Subscription(type=ReplicasWithdrawn)]
    service = Service(
        name=name, core=core, bus=bus, clock=SystemClock(), subscriptions=subscriptions, discoverable=False
    )
    start_s = time.perf_counter()
    async with running(service), asyncio.timeout(LIMIT_S):
        await core.done.wait()
    # Leaving the service waits until every message is published and every delivery acknowledged.
    tell(label, EVENTS, time.perf_counter() - start_s)


async def requests(bus: Bus, store: Any) -> None:
    """Requests that are recorded, published and answered, 100 at once."""
    core = Echo(0)
    service = Service(
        name="bench-requests",
        core=core,
        bus=bus,
        store=store,
        clock=SystemClock(),
        subscriptions=[],
        answers=[CancelJob],
    )
    times_s: list[float] = []
    async with running(service):
        while True:
            try:
                await ask(bus, CancelJob(job="warm-up"))
                break
            except Exception:
                await asyncio.sleep(0.01)
        left = iter(range(REQUESTS))

        async def client() -> None:
            for number in left:
                start_s = time.perf_counter()
                await ask(bus, CancelJob(job=f"job-{number}"), 30)
                times_s.append(time.perf_counter() - start_s)

        start_s = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(AT_ONCE)))
        tell(f"request: record in Redis, publish, reply; {AT_ONCE} at once", REQUESTS, time.perf_counter() - start_s)
    times_s.sort()
    p50_ms, p99_ms = (times_s[int(len(times_s) * share)] * 1e3 for share in (0.5, 0.99))
    print(f"{'':66} p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms")


async def measure(nats_url: str, redis_url: str) -> None:
    await loop(MemoryBus(), "bench-memory", "service loop, in memory: decode, handle, publish one, ack")
    bus = NatsBus(nats_url, name="bench")
    bus.start()
    await bus.connected(10)
    store = RedisStore.of(redis_url, name="bench")
    await publish(bus)
    await consume(bus)
    # The stream still keeps what was published above: of what this service subscriptions, the first 10,000 are those.
    await loop(bus, "bench-nats", "service loop, NATS: deliver, decode, handle, publish one durable, ack")
    await requests(bus, store)
    await store.close()
    await bus.close()


def main() -> None:
    logs.configure("error")
    with nats_server() as nats, redis_server() as redis:
        asyncio.run(measure(nats.url, redis.url))


if __name__ == "__main__":
    main()
