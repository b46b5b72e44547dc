"""Runs a core on batches: handles events, records and performs their effects, and returns one outgoing batch."""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import structlog
from msgspec import Struct
from prometheus_client import Counter

from colo_common.events.effects import Conflict, Effect, RequestReceived, Wake
from colo_common.events.fact import Fact
from colo_common.events.replayed import Replayed
from colo_common.events.requests import Refusal
from colo_common.events.undecoded import Undecoded
from colo_common.events.wire import decode, event_at
from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_common.ports import Clock, Delivery
from colo_common.runtime.batch import outbox_kind, outgoing_batches_from_effects, unit_of
from colo_common.runtime.core import Core, ManyPerformer, Performer
from colo_common.runtime.inbox import Item, Local, Request
from colo_common.runtime.intake import Intake, refusal_of
from colo_common.runtime.metrics import ServiceMetrics
from colo_common.runtime.outgoing import OutgoingBatch
from colo_common.runtime.record import Recorder
from colo_common.runtime.stamp import Stamp

__all__ = ["CoreRunner"]

# Results of effects lead to more effects; after this many rounds they are handled in the next batch.
_ROUNDS_MOST: Final = 16
# How often the inputs of a batch are handled again because the store refused a Record; then the bus delivers them again.
_AGAIN_MOST: Final = 3
_CHECK_EVERY_S: Final = 0.5
_SAMPLE_EVERY_S: Final = 60.0
_SAMPLE_BYTES: Final = 256
# A slow check runs seldom enough to take no larger share of the time than this. One call is short (`Core.check`), and a state
# of 5,000 nodes is checked completely in a minute or two.
_CHECK_SHARE: Final = 0.005


class CoreRunner:
    """Runs one core, in one task. Only recording and performing wait."""

    def __init__(
        self,
        name: str,
        core: Core,
        clock: Clock,
        stamp: Stamp,
        recorder: Recorder | None,
        perform: Performer | None,
        intake: Intake,
        metrics: ServiceMetrics,
        perform_many: ManyPerformer | None = None,
    ) -> None:
        self._perform_many = perform_many
        self.left_over: list[Struct] = []
        #: The message that the core is handling; after an error of the core the one from which it came.
        self.handling: Delivery | None = None
        self.checks_every_batch = False
        #: Events about a node that the core gets as they came.
        self.undecoded: frozenset[type[Fact]] = frozenset()
        #: Events of which the core gets the age when they are replayed.
        self.aged: frozenset[type[Fact]] = frozenset()
        self._name = name
        self._core = core
        self._clock = clock
        self._stamp = stamp
        self._recorder = recorder
        self._perform = perform
        self._intake = intake
        self._metrics = metrics
        self._log = structlog.get_logger(source="service").bind(service=name)
        self._outbox_kind = outbox_kind(name)
        self._outbox_count = 0
        self._started_us = clock.wall_us()
        self._handled: dict[type[Struct], Counter] = {}
        self._unanswered: list[str] = []
        self._has_conflict = False
        self._check_at_s = 0.0
        # Lossy messages that were given up since the last one that was logged, and when the next may be logged.
        self._malformed = 0
        self._sample_at_s = 0.0

    def wait_s(self) -> float | None:
        """Real seconds until the next batch is due although no item came; None: it is not due by itself."""
        if self.left_over:
            return 0.0
        deadline_ms = self._core.deadline_ms()
        return None if deadline_ms is None else self._clock.real_s(deadline_ms - self._clock.now_ms())

    async def run_batch(self, items: Sequence[Item]) -> OutgoingBatch:
        """Handle the items, record and perform their effects; returns what to send, in order.

        When the store refuses a Record, the messages of the batch are handled again once the core has heard of the Conflict: it
        cannot be told which of them the Record came from, and a handler is idempotent. After a few refusals they are handed back to
        the bus. Raises ShuttingDown when the service shuts down before the store takes the rows.
        """
        batch = OutgoingBatch()
        events, self.left_over = self.left_over, []
        outgoing_batches = [outgoing_batch for event in events for outgoing_batch in self._handle_own(event)]
        for item in items:
            self._handle_item(item, outgoing_batches, batch)
        self._has_conflict = False
        await self._run_rounds(outgoing_batches, batch)
        for _ in range(_AGAIN_MOST):
            if not (self._has_conflict and batch.done):
                break
            self._has_conflict = False
            deliveries, batch.done, outgoing_batches = batch.done, [], []
            for delivery in deliveries:
                self._handle_delivery(delivery, outgoing_batches, batch)
            await self._run_rounds(outgoing_batches, batch)
        if self._has_conflict:
            batch.again, batch.done = batch.done, []
        self._refuse_unanswered(batch)
        self._check_sometimes()
        return batch

    async def _run_rounds(self, outgoing_batches: list[OutgoingBatch], batch: OutgoingBatch) -> None:
        """Carry out the effects, and the effects of their results, until there are none."""
        for _ in range(_ROUNDS_MOST):
            self._wake_if_due(outgoing_batches)
            if not outgoing_batches:
                break
            events = await self._carry_out(outgoing_batches, batch)
            outgoing_batches = [outgoing_batch for event in events for outgoing_batch in self._handle_own(event)]
        if outgoing_batches:
            # The last results were handled and must not be lost: record and send them, handle further results in the next batch.
            self.left_over += await self._carry_out(outgoing_batches, batch)

    def _handle_item(self, item: Item, outgoing_batches: list[OutgoingBatch], batch: OutgoingBatch) -> None:
        match item:
            case Delivery():
                self._handle_delivery(item, outgoing_batches, batch)
            case Request():
                self._handle_request(item, outgoing_batches)
            case Local():
                outgoing_batches += self._handle_own(item.event)

    def _handle_delivery(self, delivery: Delivery, outgoing_batches: list[OutgoingBatch], batch: OutgoingBatch) -> None:
        self.handling = delivery
        try:
            outgoing_batches += self._handle(self._event_of(delivery))
        except InvalidInput as error:
            self._give_up(delivery, str(error), batch)
        else:
            batch.done.append(delivery)
        self.handling = None

    def _event_of(self, delivery: Delivery) -> Struct:
        if self.undecoded and event_at(delivery.subject).body in self.undecoded:
            return Undecoded.of(delivery.subject, delivery.data)
        if delivery.fact is None:
            delivery.fact = decode(delivery.subject, delivery.data)
        if delivery.age_ms and type(delivery.fact) in self.aged:
            return Replayed(fact=delivery.fact, age_ms=round(delivery.age_ms / (1_000 * self._clock.real_s(1))))
        return delivery.fact

    def refuse(self, delivery: Delivery, reason: str) -> OutgoingBatch:
        """The outgoing batch of a message that must not be handled: its dead letter, and its end."""
        batch = OutgoingBatch()
        self._give_up(delivery, reason, batch)
        return batch

    def _give_up(self, delivery: Delivery, reason: str, batch: OutgoingBatch) -> None:
        """Dead-letter a message of a stream. Lossy telemetry is only counted, and one message in a while is logged."""
        if not delivery.stream:
            self._metrics.malformed.inc()
            self._malformed += 1
            now_s = asyncio.get_running_loop().time()
            if now_s >= self._sample_at_s:
                head = bytes(delivery.data[:_SAMPLE_BYTES])
                self._log.warning(
                    "telemetry-malformed",
                    subject=delivery.subject,
                    reason=reason,
                    since=self._malformed,
                    head=repr(head),
                )
                self._sample_at_s, self._malformed = now_s + _SAMPLE_EVERY_S, 0
            return
        self._metrics.dead_letters.inc()
        self._log.warning("dead-letter", subject=delivery.subject, reason=reason)
        batch.messages.append(self._stamp.dead_letter(delivery, reason))
        batch.dead.append(delivery)

    def _handle_request(self, item: Request, outgoing_batches: list[OutgoingBatch]) -> None:
        try:
            outgoing_batches += self._handle(
                RequestReceived(request=item.request, body=item.body, traceparent=item.traceparent)
            )
        except InvalidInput as error:
            self._intake.refuse(item.request, refusal_of(error))

    def _handle_own(self, event: Struct) -> list[OutgoingBatch]:
        """The outgoing batches of an event of the service's own; none when it breaks a rule, which is logged and counted."""
        try:
            return self._handle(event)
        except InvalidInput as error:
            self._metrics.refusals.inc()
            self._log.warning("event-refused", event_type=type(event).__name__, reason=str(error))
            return []

    def _handle(self, event: Struct) -> list[OutgoingBatch]:
        started_s = time.perf_counter()
        effects = self._core.handle(event, self._clock.now_ms())
        self._metrics.handle_seconds.observe(time.perf_counter() - started_s)
        counter = self._handled.get(type(event))
        if counter is None:
            counter = self._handled[type(event)] = self._metrics.handled.labels(type(event).__name__)
        counter.inc()
        return outgoing_batches_from_effects(effects, self._stamp)

    def _wake_if_due(self, outgoing_batches: list[OutgoingBatch]) -> None:
        deadline_ms = self._core.deadline_ms()
        now_ms = self._clock.now_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            return
        outgoing_batches += self._handle_own(Wake())
        after_ms = self._core.deadline_ms()
        if after_ms is not None and after_ms <= now_ms:
            raise InvariantBroken(
                "the deadline after Wake is not later", service=self._name, deadline_ms=after_ms, now_ms=now_ms
            )

    # ------------------------------------------------------------ effects

    async def _carry_out(self, outgoing_batches: Sequence[OutgoingBatch], batch: OutgoingBatch) -> list[Struct]:
        """Record all, perform what was recorded, add it to the batch; returns the resulting events."""
        events, kept = await self._record(outgoing_batches)
        if self._perform_many is not None and any(outgoing_batch.own for outgoing_batch in kept):
            events += await self._perform_many([effect for outgoing_batch in kept for effect in outgoing_batch.own])
        for outgoing_batch in kept:
            for effect in outgoing_batch.own if self._perform_many is None else ():
                events += await self._perform_one(effect)
            batch.add(outgoing_batch)
            if outgoing_batch.refusals:
                self._metrics.refusals.inc(outgoing_batch.refusals)
        return events

    async def _record(self, outgoing_batches: Sequence[OutgoingBatch]) -> tuple[list[Struct], list[OutgoingBatch]]:
        """Record the rows; returns conflicts as events, and the outgoing batches without a conflict."""
        with_writes = [outgoing_batch for outgoing_batch in outgoing_batches if outgoing_batch.writes is not None]
        if not with_writes:
            return [], list(outgoing_batches)
        if self._recorder is None:
            raise InvariantBroken("a core without a store records", service=self._name)
        units = [unit_of(outgoing_batch, self._outbox_kind, self._next_outbox_id()) for outgoing_batch in with_writes]
        events: list[Struct] = []
        refused: set[int] = set()
        for recorded, conflict in zip(with_writes, await self._recorder.record(units), strict=True):
            if conflict is None:
                continue
            refused.add(id(recorded))
            self._has_conflict = True
            self._unanswered += [request for request, _body in recorded.replies]
            events.append(
                Conflict(kind=conflict.kind, id=conflict.id, expected=conflict.expected, found=conflict.found)
            )
        return events, [outgoing_batch for outgoing_batch in outgoing_batches if id(outgoing_batch) not in refused]

    async def _perform_one(self, effect: Effect) -> Sequence[Struct]:
        if self._perform is None:
            raise InvariantBroken("nobody performs this effect", service=self._name, effect=type(effect).__name__)
        return await self._perform(effect)

    def _next_outbox_id(self) -> str:
        """An id that ascends over starts and batches, so that leftover rows are published in order."""
        self._outbox_count += 1
        return f"{self._started_us:020d}-{self._outbox_count:010d}-{self._stamp.boot_id}"

    def _refuse_unanswered(self, batch: OutgoingBatch) -> None:
        """Refuse requests whose reply was dropped with a conflict and that the core did not answer again."""
        answered = {request for request, _body in (*batch.replies, *batch.answers)}
        for request in self._unanswered:
            if request not in answered:
                self._intake.refuse(
                    request, Refusal(code=409, field="request", rule="its object changed meanwhile, ask again")
                )
        self._unanswered.clear()

    def _check_sometimes(self) -> None:
        if self.checks_every_batch:
            self._core.check()
            return
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._check_at_s:
            started_s = time.perf_counter()
            self._core.check()
            self._check_at_s = now_s + max(_CHECK_EVERY_S, (time.perf_counter() - started_s) / _CHECK_SHARE)
