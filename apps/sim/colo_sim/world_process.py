"""A process of a simulated world: drives a real core exactly as the generic shell does, and may die between any two steps.

Order of one batch: handle every event; Wake if due; record, unit by unit; perform; handle what came of it; then, beside the next
batch: publish, reply, acknowledge, remove the outbox rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

from msgspec import Struct

from colo_common.adapters.store_memory import MemoryStore
from colo_common.events.effects import Effect, RequestReceived, Wake, Write
from colo_common.events.fact import Fact
from colo_common.events.registry import request_spec_of
from colo_common.events.requests import Refusal
from colo_common.events.wire import decode_reply, decode_request, encode_reply, encode_request
from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_common.ports import StoreConflict, Unavailable
from colo_common.runtime.batch import outbox_kind, outbox_removal, parcels_from_effects, unit_of
from colo_common.runtime.core import Subscription, source_of
from colo_common.runtime.outgoing import OutgoingBatch
from colo_common.runtime.stamp import Stamp, outgoing_from_row
from colo_sim.event_queue import EventQueue, Fiber, Until, Wakeup, Work, at_once
from colo_sim.world_bus import Consumer, WorldBus
from colo_sim.world_log import WorldLog
from colo_sim.world_role import Crashed, LocalClock, Role, Watcher

__all__ = ["SimProcess", "ask"]

_BATCH: Final = 200
_ROUNDS: Final = 16
_MESSAGES_A_CALL: Final = 1_000
_RETRY_MS: Final = (200, 2_000)
_ASK_MS: Final = 2_000
_LISTEN_MS: Final = 30


def ask(bus: WorldBus, asker: SimProcess | None, answerers: Sequence[SimProcess], body: Struct) -> Until:
    """Ask one of the processes of a service: yield this; the answer, or None when none came in time.

    `asker` None: somebody who is never cut off. Which of several is asked is chance, as long as it listens.
    """
    signal = Wakeup()
    if asker is None or not asker.is_cut:
        listening = [one for one in answerers if one.is_answering] or answerers
        answerer = listening[0] if len(listening) == 1 else bus.rng.choice(listening)
        bus.event_queue.after(bus.way_ms(), answerer.asked, asker, body, encode_request(body), signal)
    return Until(signal, _ASK_MS)


class _Heard(Struct):
    fact: Fact
    consumer: Consumer | None
    seq: int
    deliveries: int


class _Request(Struct):
    request: str
    body: Struct


class _Delivery:
    """Acknowledges as the sender of the generic shell does."""

    def __init__(self, process: SimProcess, heard: _Heard) -> None:
        self.process = process
        self.heard = heard


class SimProcess:
    """One process. `make` builds its role; `key` names it in the world_log, `name` is the service's."""

    def __init__(
        self,
        *,
        key: str,
        name: str,
        make: Callable[[SimProcess], Role],
        event_queue: EventQueue,
        bus: WorldBus,
        store: MemoryStore | None,
        clock: LocalClock,
        world_log: WorldLog,
        watcher: Watcher,
    ) -> None:
        self.key = key
        self.name = name
        self.event_queue = event_queue
        self.bus = bus
        self.store = store
        self.clock = clock
        self.is_up = False
        self.is_cut = False
        self.is_stopped = False
        self.is_answering = False
        self.crashes_in: int | None = None
        self.crashed: Callable[[SimProcess], None] = lambda _process: None
        self.boots = 0
        self.decided_at_ms = 0
        self.heard = 0
        self._make = make
        self._world_log = world_log
        self._watcher = watcher
        self._fibers: list[Fiber] = []
        self._continues = Wakeup()

    # ------------------------------------------------------------ life

    def start(self) -> None:
        """Begin with nothing but what is stored."""
        self.boots += 1
        boot_id = f"{self.key}-{self.boots}"
        self.is_up = True
        self.role = self._make(self)
        self._stamp = Stamp(self.name, boot_id, self.clock)
        self._boot_id = boot_id
        self._started_us = self.clock.wall_us()
        self._inbox: deque[Any] = deque()
        self._left_over: list[Struct] = []
        self._outgoing_batches: deque[OutgoingBatch] = deque()
        self._asked: dict[str, tuple[SimProcess | None, type[Struct], Wakeup]] = {}
        self._poke = Wakeup()
        self._has_outgoing_batches = Wakeup()
        self._outbox_count = 0
        self._outbox_kind = outbox_kind(self.name)
        self.note(f"starts    {boot_id}")
        self.spawn(self._send())
        self.spawn(self._serve())

    def crash(self) -> None:
        """Die now, in the middle of whatever it was."""
        if not self.is_up:
            return
        self.note("dies")
        self.is_up = self.is_stopped = False
        self.is_answering = False
        self.crashes_in = None
        for fiber in self._fibers:
            fiber.cancel()
        self._fibers = []
        self.bus.forget(self)

    def cut(self) -> None:
        """Nothing comes and nothing goes."""
        self.is_cut = True
        self.note("is cut off")

    def heal(self) -> None:
        """The network is back."""
        self.is_cut = False
        self.note("is heard again")
        self.bus.resume(self)

    def stop(self) -> None:
        """Do nothing, not even die, while time and everybody else go on; what comes waits."""
        self.is_stopped = True
        self.note("is stopped")

    def go_on(self) -> None:
        """Go on where it was stopped, with what it knew then."""
        self.is_stopped = False
        self.note("goes on")
        self._continues.give()

    def spawn(self, work: Work) -> None:
        """Let work go on until the process dies."""
        self._fibers.append(Fiber(self.event_queue, self._unless_stopped(work), self._failed))

    def _unless_stopped(self, work: Work) -> Work:
        value: Any = None
        while True:
            try:
                wanted = work.send(value)
            except StopIteration:
                return
            value = yield wanted
            while self.is_stopped:
                yield Until(self._continues)

    def note(self, what: str) -> None:
        """A line of the world_log."""
        self._world_log.add(self.event_queue.now_ms, self.key, what)

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, Crashed):
            raise error
        self.crash()
        self.crashed(self)

    def point(self) -> None:
        """A place where the process may die."""
        if self.crashes_in is not None:
            self.crashes_in -= 1
            if self.crashes_in < 0:
                raise Crashed(self.key)

    # ------------------------------------------------------------ what comes in

    def hear(self, fact: Fact, consumer: Consumer | None, seq: int, deliveries: int) -> None:
        """A message of the bus."""
        self._put(_Heard(fact, consumer, seq, deliveries))

    def inject(self, event: Struct) -> None:
        """An event of the service's own."""
        self._put(event)

    def asked(self, asker: SimProcess | None, body: Struct, data: bytes, signal: Wakeup) -> None:
        """A question arrives; where nobody listens nobody answers."""
        if not self.is_answering or self.is_cut:
            return
        request = f"{self._boot_id}-q{len(self._asked) + 1}"
        self._asked[request] = (asker, type(body), signal)
        self._put(_Request(request, decode_request(request_spec_of(type(body)).subject.of(), data)))

    def _answer(self, request: str, data: bytes) -> None:
        asker, asked, signal = self._asked[request]
        if not self.is_cut and not (asker is not None and asker.is_cut):
            self.event_queue.after(self.bus.way_ms(), signal.give, decode_reply(asked, data))

    def _put(self, item: Any) -> None:
        if self.is_up:
            self._inbox.append(item)
            self._poke.give()

    # ------------------------------------------------------------ the loop

    def _serve(self) -> Work:
        yield from self._send_leftovers()
        while True:
            try:
                self._left_over += self.role.load()
                break
            except Unavailable:
                yield self.bus.rng.randint(*_RETRY_MS)
        for subscription in self.role.hears:
            self.spawn(self._listen(subscription))
        self.is_answering = True
        for work in self.role.begin():
            self.spawn(work)
        while True:
            wait_ms = self._wait_ms()
            if not self._inbox and wait_ms != 0:
                yield Until(self._poke, wait_ms)
            items = [self._inbox.popleft() for _ in range(min(_BATCH, len(self._inbox)))]
            yield from self._turn(items)
            self._watcher.turned(self)

    def _listen(self, subscription: Subscription) -> Work:
        """Making a consumer is a call over the network: it takes a moment, and works only while there is one."""
        yield self.bus.rng.randint(1, _LISTEN_MS)
        while self.is_cut:
            yield self.bus.rng.randint(*_RETRY_MS)
        self.bus.listen(self, source_of(self.name, subscription))

    def _wait_ms(self) -> int | None:
        if self._left_over:
            return 0
        deadline_ms = self.role.core.deadline_ms()
        return None if deadline_ms is None else max(deadline_ms - self.clock.now_ms(), 0)

    def _turn(self, items: Sequence[Any]) -> Work:
        batch = OutgoingBatch()
        events, self._left_over = self._left_over, []
        outgoing_batches = [outgoing_batch for event in events for outgoing_batch in self._handle(event)]
        for item in items:
            self._take_in(item, outgoing_batches, batch)
        for _ in range(_ROUNDS):
            self._wake_if_due(outgoing_batches)
            if not outgoing_batches:
                break
            events = yield from self._carry_out(outgoing_batches, batch)
            outgoing_batches = [outgoing_batch for event in events for outgoing_batch in self._handle(event)]
        if outgoing_batches:
            self._left_over += yield from self._carry_out(outgoing_batches, batch)
        if not batch.is_sent:
            self._outgoing_batches.append(batch)
            self._has_outgoing_batches.give()

    def _take_in(self, item: Any, outgoing_batches: list[OutgoingBatch], batch: OutgoingBatch) -> None:
        match item:
            case _Heard():
                self.heard += 1
                if item.consumer is not None:
                    if item.deliveries >= item.consumer.source.max_deliver:
                        raise InvariantBroken("a message was delivered too often", who=self.key, fact=item.fact)
                    batch.done.append(_Delivery(self, item))  # type: ignore[arg-type]
                self.note(f"hears     {type(item.fact).__name__}")
                outgoing_batches += self._handle(item.fact)
            case _Request():
                self.note(f"is asked  {type(item.body).__name__}")
                try:
                    outgoing_batches += self._handle(RequestReceived(request=item.request, body=item.body))
                except InvalidInput as error:
                    refusal = Refusal(code=400, field=error.field, rule=error.rule, got=error.value)
                    batch.replies.append((item.request, encode_reply(refusal)))
            case _:
                outgoing_batches += self._handle(item)

    def _handle(self, event: Struct) -> list[OutgoingBatch]:
        return parcels_from_effects(self.role.core.handle(event, self.clock.now_ms()), self._stamp)

    def _wake_if_due(self, outgoing_batches: list[OutgoingBatch]) -> None:
        core, now_ms = self.role.core, self.clock.now_ms()
        deadline_ms = core.deadline_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            return
        outgoing_batches += self._handle(Wake())
        after_ms = core.deadline_ms()
        if after_ms is not None and after_ms <= now_ms:
            raise InvariantBroken(
                "the deadline after Wake is not later", who=self.key, deadline_ms=after_ms, now_ms=now_ms
            )

    def _carry_out(
        self, outgoing_batches: Sequence[OutgoingBatch], batch: OutgoingBatch
    ) -> Generator[int | Until, Any, list[Struct]]:
        if self.bus.strikes(self.bus.network_faults.pause):
            yield self.bus.rng.randint(1, self.bus.network_faults.pause_most_ms)
        events: list[Struct] = []
        for outgoing_batch in outgoing_batches:
            if unit := unit_of(outgoing_batch, self._outbox_kind, self._next_outbox_id()):
                yield from self._write(unit)
        self.decided_at_ms = self.event_queue.now_ms
        for outgoing_batch in outgoing_batches:
            for effect in outgoing_batch.own:
                events += yield from self._perform(effect)
            batch.add(outgoing_batch)
        self.point()
        return events

    def _write(self, unit: Sequence[Write]) -> Generator[int | Until, Any, None]:
        if self.store is None:
            raise InvariantBroken("a core without a store records", who=self.key)
        while True:
            self.point()
            try:
                at_once(self.store.write(unit))
                return
            except StoreConflict as conflict:
                # Nobody else writes this service's rows, so its own view of them is wrong.
                raise InvariantBroken(str(conflict), who=self.key) from conflict
            except Unavailable:
                yield self.bus.rng.randint(*_RETRY_MS)

    def _perform(self, effect: Effect) -> Generator[int | Until, Any, Sequence[Struct]]:
        while True:
            self.point()
            try:
                return self.role.perform(effect)
            except Unavailable:
                yield self.bus.rng.randint(*_RETRY_MS)

    def _next_outbox_id(self) -> str:
        self._outbox_count += 1
        return f"{self._started_us:020d}-{self._outbox_count:010d}-{self._boot_id}"

    # ------------------------------------------------------------ what goes out

    def _send_leftovers(self) -> Work:
        if self.store is None:
            return
        while True:
            try:
                rows = at_once(self.store.load(self._outbox_kind))
                break
            except Unavailable:
                yield self.bus.rng.randint(*_RETRY_MS)
        for row in rows:
            removal = outbox_removal(self._outbox_kind, row.id)
            self._outgoing_batches.append(OutgoingBatch(messages=list(outgoing_from_row(row.value)), outbox=[removal]))
        self._has_outgoing_batches.give()

    def _send(self) -> Work:
        outbox: list[Write] = []
        while True:
            if not self._outgoing_batches:
                yield Until(self._has_outgoing_batches)
            if self.bus.strikes(self.bus.network_faults.pause):
                yield self.bus.rng.randint(1, self.bus.network_faults.pause_most_ms)
            outgoing_batches = self._take_outgoing_batches()
            yield from self._publish(outgoing_batches)
            for outgoing_batch in outgoing_batches:
                for request, data in outgoing_batch.replies:
                    self.point()
                    self._answer(request, data)
                for delivery in outgoing_batch.done:
                    self._acknowledge(delivery)
                outbox += outgoing_batch.outbox
            outbox = self._clear(outbox)

    def _take_outgoing_batches(self) -> list[OutgoingBatch]:
        taken: list[OutgoingBatch] = []
        count = 0
        while self._outgoing_batches and (
            not taken or count + len(self._outgoing_batches[0].messages) <= _MESSAGES_A_CALL
        ):
            taken.append(self._outgoing_batches.popleft())
            count += len(taken[-1].messages)
        return taken

    def _publish(self, outgoing_batches: Sequence[OutgoingBatch]) -> Work:
        """A call that fails is made again with all its durable messages, as the generic shell does."""
        messages = [message for outgoing_batch in outgoing_batches for message in outgoing_batch.messages]
        while messages:
            is_known = True
            for message in messages:
                self.point()
                is_known = self.bus.publish(self, message) and is_known
            if is_known:
                return
            messages = [message for message in messages if message.durable]
            yield self.bus.rng.randint(*_RETRY_MS)

    def _acknowledge(self, delivery: Any) -> None:
        self.point()
        heard = delivery.heard
        self.bus.acknowledge(self, heard.consumer, heard.seq)

    def _clear(self, outbox: list[Write]) -> list[Write]:
        while outbox and self.store is not None:
            self.point()
            try:
                at_once(self.store.write(outbox[:1]))
            except Unavailable:
                return outbox
            except StoreConflict:
                pass
            outbox = outbox[1:]
        return outbox
