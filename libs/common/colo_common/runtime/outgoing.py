"""Sends outgoing batches: publish, then reply, then acknowledge, in the order of the effects, while the core goes on."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

import structlog
from msgspec import structs

from colo_common.events.effects import Effect, Write
from colo_common.events.registry import keeps_last_only
from colo_common.model.invalid import InvariantBroken
from colo_common.ports import Bus, Delivery, Outgoing, PoisonMessage, PortError, Store, StoreConflict
from colo_common.runtime.metrics import ServiceMetrics
from colo_common.runtime.record import ROWS_A_CALL
from colo_common.runtime.retry import Retrier

__all__ = ["OutgoingBatch", "Sender"]

# Messages of one publish.
_MESSAGES_A_CALL = 1_000
# While the bus works, the core waits when more messages than this are waiting or in flight.
_BACKLOG_WANTED = 4_000
# While the bus takes nothing, the core goes on until this many messages wait, and then waits too: its inputs stay with the bus and
# its requests are refused. A core that must go on (`never_waits`) drops the oldest batches instead.
_BACKLOG_MOST = 20_000
_OUTBOX_LEFT_MOST = 10_000
# Calls of the bus in flight: one is being stored, one waits behind it. More calls would be smaller, and each call costs.
_IN_FLIGHT_MOST = 2
_RECHECK_S = 0.5
# Who stops the agent of a node waits for it, and the next one says what runs there and how the rest ended.
_SILENT_MOST_S = 3.0
# Between the id of a message that is published once more and its number.
_AGAIN = ":again:"
# When a message that met conflicts only is delivered again.
_AGAIN_S = 1.0
# Outbox rows of stored messages are removed together. A crash before that publishes them again, and the stream drops duplicates.
_CLEAR_EVERY_S = 0.25
# How long to wait between tries while the store does not remove them.
_CLEAR_AGAIN_S = 2.0


@dataclass(slots=True)
class OutgoingBatch:
    """What a core's effects send, from the effects to the last acknowledgement. Nothing else holds outgoing messages.

    The parts are done in the order of the fields: `writes` (None: no Record) are recorded together, `own` effects performed,
    `messages` published, `replies` given, `done` deliveries acknowledged, `dead` ones terminated, those to be handled `again` are
    handed back, and `outbox` rows removed.
    The effects of one event make an outgoing batch for each Record (`outgoing_batches_from_effects`). The CoreRunner merges the
    recorded and performed ones of a whole batch of items with `add` and hands the result to the Sender.
    """

    writes: tuple[Write, ...] | None = None
    own: list[Effect] = field(default_factory=list)
    messages: list[Outgoing] = field(default_factory=list)
    replies: list[tuple[str, bytes]] = field(default_factory=list)
    done: list[Delivery] = field(default_factory=list)
    dead: list[Delivery] = field(default_factory=list)
    again: list[Delivery] = field(default_factory=list)
    outbox: list[Write] = field(default_factory=list)
    #: How many of the replies are refusals.
    refusals: int = 0

    #: Replies to requests that changed nothing: they wait for nothing while the bus takes no messages.
    answers: list[tuple[str, bytes]] = field(default_factory=list)

    @property
    def is_sent(self) -> bool:
        """Whether nothing is left to send, acknowledge or remove."""
        return not (
            self.messages or self.replies or self.answers or self.done or self.dead or self.again or self.outbox
        )

    def add(self, other: "OutgoingBatch") -> None:
        """Append what the other batch sends. Its rows must be recorded and its own effects performed already."""
        self.messages += other.messages
        if other.writes is None and not other.messages and not other.own:
            self.answers += other.replies
        else:
            self.replies += other.replies
        self.done += other.done
        self.dead += other.dead
        self.again += other.again
        self.outbox += other.outbox
        self.refusals += other.refusals


class Sender:
    """Sends outgoing batches in order. While the bus is unavailable, lossy messages are dropped and durable ones wait."""

    def __init__(
        self,
        bus: Bus,
        store: Store | None,
        retrier: Retrier,
        metrics: ServiceMetrics,
        reply: Callable[[str, bytes], None],
        *,
        never_waits: bool = False,
    ) -> None:
        """`never_waits`: the core goes on although the bus takes nothing, and the oldest batches are dropped and counted."""
        #: Awaited before each call of the bus; raises Fenced when this instance must not publish any more.
        self.confirm: Callable[[], Awaitable[None]] | None = None
        #: Makes the dead letter of a message that can never be stored, and why; None: it is only counted and logged.
        self.letter: Callable[[Outgoing, str], Outgoing] | None = None
        self._bus = bus
        self._store = store
        self._retrier = retrier
        self._metrics = metrics
        self._reply = reply
        self._never_waits = never_waits
        self._outgoing_batches: deque[OutgoingBatch] = deque()
        self._backlog = 0
        self._in_flight: deque[asyncio.Task[None]] = deque()
        # Calls that failed and are not stored yet. The success of another one says nothing of them.
        self._failing: set[asyncio.Task[None] | None] = set()
        # Subjects of which earlier calls published a message late, by the call that may have overtaken it.
        self._late: dict[asyncio.Task[None] | None, set[str]] = {}
        self._repeated = 0
        # A call was started and has yet to take its batches.
        self._is_starting = False
        self._is_running = False
        self._done = asyncio.Event()
        self._failure: asyncio.Future[None] | None = None
        self._outbox_left: list[Write] = []
        self._has_left = asyncio.Event()
        self._clearing = asyncio.Lock()
        self._is_kept = False
        self._is_over = False
        self._log = structlog.get_logger(source="service")

    def put(self, outgoing_batch: OutgoingBatch) -> None:
        """Add at the end; never waits. While the bus is unavailable, lossy messages are dropped now, not sent late in one burst."""
        if self._retrier.problem:
            outgoing_batch.messages = self._durable(outgoing_batch.messages)
            for request, body in outgoing_batch.answers:
                self._reply(request, body)
            outgoing_batch.answers.clear()
        if outgoing_batch.is_sent:
            return
        self._outgoing_batches.append(outgoing_batch)
        self._backlog += len(outgoing_batch.messages)
        if self._never_waits:
            while self._backlog > _BACKLOG_MOST and self._outgoing_batches[0] is not outgoing_batch:
                self._drop_oldest()
        self._start()

    async def hand_back(self) -> None:
        """Hand back the inputs of everything that is not sent yet: whoever gets them sends it."""
        with suppress(PortError):
            for outgoing_batch in self._outgoing_batches:
                for delivery in outgoing_batch.done:
                    await delivery.nak()

    @property
    def is_full(self) -> bool:
        """Whether the core waits for `room`."""
        return self._backlog > self._most()

    async def room(self) -> None:
        """Return when the core may go on: the backlog is short, or the bus takes nothing now and the backlog is below its limit."""
        while self._backlog > self._most() and not self._is_over:
            with suppress(TimeoutError):
                async with asyncio.timeout(_RECHECK_S):
                    await self._next_done()

    def _most(self) -> float:
        if not self._retrier.problem:
            return _BACKLOG_WANTED
        return inf if self._never_waits else _BACKLOG_MOST

    async def drained(self) -> str:
        """Wait until everything is sent and the outbox is empty if the store can be reached; why something is left, or "".

        Returns at once when `run` has ended. A core that never waits gives up when the bus has taken nothing for _SILENT_MOST_S.
        """
        try:
            while (self._outgoing_batches or self._in_flight) and not self._is_over:
                async with asyncio.timeout(_SILENT_MOST_S if self._never_waits else None):
                    await self._next_done()
        except TimeoutError:
            return "the bus takes nothing"
        await self._clear_outbox()
        return "sending has failed" if self._outgoing_batches or self._in_flight else ""

    async def run(self) -> None:
        """Send until cancelled. Raises ShuttingDown when the service shuts down without the bus, and any unexpected error.

        Up to _IN_FLIGHT_MOST calls of the bus wait for their acknowledgements at once. They start in order, their replies and
        acknowledgements are done in order, and a failed call is retried when all earlier calls are done, before another one begins.
        A message that was stored before an earlier one of its subject, in a stream that keeps the last one only, is published once
        more after that.
        """
        self._failure = asyncio.get_running_loop().create_future()
        clearing = asyncio.create_task(self._keep_clearing())
        clearing.add_done_callback(self._note_failure)
        self._is_running = True
        self._start()
        try:
            with self._metrics.outgoing_messages.counting(lambda: self._backlog):
                await self._failure
        finally:
            self._is_over = True
            self._note_done()
            tasks = [clearing, *self._in_flight]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _may_start(self) -> bool:
        if not self._in_flight:
            return True
        # A call that started now would be stored before one that is to be tried again.
        return len(self._in_flight) < _IN_FLIGHT_MOST and not self._retrier.problem and not self._failing

    def _start(self) -> None:
        """Start a call if there is something to send. It takes its batches when it runs: more batches a call, fewer calls."""
        if (
            self._outgoing_batches
            and self._may_start()
            and self._is_running
            and not (self._is_starting or self._is_over)
        ):
            self._is_starting = True
            call = asyncio.create_task(self._send())
            call.add_done_callback(self._note_failure)
            self._in_flight.append(call)

    async def _send(self) -> None:
        """One call of the bus, then, once all earlier calls are done, its replies and acknowledgements, or its failure."""
        self._is_starting = False
        outgoing_batches = self._take()
        self._start()
        own = asyncio.current_task()
        late: set[str] = set()
        messages = [message for outgoing_batch in outgoing_batches for message in outgoing_batch.messages]
        try:
            await self._publish(messages, late)
        except Exception:
            await self._wait_for_earlier()
            raise
        await self._wait_for_earlier()
        overtaken = self._late.pop(own, None)
        if overtaken:
            late |= overtaken
            await self._publish(self._again(messages, overtaken), late)
        for later in self._in_flight:
            if late and later is not own:
                self._late.setdefault(later, set()).update(late)
        self._failing.discard(own)
        await self._finish(outgoing_batches)
        self._in_flight.popleft()
        self._start()
        self._note_done()

    def _note_failure(self, task: "asyncio.Task[None]") -> None:
        error: BaseException | None
        if task.cancelled():
            # Not cancelled by `run`: later calls would wait for it for ever.
            error = None if self._is_over else InvariantBroken("a call was cancelled while the service works")
        else:
            error = task.exception()
        if error is not None and self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    def _take(self) -> list[OutgoingBatch]:
        taken = [self._outgoing_batches.popleft()]
        count = len(taken[0].messages)
        while self._outgoing_batches and count + len(self._outgoing_batches[0].messages) <= _MESSAGES_A_CALL:
            count += len(self._outgoing_batches[0].messages)
            taken.append(self._outgoing_batches.popleft())
        return taken

    async def _finish(self, outgoing_batches: Sequence[OutgoingBatch]) -> None:
        """Reply and acknowledge: what must wait until the messages are stored."""
        self._backlog -= sum(len(outgoing_batch.messages) for outgoing_batch in outgoing_batches)
        for outgoing_batch in outgoing_batches:
            for request, body in (*outgoing_batch.replies, *outgoing_batch.answers):
                self._reply(request, body)
            # A lost acknowledgement only means a redelivery.
            with suppress(PortError):
                for delivery in outgoing_batch.done:
                    await delivery.ack()
                for delivery in outgoing_batch.dead:
                    await delivery.term()
                for delivery in outgoing_batch.again:
                    await delivery.nak(_AGAIN_S)
            if outgoing_batch.outbox:
                self._outbox_left += outgoing_batch.outbox
                self._has_left.set()

    async def _publish(self, messages: list[Outgoing], late: set[str]) -> None:
        """Publish the messages; returns when every durable one is stored, or is poison and was dropped.

        Subjects of which a message was not stored at the first try are added to `late` where only the last one is kept.
        """
        started_s = time.perf_counter()
        while messages:
            try:
                if self.confirm is not None:
                    await self.confirm()
                await self._bus.publish(messages)
            except PoisonMessage as error:
                await self._wait_for_earlier()
                messages = await self._one_by_one(messages if error.left is None else error.left)
            except PortError as error:
                self._failing.add(asyncio.current_task())
                messages = self._durable(self._left(messages, error, late))
                await self._wait_for_earlier()
                if messages:
                    await self._retrier.failed(error)
            else:
                self._retrier.worked()
                self._metrics.publish_seconds.observe(time.perf_counter() - started_s)
                return

    def _left(self, messages: list[Outgoing], error: PortError, late: set[str]) -> Sequence[Outgoing]:
        """The messages to publish now: those that were not stored, and again those that overtook them."""
        left = messages if error.left is None else error.left
        late |= {message.subject for message in left if message.durable and keeps_last_only(message.subject)}
        if len(left) == len(messages) or not late:
            return left
        unstored = {id(message) for message in left}
        behind: set[str] = set()
        found: list[Outgoing] = []
        for message in messages:
            if id(message) in unstored:
                behind.add(message.subject)
                found.append(message)
            elif message.subject in behind:
                found += self._again([message], late)
        return found

    def _again(self, messages: Sequence[Outgoing], subjects: set[str]) -> list[Outgoing]:
        """The durable messages of these subjects under ids of their own: under the old ones they would be dropped as duplicates."""
        found: list[Outgoing] = []
        for message in messages:
            if message.durable and message.subject in subjects:
                self._repeated += 1
                msg_id = f"{message.msg_id.partition(_AGAIN)[0]}{_AGAIN}{self._repeated}"
                found.append(structs.replace(message, msg_id=msg_id))
        return found

    async def _wait_for_earlier(self) -> None:
        """Return when every call before this one is done."""
        own = asyncio.current_task()
        while self._in_flight[0] is not own:
            await self._next_done()

    async def _one_by_one(self, messages: Sequence[Outgoing]) -> list[Outgoing]:
        """Publish one by one, and for poison its dead letter; returns the messages from the first that fails otherwise."""
        for index, message in enumerate(messages):
            try:
                await self._bus.publish((message,))
            except PoisonMessage as error:
                if not await self._put_aside(message, str(error)):
                    return list(messages[index:])
                self._metrics.dropped.labels("poison").inc()
                self._log.error(
                    "message-poison", subject=message.subject, size_bytes=len(message.data), error=str(error)
                )
            except PortError:
                return list(messages[index:])
        return []

    async def _put_aside(self, message: Outgoing, why: str) -> bool:
        """Publish the dead letter of a poison message; False while the bus does not take it."""
        if self.letter is None or not message.durable:
            return True
        try:
            await self._bus.publish((self.letter(message, why),))
        except PoisonMessage:
            return True
        except PortError:
            return False
        self._metrics.dead_letters.inc()
        return True

    def _durable(self, messages: Sequence[Outgoing]) -> list[Outgoing]:
        kept = [message for message in messages if message.durable]
        if len(kept) < len(messages):
            self._metrics.dropped.labels("live").inc(len(messages) - len(kept))
        return kept

    def _drop_oldest(self) -> None:
        outgoing_batch = self._outgoing_batches.popleft()
        self._backlog -= len(outgoing_batch.messages)
        self._metrics.dropped.labels("backlog").inc(len(outgoing_batch.messages))

    async def _keep_clearing(self) -> None:
        """Remove outbox rows of published messages in intervals, until cancelled; after a failure the interval is longer."""
        while True:
            while not self._outbox_left:
                self._has_left.clear()
                await self._has_left.wait()
            await asyncio.sleep(_CLEAR_AGAIN_S if self._is_kept else _CLEAR_EVERY_S)
            await self._clear_outbox()

    async def _clear_outbox(self) -> None:
        """Remove outbox rows of published messages; a row that stays is published again after a crash."""
        async with self._clearing:
            try:
                while self._store is not None and self._outbox_left:
                    await self._remove(self._store, self._outbox_left[:ROWS_A_CALL])
            except PortError as error:
                del self._outbox_left[:-_OUTBOX_LEFT_MOST]
                if not self._is_kept:
                    self._log.warning("outbox-kept", rows=len(self._outbox_left), error=str(error))
                self._is_kept = True
            else:
                if self._is_kept:
                    self._log.info("outbox-cleared")
                self._is_kept = False

    async def _remove(self, store: Store, rows: Sequence[Write]) -> None:
        """Remove these rows, the first ones of `_outbox_left`."""
        try:
            await store.write(rows)
        except StoreConflict as conflict:
            # Another instance that started meanwhile published and removed this row, or the answer to an earlier removal was lost.
            # Other rows are probably removed too, so all are read. Rows added while they are read are kept.
            expected = {write.id for write in self._outbox_left}
            removed = expected - {row.id for row in await store.load(conflict.kind)} | {conflict.id}
            self._outbox_left = [write for write in self._outbox_left if write.id not in removed]
        else:
            del self._outbox_left[: len(rows)]

    def _note_done(self) -> None:
        done, self._done = self._done, asyncio.Event()
        done.set()

    async def _next_done(self) -> None:
        done = self._done
        await done.wait()
