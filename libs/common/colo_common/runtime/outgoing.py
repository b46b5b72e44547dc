"""What leaves a service: publish, then reply, then acknowledge, in the order of the effects, beside the core's own work."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from colo_common.events.effects import Effect, Write
from colo_common.model.invalid import InvariantBroken
from colo_common.ports import Bus, Delivery, Outgoing, PortError, Refused, Store, StoreConflict, Unavailable
from colo_common.runtime.metrics import ServiceMetrics
from colo_common.runtime.record import ROWS_A_CALL
from colo_common.runtime.retry import Retrier

__all__ = ["OutgoingBatch", "Sender"]

# Messages of one publish.
_MESSAGES_A_CALL = 1_000
# With the bus working, the core waits while more messages than this are on their way.
_BACKLOG_WANTED = 4_000
# With the bus away, at most this many are kept; then the oldest parcels go. Their inputs come again, their outbox rows stay.
_BACKLOG_MOST = 20_000
_OUTBOX_LEFT_MOST = 10_000
# One is being stored, the next one waits behind it. More would only be smaller ones: it is calls and batches that cost.
_IN_FLIGHT_MOST = 2
_LOOK_AGAIN_S = 0.5
# Rows of the outbox whose messages are stored are removed together: until then a crash publishes them again, which harms nobody.
_CLEAR_EVERY_S = 0.25
# So often it is tried again while the store does not let them go.
_CLEAR_AGAIN_S = 2.0


@dataclass(slots=True)
class OutgoingBatch:
    """A batch on its way out, from the effects of a core to the last acknowledgement. Nothing else holds what leaves.

    Its parts are done in the order of the fields: `writes` (None: no Record) are recorded together, `own` effects performed,
    `messages` published, `replies` given, `done` deliveries acknowledged and `dead` ones terminated, `outbox` rows removed. The
    effects of one event make a parcel for each Record (`parcels_from_effects`); what was recorded and performed of a whole turn is
    put together with `add`, and that is what the Sender takes.
    """

    writes: tuple[Write, ...] | None = None
    own: list[Effect] = field(default_factory=list)
    messages: list[Outgoing] = field(default_factory=list)
    replies: list[tuple[str, bytes]] = field(default_factory=list)
    done: list[Delivery] = field(default_factory=list)
    dead: list[Delivery] = field(default_factory=list)
    outbox: list[Write] = field(default_factory=list)
    #: How many of the replies are refusals.
    refusals: int = 0

    @property
    def is_sent(self) -> bool:
        """Whether nothing is left to send, acknowledge or remove."""
        return not (self.messages or self.replies or self.done or self.dead or self.outbox)

    def add(self, outgoing_batch: "OutgoingBatch") -> None:
        """Send what another parcel sends after what this one does. Its rows are recorded and its effects performed already."""
        self.messages += outgoing_batch.messages
        self.replies += outgoing_batch.replies
        self.done += outgoing_batch.done
        self.dead += outgoing_batch.dead
        self.outbox += outgoing_batch.outbox
        self.refusals += outgoing_batch.refusals


class Sender:
    """Takes parcels and sends them in order. Lossy messages are dropped when the bus is away, durable ones wait."""

    def __init__(
        self,
        bus: Bus,
        store: Store | None,
        retrier: Retrier,
        metrics: ServiceMetrics,
        reply: Callable[[str, bytes], None],
    ) -> None:
        self._bus = bus
        self._store = store
        self._retrier = retrier
        self._metrics = metrics
        self._reply = reply
        self._outgoing_batches: deque[OutgoingBatch] = deque()
        self._backlog = 0
        self._in_flight: deque[asyncio.Task[None]] = deque()
        # A call was begun and has yet to take its parcels.
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
        metrics.outgoing_messages.set_function(lambda: self._backlog)

    def put(self, outgoing_batch: OutgoingBatch) -> None:
        """Add at the end; never waits. While the bus is away, what may be lost is lost now, not sent late in one burst."""
        if self._retrier.problem:
            outgoing_batch.messages = self._durable(outgoing_batch.messages)
        if outgoing_batch.is_sent:
            return
        self._outgoing_batches.append(outgoing_batch)
        self._backlog += len(outgoing_batch.messages)
        while self._backlog > _BACKLOG_MOST and self._outgoing_batches[0] is not outgoing_batch:
            self._give_up_oldest()
        self._start()

    async def room(self) -> None:
        """Return when the core may go on: the backlog is short, or the bus is away and waiting would help nobody."""
        while self._backlog > _BACKLOG_WANTED and not self._retrier.problem and not self._is_over:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN_S):
                    await self._next_done()

    async def drained(self) -> bool:
        """Return when everything is sent, and the outbox is empty if the store can be reached. False, at once: `run` has ended."""
        while (self._outgoing_batches or self._in_flight) and not self._is_over:
            await self._next_done()
        await self._clear_outbox()
        return not (self._outgoing_batches or self._in_flight)

    async def run(self) -> None:
        """Send until cancelled. Raises GaveUp when the service leaves and the bus is away, and what bus or store should not raise.

        Up to _IN_FLIGHT_MOST calls of the bus wait for their acknowledgements at once. They begin in order, what follows each is
        done in order, and one that failed is tried again only when all before it are done.
        """
        self._failure = asyncio.get_running_loop().create_future()
        clearing = asyncio.create_task(self._keep_clearing())
        clearing.add_done_callback(self._note_failure)
        self._is_running = True
        self._start()
        try:
            await self._failure
        finally:
            self._is_over = True
            self._note_done()
            tasks = [clearing, *self._in_flight]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _may_start(self) -> bool:
        return not self._in_flight or (len(self._in_flight) < _IN_FLIGHT_MOST and not self._retrier.problem)

    def _start(self) -> None:
        """Begin a call if there is something for it. It takes what has come by the time it runs: more parcels, fewer calls."""
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
        """One call and what follows it, when those before it are done; a failure too is raised in its turn."""
        self._is_starting = False
        outgoing_batches = self._take()
        self._start()
        try:
            await self._publish([message for outgoing_batch in outgoing_batches for message in outgoing_batch.messages])
        except Exception:
            await self._wait_for_earlier()
            raise
        await self._wait_for_earlier()
        await self._finish(outgoing_batches)
        self._in_flight.popleft()
        self._start()
        self._note_done()

    def _note_failure(self, task: "asyncio.Task[None]") -> None:
        error: BaseException | None
        if task.cancelled():
            # Not by us: what stands behind it would wait for ever.
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
        """What may only be done once the messages are stored."""
        self._backlog -= sum(len(outgoing_batch.messages) for outgoing_batch in outgoing_batches)
        for outgoing_batch in outgoing_batches:
            for request, body in outgoing_batch.replies:
                self._reply(request, body)
            # An acknowledgement that is lost only means that the message comes again.
            with suppress(PortError):
                for delivery in outgoing_batch.done:
                    await delivery.ack()
                for delivery in outgoing_batch.dead:
                    await delivery.term()
            if outgoing_batch.outbox:
                self._outbox_left += outgoing_batch.outbox
                self._has_left.set()

    async def _publish(self, messages: list[Outgoing]) -> None:
        """Send what can be sent; returns when every durable message is stored or refused for good."""
        started_s = time.perf_counter()
        while messages:
            try:
                await self._bus.publish(messages)
            except Unavailable as error:
                messages = self._durable(messages)
                await self._wait_for_earlier()
                if messages:
                    await self._retrier.failed(error)
            except Refused as error:
                await self._wait_for_earlier()
                if await self._bus.ready():
                    await self._retrier.failed(error)
                else:
                    messages = await self._one_by_one(messages)
            else:
                self._retrier.worked()
                self._metrics.publish_seconds.observe(time.perf_counter() - started_s)
                return

    async def _wait_for_earlier(self) -> None:
        """Return when every call before this one is done."""
        own = asyncio.current_task()
        while self._in_flight[0] is not own:
            await self._next_done()

    async def _one_by_one(self, messages: Sequence[Outgoing]) -> list[Outgoing]:
        """Drop the messages that the bus refuses for themselves; what could not be tried is returned."""
        for index, message in enumerate(messages):
            try:
                await self._bus.publish((message,))
            except Refused as error:
                self._metrics.dropped.labels("refused").inc()
                self._log.error(
                    "message-refused", subject=message.subject, size_bytes=len(message.data), error=str(error)
                )
            except Unavailable:
                return list(messages[index:])
        return []

    def _durable(self, messages: Sequence[Outgoing]) -> list[Outgoing]:
        kept = [message for message in messages if message.durable]
        if len(kept) < len(messages):
            self._metrics.dropped.labels("live").inc(len(messages) - len(kept))
        return kept

    def _give_up_oldest(self) -> None:
        outgoing_batch = self._outgoing_batches.popleft()
        self._backlog -= len(outgoing_batch.messages)
        self._metrics.dropped.labels("backlog").inc(len(outgoing_batch.messages))

    async def _keep_clearing(self) -> None:
        """Remove rows of what was published now and then, until cancelled; what could not be removed after a while again."""
        while True:
            while not self._outbox_left:
                self._has_left.clear()
                await self._has_left.wait()
            await asyncio.sleep(_CLEAR_AGAIN_S if self._is_kept else _CLEAR_EVERY_S)
            await self._clear_outbox()

    async def _clear_outbox(self) -> None:
        """Remove rows of what was published; a row that stays is published again after a crash."""
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
        """Remove the first of the rows that are left."""
        try:
            await store.write(rows)
        except StoreConflict as conflict:
            # Another instance that started meanwhile published and removed this one, or the answer to our own removal was lost.
            # Seldom it is the only one. What is published while the rows are read is not looked for among them.
            asked = {write.id for write in self._outbox_left}
            gone = asked - {row.id for row in await store.load(conflict.kind)} | {conflict.id}
            self._outbox_left = [write for write in self._outbox_left if write.id not in gone]
        else:
            del self._outbox_left[: len(rows)]

    def _note_done(self) -> None:
        done, self._done = self._done, asyncio.Event()
        done.set()

    async def _next_done(self) -> None:
        done = self._done
        await done.wait()
