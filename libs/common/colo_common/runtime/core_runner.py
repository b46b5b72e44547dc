"""Turns of a core: a batch of events in, its decisions recorded and performed, what must leave put into one parcel."""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import structlog
from msgspec import Struct
from prometheus_client import Counter

from colo_common.events.effects import Conflict, Effect, RequestReceived, Wake, Write
from colo_common.events.requests import Refusal
from colo_common.events.wire import decode
from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_common.ports import Clock, Delivery, Outgoing
from colo_common.runtime.batch import DecisionEffects, decision_from_effects, parts_of, units_of
from colo_common.runtime.core import Core, ManyPerformer, Performer
from colo_common.runtime.inbox import Item, Local, Request
from colo_common.runtime.intake import Intake, refusal_of
from colo_common.runtime.metrics import ServiceMetrics
from colo_common.runtime.outgoing import OutgoingBatch
from colo_common.runtime.record import Recorder
from colo_common.runtime.stamp import Stamp

__all__ = ["CoreRunner", "outbox_kind", "outbox_removal"]

# Results of effects lead to effects; what is left after so many rounds goes on in the next turn.
_ROUNDS_MOST: Final = 16
_CHECK_EVERY_S: Final = 0.5
# A check that looks at much comes seldom enough to take no larger share of the time than this. One call is short (`Core.check`),
# and a state of 5,000 nodes has been gone through after a minute or two.
_CHECK_SHARE: Final = 0.005


def outbox_kind(service: str) -> str:
    """The kind of the rows that keep messages between record and publish."""
    return f"outbox-{service}"


def outbox_removal(kind: str, id_: str) -> Write:
    """Removes an outbox row; such a row is written once."""
    return Write(kind=kind, id=id_, value=None, expect=1)


class CoreRunner:
    """Drives one core. Everything here happens in one task; only recording and performing wait."""

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
        self._check_at_s = 0.0

    def wait_s(self) -> float | None:
        """Real seconds until the core wants another turn; None: when something comes."""
        if self.left_over:
            return 0.0
        deadline_ms = self._core.deadline_ms()
        return None if deadline_ms is None else self._clock.real_s(deadline_ms - self._clock.now_ms())

    async def take(self, items: Sequence[Item]) -> OutgoingBatch:
        """Handle a batch and do what it leads to; what must leave, in order. Raises GaveUp when the service leaves meanwhile."""
        outgoing_batch = OutgoingBatch()
        events, self.left_over = self.left_over, []
        decisions = [decision for event in events for decision in self._decide(event)]
        for item in items:
            self._take_in(item, decisions, outgoing_batch)
        for _ in range(_ROUNDS_MOST):
            self._wake_if_due(decisions)
            if not decisions:
                break
            events = await self._carry_out(decisions, outgoing_batch)
            decisions = [decision for event in events for decision in self._decide(event)]
        if decisions:
            # The last results were handled and must not be lost: their rows and messages go, further results wait.
            self.left_over += await self._carry_out(decisions, outgoing_batch)
        self._refuse_unanswered(outgoing_batch)
        self._check_now_and_then()
        return outgoing_batch

    def _take_in(self, item: Item, decisions: list[DecisionEffects], outgoing_batch: OutgoingBatch) -> None:
        match item:
            case Delivery():
                self._hear(item, decisions, outgoing_batch)
            case Request():
                self._ask(item, decisions)
            case Local():
                decisions += self._decide(item.event)

    def _hear(self, delivery: Delivery, decisions: list[DecisionEffects], outgoing_batch: OutgoingBatch) -> None:
        try:
            if delivery.is_last:
                raise InvalidInput(delivery.subject, "was delivered too often without success", delivery.deliveries)
            decisions += self._handle(decode(delivery.subject, delivery.data))
        except InvalidInput as error:
            self._metrics.dead_letters.inc()
            self._log.warning("dead-letter", subject=delivery.subject, reason=str(error))
            outgoing_batch.messages.append(self._dead_letter(delivery, str(error)))
            outgoing_batch.dead.append(delivery)
        else:
            outgoing_batch.done.append(delivery)

    def _ask(self, item: Request, decisions: list[DecisionEffects]) -> None:
        try:
            decisions += self._handle(
                RequestReceived(request=item.request, body=item.body, traceparent=item.traceparent)
            )
        except InvalidInput as error:
            self._intake.refuse(item.request, refusal_of(error))

    def _decide(self, event: Struct) -> list[DecisionEffects]:
        """The decisions on an event of our own; none when it breaks a rule, which is told and counted."""
        try:
            return self._handle(event)
        except InvalidInput as error:
            self._metrics.refusals.inc()
            self._log.warning("event-refused", event_type=type(event).__name__, reason=str(error))
            return []

    def _handle(self, event: Struct) -> list[DecisionEffects]:
        started_s = time.perf_counter()
        effects = self._core.handle(event, self._clock.now_ms())
        self._metrics.handle_seconds.observe(time.perf_counter() - started_s)
        counter = self._handled.get(type(event))
        if counter is None:
            counter = self._handled[type(event)] = self._metrics.handled.labels(type(event).__name__)
        counter.inc()
        if not effects:
            return []
        return [decision_from_effects(part, self._stamp) for part in parts_of(effects)]

    def _wake_if_due(self, decisions: list[DecisionEffects]) -> None:
        deadline_ms = self._core.deadline_ms()
        now_ms = self._clock.now_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            return
        decisions += self._decide(Wake())
        after_ms = self._core.deadline_ms()
        if after_ms is not None and after_ms <= now_ms:
            raise InvariantBroken(
                "the deadline after Wake is not later", service=self._name, deadline_ms=after_ms, now_ms=now_ms
            )

    # ------------------------------------------------------------ what a decision leads to

    async def _carry_out(self, decisions: Sequence[DecisionEffects], outgoing_batch: OutgoingBatch) -> list[Struct]:
        """Record all, perform what was recorded, put messages and replies into the parcel; the events that came of it."""
        events, kept = await self._record(decisions, outgoing_batch)
        if self._perform_many is not None and any(decision.own for decision in kept):
            events += await self._perform_many([effect for decision in kept for effect in decision.own])
        for decision in kept:
            for effect in decision.own if self._perform_many is None else ():
                events += await self._perform_one(effect)
            outgoing_batch.messages += decision.messages
            outgoing_batch.replies += decision.replies
            if decision.refusals:
                self._metrics.refusals.inc(decision.refusals)
        return events

    async def _record(
        self, decisions: Sequence[DecisionEffects], outgoing_batch: OutgoingBatch
    ) -> tuple[list[Struct], list[DecisionEffects]]:
        """Conflicts as events, and the decisions that stand."""
        owners: list[DecisionEffects] = []
        units = []
        for decision in decisions:
            if not decision.records:
                continue
            for unit in units_of(decision, self._outbox_kind, self._next_outbox_id()):
                owners.append(decision)
                units.append(unit)
        if not units:
            return [], list(decisions)
        if self._recorder is None:
            raise InvariantBroken("a core without a store records", service=self._name)
        events: list[Struct] = []
        refused: set[int] = set()
        for owner, unit, conflict in zip(owners, units, await self._recorder.record(units), strict=True):
            if conflict is None:
                # What a kept decision says is published first; what a refused one would have said must never be.
                if unit[-1].kind == self._outbox_kind:
                    outgoing_batch.outbox.append(outbox_removal(unit[-1].kind, unit[-1].id))
                continue
            refused.add(id(owner))
            self._unanswered += [request for request, _body in owner.replies]
            events.append(
                Conflict(kind=conflict.kind, id=conflict.id, expected=conflict.expected, found=conflict.found)
            )
        return events, [decision for decision in decisions if id(decision) not in refused]

    async def _perform_one(self, effect: Effect) -> Sequence[Struct]:
        if self._perform is None:
            raise InvariantBroken("nobody performs this effect", service=self._name, effect=type(effect).__name__)
        return await self._perform(effect)

    def _next_outbox_id(self) -> str:
        """Ascends over starts and batches, so that leftovers are published in their order."""
        self._outbox_count += 1
        return f"{self._started_us:020d}-{self._outbox_count:010d}-{self._stamp.boot_id}"

    def _dead_letter(self, delivery: Delivery, reason: str) -> Outgoing:
        return self._stamp.dead_letter(delivery.subject, reason, delivery.data)

    def _refuse_unanswered(self, outgoing_batch: OutgoingBatch) -> None:
        """Answers that a conflict took back and that the core did not give anew."""
        answered = {request for request, _body in outgoing_batch.replies}
        for request in self._unanswered:
            if request not in answered:
                self._intake.refuse(
                    request, Refusal(code=409, field="request", rule="its object changed meanwhile, ask again")
                )
        self._unanswered.clear()

    def _check_now_and_then(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._check_at_s:
            started_s = time.perf_counter()
            self._core.check()
            self._check_at_s = now_s + max(_CHECK_EVERY_S, (time.perf_counter() - started_s) / _CHECK_SHARE)
