"""The stand-in for thousands of machines: it receives their orders and publishes what each collector and executor would publish."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

import msgspec
from msgspec import Struct

from colo_common.adapters.bus_nats import NatsBus
from colo_common.adapters.clock import SystemClock
from colo_common.events.effects import Publish
from colo_common.events.enforcement import ReplicaEnded, ReplicaStarted
from colo_common.events.fact import Fact
from colo_common.events.node import AllocatableChanged
from colo_common.events.placement import ApplyPlacements, PlacementsDecided
from colo_common.events.registry import event_of
from colo_common.events.trace import trace_of
from colo_common.events.wire import encode, headers_of
from colo_common.model.freshness import Freshness
from colo_common.model.placement import attempt_key
from colo_common.model.reasons import EndCause
from colo_common.ports import Delivery, Outgoing, PortError
from colo_common.runtime.core import Subscription, source_of
from colo_common.runtime.stamp import Stamp
from tests.bench.openb import MACHINE
from tests.support.builders import a_node, a_sample

__all__ = ["Allocatable", "Fleet", "FleetCore", "Order", "Ordered"]

#: How long a replica runs at least unless told otherwise: short, so that the ledger does not fill.
RUN_S: Final = 0.05
#: What the stand-in does it does in steps of this: thousands of machines are not one process that is woken every millisecond.
STEP_MS: Final = 10
SLICE: Final = 100
NAME: Final = "fleet"
#: Steps whose messages may wait for their acknowledgements at once; the next step waits for the first of them.
FLIGHTS_MOST: Final = 2
RETRY_S: Final = 0.2
RETRIES_MOST: Final = 50


class Ordered(Struct, frozen=True, kw_only=True, gc=False):
    """Of a placement, what the stand-in needs."""

    replica: str
    job: str
    attempt: int
    node: str
    traceparent: str = ""


class Order(Struct, frozen=True, kw_only=True):
    """Of ApplyPlacements, what the stand-in needs."""

    node: str
    placements: tuple[Ordered, ...]


class Decided(Struct, frozen=True, kw_only=True):
    """Of PlacementsDecided, what the stand-in needs."""

    sent_us: int
    placements: tuple[Ordered, ...]


class ZonePromise(Struct, frozen=True, kw_only=True, gc=False):
    """What batch work may have of a zone."""

    zone: int
    batch_cpu_mcpu: int
    batch_memory_bytes: int


class Allocatable(Struct, frozen=True, kw_only=True):
    """Of AllocatableChanged, what the stand-in needs."""

    node: str
    freshness: Freshness
    zones: tuple[ZonePromise, ...]


_ORDER: Final = msgspec.json.Decoder(Order)
_DECIDED: Final = msgspec.json.Decoder(Decided)
_ALLOCATABLE: Final = msgspec.json.Decoder(Allocatable)


class FleetCore:
    """What all collectors and executors of the fleet know: which replicas run and until when, and what was said of them."""

    def __init__(self, run_ms: int = round(RUN_S * 1_000)) -> None:
        self.run_ms = run_ms
        self.decided_us: dict[str, tuple[int, int]] = {}
        self.placed_twice = 0
        self._placed_on: dict[str, str] = {}
        self.fresh: set[str] = set()
        self.most_mcpu = 0
        self.most_bytes = 0
        self.ended = 0
        self.running: deque[tuple[int, Ordered]] = deque()
        self._known: set[tuple[str, int]] = set()

    def start(self, order: Order, now_ms: int) -> list[Ordered]:
        """What starts now: what was not ordered before. It ends after the time that it runs, at a whole step."""
        end_ms = -(-(now_ms + self.run_ms) // STEP_MS) * STEP_MS
        started: list[Ordered] = []
        for placement in order.placements:
            key = placement.replica, placement.attempt
            if key not in self._known:
                self._known.add(key)
                self.running.append((end_ms, placement))
                started.append(placement)
        return started

    def end(self, now_ms: int) -> list[Ordered]:
        """What has run long enough."""
        ended: list[Ordered] = []
        while self.running and self.running[0][0] <= now_ms:
            ended.append(self.running.popleft()[1])
        self.ended += len(ended)
        return ended

    def note(self, decided: Decided, received_us: int) -> None:
        """When each was decided and received. Counts one that is on another node than before; an order that comes again is none."""
        for one in decided.placements:
            key = attempt_key(one.replica, one.attempt)
            self.decided_us.setdefault(key, (decided.sent_us, received_us))
            self.placed_twice += self._placed_on.setdefault(key, one.node) != one.node

    def promise(self, reported: Allocatable) -> None:
        """Which nodes are fresh, and the most that one of them may give."""
        if reported.freshness is Freshness.FRESH:
            self.fresh.add(reported.node)
            self.most_mcpu = max(self.most_mcpu, sum([zone.batch_cpu_mcpu for zone in reported.zones]))
            self.most_bytes = max(self.most_bytes, sum([zone.batch_memory_bytes for zone in reported.zones]))


class _DeadLetters:
    """The messages of executors as a service of this name stamps them; `date` says when, for all that follow.

    Those of one date and type differ in a few places only: they are made from one that went the way of every message.
    """

    def __init__(self, run_ms: int) -> None:
        self._run_ms = run_ms
        self._seq = 0
        self._boot_id = uuid4().hex[:12]
        self._subjects: dict[tuple[str, str], str] = {}
        self.date(0, 0)

    def date(self, now_ms: int, sent_us: int) -> None:
        head: dict[str, Any] = {"at_ms": now_ms, "producer": NAME, "boot_id": self._boot_id, "sent_us": sent_us}
        # Names are DNS labels, "/" and ".", which JSON writes as they are.
        place: dict[str, Any] = {"node": "%s", "replica": "%s", "job": "%s", "attempt": 0}
        started = ReplicaStarted(**head, **place)
        ended = ReplicaEnded(**head, **place, cause=EndCause.EXITED, exit_code=0, ran_ms=self._run_ms)
        self._started, self._started_headers = _pattern(started), headers_of(started, "-")
        self._ended, self._ended_headers = _pattern(ended), headers_of(ended, "-")

    def started(self, one: Ordered) -> Outgoing:
        self._seq += 1
        id_ = f"fleet:started:('{one.replica}', {one.attempt})"
        headers = {**self._started_headers, "ce-id": id_}
        if one.traceparent and trace_of(one.traceparent):
            headers["traceparent"] = one.traceparent
        data = self._started % (self._seq, one.node, one.replica, one.job, one.attempt)
        subject = self._subjects.get(("started", one.node)) or self._subject("started", ReplicaStarted, one.node)
        return Outgoing(subject=subject, data=data.encode(), durable=True, msg_id=id_, headers=headers)

    def ended(self, one: Ordered) -> Outgoing:
        self._seq += 1
        id_ = f"fleet:ended:{one.replica}#{one.attempt}"
        headers = {**self._ended_headers, "ce-id": id_}
        data = self._ended % (self._seq, one.node, one.replica, one.job, one.attempt)
        subject = self._subjects.get(("ended", one.node)) or self._subject("ended", ReplicaEnded, one.node)
        return Outgoing(subject=subject, data=data.encode(), durable=True, msg_id=id_, headers=headers)

    def _subject(self, word: str, body: type[Fact], node: str) -> str:
        subject = self._subjects[word, node] = event_of(body).subject.of(node=node)
        return subject


def _pattern(fact: Fact) -> str:
    """The body, to be filled with seq, node, replica, job and attempt."""
    return encode(fact).decode().replace('"seq":0,', '"seq":%d,').replace('"attempt":0,', '"attempt":%d,')


class Fleet:
    """Feeds the core its events and publishes the resulting facts, a step at a time, without the rest of a real service."""

    def __init__(self, bus: NatsBus, core: FleetCore, nodes: Sequence[str], period_s: float) -> None:
        self._bus = bus
        self._core = core
        self._nodes = nodes
        self._period_s = period_s
        self._clock = SystemClock()
        self._dead_letters = _DeadLetters(core.run_ms)
        self._orders: list[Delivery] = []
        self._came = asyncio.Event()
        self._room = asyncio.Semaphore(FLIGHTS_MOST)

    async def run(self) -> None:
        """Until cancelled."""
        subscriptions = (
            (Subscription(type=ApplyPlacements), self._take_order),
            (Subscription(type=PlacementsDecided, durable=False), self._take_decided),
            (Subscription(type=AllocatableChanged, durable=False, replay=True), self._take_allocatable),
        )
        async with asyncio.TaskGroup() as group:
            for subscription, sink in subscriptions:
                group.create_task(self._bus.listen(source_of(NAME, subscription), sink))
            group.create_task(self._keep_sampling())
            group.create_task(self._keep_stepping(group))

    async def _take_order(self, delivery: Delivery) -> None:
        # No more than the consumer lets be without an acknowledgement.
        self._orders.append(delivery)
        self._came.set()

    async def _take_decided(self, delivery: Delivery) -> None:
        self._core.note(_DECIDED.decode(delivery.data), self._clock.wall_us())

    async def _take_allocatable(self, delivery: Delivery) -> None:
        self._core.promise(_ALLOCATABLE.decode(delivery.data))

    async def _keep_stepping(self, group: asyncio.TaskGroup) -> None:
        before: asyncio.Task[None] | None = None
        while True:
            if not (self._orders or self._core.running):
                self._came.clear()
                await self._came.wait()
            await asyncio.sleep((STEP_MS - self._clock.now_ms() % STEP_MS) / 1_000)
            await self._room.acquire()
            orders, self._orders = self._orders, []
            before = group.create_task(self._fly(self._step(orders), orders, before))

    def _step(self, orders: Sequence[Delivery]) -> list[Outgoing]:
        now_ms = self._clock.now_ms()
        self._dead_letters.date(now_ms, self._clock.wall_us())
        started = [one for order in orders for one in self._core.start(_ORDER.decode(order.data), now_ms)]
        return [*map(self._dead_letters.started, started), *map(self._dead_letters.ended, self._core.end(now_ms))]

    async def _fly(
        self, messages: Sequence[Outgoing], orders: Sequence[Delivery], before: asyncio.Task[None] | None
    ) -> None:
        """Store, then acknowledge the orders, after those of the flight before."""
        try:
            await self._store(messages, before)
            if before is not None:
                await before
            # An acknowledgement that is lost only means that the order comes again.
            with suppress(PortError):
                for order in orders:
                    await order.ack()
        finally:
            self._room.release()

    async def _store(self, messages: Sequence[Outgoing], before: asyncio.Task[None] | None = None) -> None:
        """What fails is tried again when the flight before is done. Raises what the bus raises at last."""
        for _ in range(RETRIES_MOST if messages else 0):
            try:
                return await self._bus.publish(messages)
            except PortError:
                if before is not None:
                    await before
                await asyncio.sleep(RETRY_S)
        return await self._bus.publish(messages) if messages else None

    async def _keep_sampling(self) -> None:
        """Samples at once until all nodes are fresh, then one of every node each period, evenly spread; first what they are."""
        stamp = Stamp(NAME, uuid4().hex[:12], self._clock)
        slices = [self._nodes[start : start + SLICE] for start in range(0, len(self._nodes), SLICE)]
        seq = 0
        while True:
            seq += 1
            for part in slices:
                facts: list[Fact] = [a_node(node, MACHINE, simulated=True) for node in part] if seq == 1 else []
                facts += [a_sample(node, seq=seq, zones=((4_000, 8), (4_000, 8))) for node in part]
                await self._store([stamp.outgoing(Publish(fact=fact)) for fact in facts])
                is_fresh = len(self._core.fresh) >= len(self._nodes)
                await asyncio.sleep(self._period_s / len(slices) if is_fresh else 0.02)
