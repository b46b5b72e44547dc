"""The generic shell of a service: feeds events to its core and carries out the effects: record, perform, publish, acknowledge."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import structlog
from msgspec import DecodeError, Struct

from colo_common.events.effects import Effect, FactsMissed, StoreLost, StreamLost
from colo_common.model.partition import WHOLE, PartitionsHeld
from colo_common.ports import Answerer, Bus, Clock, Delivery, Fenced, Missed, PortError, Source, Store
from colo_common.runtime.batch import outbox_kind, outbox_removal
from colo_common.runtime.core import Core, Loader, ManyPerformer, Performer, Subscription
from colo_common.runtime.core_runner import CoreRunner
from colo_common.runtime.inbox import Inbox, Item, Local
from colo_common.runtime.intake import Intake
from colo_common.runtime.lease_keeper import HeldTerm, LeaseKeeper
from colo_common.runtime.metrics import Metrics, ServiceMetrics
from colo_common.runtime.outgoing import OutgoingBatch, Sender
from colo_common.runtime.record import Recorder
from colo_common.runtime.retry import Retrier, ShuttingDown
from colo_common.runtime.sources import sources_of
from colo_common.runtime.stamp import Stamp, outgoing_from_row
from colo_common.runtime.status import StatusAnswer
from colo_common.runtime.store_watch import watch_identity
from colo_common.runtime.trials import TRIES_MOST, Trials

__all__ = ["Service"]

_BATCH: Final = 200
_INBOX: Final = 2_000
_DRAIN_S: Final = 8.0
# After the time to drain, calls that wait for a server fail at once; after this time more, an effect that still runs is cancelled.
_GRACE_S: Final = 1.0
# Real time, whatever the clock: a message that is not acknowledged in time (`Source.ack_wait_s`) is redelivered.
_WAIT_MOST_S: Final = 1.0
# A bus or store that takes nothing for longer than this closes the door to requests; a shorter while they are kept waiting.
_CLOSE_AFTER_S: Final = 1.0
# A service without a store cannot tell which message ended it, and gives up one that was delivered more often than this.
_DELIVERIES_MOST: Final = 20
_SHUTS_DOWN: Final = "leaves, ask again"


class Service:
    """Runs one core until `stop` is set, then shuts down within 10 s.

    Order of one batch: every event is handled; Wake if the deadline has come; all Records are written (a refused Record becomes a
    Conflict event, and the messages and replies that belong to it are dropped: the core decides again); the service's own effects
    are performed, and their results are handled next; then messages, replies and acknowledgements are sent in that order, while
    the next batch runs. A Record and the messages of the same event are durable together (outbox); after a crash the messages are
    published at the next start.

    A message that cannot be decoded or breaks a rule is dead-lettered. `run` raises any other error of the core: the process must
    end. While the bus or the store is unavailable, calls are retried with growing waits and `problems` names the reason; durable
    messages are kept, lossy telemetry is dropped.
    """

    # How an instance begins.
    _failure: BaseException | None = None
    _in_hand: Sequence[Item] = ()
    _identity = ""
    _loaded = _overdue = False
    _end_s = 0.0

    def __init__(
        self,
        *,
        name: str,
        core: Core,
        bus: Bus,
        clock: Clock,
        subscriptions: Sequence[Subscription],
        store: Store | None = None,
        answers: Sequence[type[Struct]] = (),
        answers_for: Mapping[str, str] | None = None,
        perform: Performer | None = None,
        perform_many: ManyPerformer | None = None,
        load: Loader | None = None,
        leave: Loader | None = None,
        metrics: Metrics | None = None,
        boot_id: str = "",
        seed: int | None = None,
        batch: int = _BATCH,
        inbox: int = _INBOX,
        discoverable: bool = True,
        drain_s: float = _DRAIN_S,
        more_problems: Callable[[], Mapping[str, str]] | None = None,
        never_waits: bool = False,
        leases: LeaseKeeper | None = None,
        ends_with_lease: bool = False,
        term: HeldTerm | None = None,
        puts_back: bool = False,
        asks_for_missed: bool = False,
        says_again: bool = False,
        trials: Store | None = None,
        unrestored: Callable[[], int] = int,
    ) -> None:
        """`perform` performs the service's own effects one by one; `perform_many`, if given, all of a round at once instead.

        `load` returns events for the core before any message is received, `leave` returns its last events when the service stops,
        also before it has begun.
        `answers_for` are the parameters of the subjects of `answers`, such as the node. `more_problems` names parts of the
        service's own and why each is not ready, "" when it is. `never_waits`: the core goes on however long the bus takes nothing,
        as one must that protects a machine; the oldest of its messages are dropped at a limit. `leases`: which partitions this
        instance holds; `ends_with_lease`: `run` hands its inputs back and raises Fenced as soon as the term is over. `term`: that
        of the one partition that it serves, which its durable consumers are named by, beside others of its kind in this process.
        `puts_back`: the core takes StoreLost, and puts its rows back into a store that lost them.
        `asks_for_missed`: the core takes FactsMissed, and asks for what a stream discarded before it was received.
        `says_again`: the core takes StreamLost, and says again what a stream kept of it that was made again.
        `trials`: where a service without a store of its own notes which message ends it.
        `unrestored`: how much that was accepted a lost store cannot be given back.
        """
        self.name = name
        self.core = core
        self._bus = bus
        self._store = store
        self._subscriptions = tuple(subscriptions)
        self._answers = tuple(answers)
        self._answers_for = dict(answers_for or {})
        self._load, self._leave, self._batch, self._drain_s = load, leave, batch, drain_s
        self._discoverable = discoverable
        self._puts_back, self._asks_for_missed, self._says_again = puts_back, asks_for_missed, says_again
        self._more_problems, self._unrestored = more_problems, unrestored
        rng = random.Random(seed)
        self.boot_id = boot_id or f"{rng.getrandbits(48):012x}"
        self._log = structlog.get_logger(source="service").bind(service=name)
        self._metrics = ServiceMetrics(metrics or Metrics(), name)
        self._shutting_down = asyncio.Event()
        self._bus_retrier = Retrier("bus", rng, self._metrics.retries, self._shutting_down)
        self._store_retrier = Retrier("store", rng, self._metrics.retries, self._shutting_down)
        self._clock = clock
        self._inbox = Inbox(inbox, batch)
        self._intake = Intake(self._inbox, self.boot_id, self._metrics, self._full)
        recorder = Recorder(store, self._store_retrier, self._metrics) if store is not None else None
        self._leases = leases
        self._term = term = leases if ends_with_lease and leases is not None else term
        share = WHOLE if term is None else term.share
        self._consumers = name if share.is_whole else f"{name}-{share.name}"
        stamp = Stamp(name, self.boot_id, clock, fence=None if term is None else term.fence_of, share=share)
        self._core_runner = CoreRunner(
            name, core, clock, stamp, recorder, self._tried_again(perform), self._intake, self._metrics, perform_many
        )
        tried_in = trials or store
        self._trials = Trials(tried_in, name, self.boot_id) if tried_in is not None else None
        self._sender = Sender(bus, store, self._bus_retrier, self._metrics, self._intake.reply, never_waits=never_waits)
        self._sender.confirm = None if term is None else term.confirm
        self._sender.letter = stamp.poison_letter
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: list[asyncio.Task[None]] = []

    async def inject(self, event: Struct) -> None:
        """Hand an event of the service's own to the core; waits while the inbox is full."""
        await self._inbox.put(Local(event))

    async def takes_over(self, held: PartitionsHeld) -> None:
        """Publish what killed instances left in the outbox, then tell the core which partitions are its own from now on."""
        await self._send_leftovers()
        await self.inject(held)

    def end_term(self) -> None:
        """Hand the inputs back as soon as the batch in work is done, and let `run` raise Fenced: another instance goes on."""
        self._failure = self._failure or Fenced("another instance holds the partition")
        self._inbox.interrupt()

    def answerers(self, request_types: Sequence[type[Struct]]) -> dict[str, Answerer]:
        """What answers these requests, by subject, for whoever receives them for several services of one process."""
        return self._intake.answerers(request_types)

    @property
    def is_loaded(self) -> bool:
        """Whether it has read what is stored, and can answer."""
        return self._loaded

    def check_every_batch(self) -> None:
        """Let the core check its invariants after every batch. For simulations, where the cost does not matter."""
        self._core_runner.checks_every_batch = True

    async def problems(self) -> dict[str, str]:
        """For each part, empty or one sentence that says why it is not ready."""
        found = {
            self.name: "" if self._loaded else "is still loading",
            "nats": self._bus_retrier.problem or await self._bus.ready(),
        }
        if self._store is not None:
            found["redis"] = self._store_retrier.problem or await self._store.ready()
        if self._more_problems is not None:
            found |= self._more_problems()
        return found

    def _full(self, changes: bool) -> str:
        """Why a request that changes something, or one that only asks, is refused now; "" when it is taken.

        A request that only asks needs neither the bus nor the store, unless the core itself waits for one of them.
        """
        now_s = asyncio.get_running_loop().time()
        for retrier, blocks_all in ((self._store_retrier, True), (self._bus_retrier, self._sender.is_full)):
            if retrier.problem and now_s >= retrier.since_s + _CLOSE_AFTER_S and (changes or blocks_all):
                return f"takes nothing new now, ask again in a moment: {retrier.problem}"
        return ""

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set. Raises what the core raised, after logging it."""
        metrics = self._metrics
        with (
            metrics.inbox_items.counting(lambda: len(self._inbox)),
            metrics.unrestored_items.counting(self._unrestored),
        ):
            await self._run(stop)

    async def _run(self, stop: asyncio.Event) -> None:
        main = asyncio.current_task()
        watcher = asyncio.create_task(self._watch(stop, main))
        try:
            self._spawn(self._sender.run())
            if await self._has_started(stop):
                await self._serve(stop)
                await self._drain()
        except ShuttingDown as error:
            self._log.warning("left-unfinished", why=str(error))
        except asyncio.CancelledError:
            if main is None or not self._overdue:
                raise
            main.uncancel()
            self._log.warning("left-unfinished", why="an effect did not end in the time to drain")
        except Fenced as error:
            self._log.warning("term-over", why=str(error))
            await self._end_tasks(self._listeners)
            await _hand_back(self._in_hand)
            await self._hand_back()
            await self._sender.hand_back()
            raise
        except Exception as error:
            self._log.critical("service-crashed", error=f"{type(error).__name__}: {error}", exc_info=True)
            await self._blame()
            raise
        finally:
            self._intake.close(_SHUTS_DOWN)
            self._intake.refuse_waiting()
            # One iteration of the event loop, so that the answers are sent.
            await asyncio.sleep(0)
            watcher.cancel()
            await self._end_tasks()
            await asyncio.gather(watcher, return_exceptions=True)

    async def _serve(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            items = self._in_hand = await self._inbox.take(self._batch, self._core_runner.wait_s())
            if self._failure is not None:
                raise self._failure
            await self._run_items(items)
            await self._sender.room()

    async def _run_items(self, items: Sequence[Item]) -> None:
        """Handle the items as one batch; after a crash first those that may have caused it, each alone.

        Raises Fenced when the term is over.
        """
        self._in_hand = items
        if self._term is not None:
            await self._term.confirm()
        trials = self._trials
        if trials is None:
            suspects = [item for item in items if isinstance(item, Delivery) and item.deliveries > _DELIVERIES_MOST]
        else:
            suspects = [item for item in items if isinstance(item, Delivery) and trials.is_suspect(item)]
        for suspect in suspects:
            if trials is None or trials.tries_of(suspect) >= TRIES_MOST:
                self._sender.put(self._core_runner.refuse(suspect, _given_up(suspect, trials)))
                continue
            await self._store_retrier.until_done(partial(trials.start, suspect))
            await self._run_batch((suspect,))
            await self._sender.room()
        if trials is not None and suspects:
            await self._store_retrier.until_done(trials.passed)
        await self._run_batch([item for item in items if item not in suspects] if suspects else items)

    async def _run_batch(self, items: Sequence[Item]) -> None:
        self._sender.put(await self._core_runner.run_batch(items))

    async def _blame(self) -> None:
        """Note from which message the error came that ends the process."""
        if self._trials is not None and self._core_runner.handling is not None:
            with suppress(PortError, TimeoutError):
                async with asyncio.timeout(_GRACE_S):
                    await self._trials.blame(self._core_runner.handling)

    # ------------------------------------------------------------ start and end

    async def _watch(self, stop: asyncio.Event, main: "asyncio.Task[Any] | None") -> None:
        """Make the service shut down in time, whatever it waits for."""
        await stop.wait()
        self._end_s = asyncio.get_running_loop().time() + self._drain_s
        self._inbox.stop_delaying()
        self._inbox.interrupt()
        if self._loaded:
            await asyncio.sleep(self._drain_s)
        self._shutting_down.set()
        if not self._loaded and self._leave is not None:
            await asyncio.sleep(self._drain_s)
        await asyncio.sleep(_GRACE_S)
        if main is not None:
            self._overdue = True
            main.cancel()

    async def _has_started(self, stop: asyncio.Event) -> bool:
        """Start, or leave: what the service has in hand beside the bus, such as a machine, it gives back also before it has begun.

        Its last events are dropped, because nothing that it knew before has been published.
        """
        try:
            if await self._start(stop):
                return True
        except ShuttingDown as error:
            self._log.warning("left-unfinished", why=str(error))
        if self._leave is not None:
            await self._leave()
        return False

    async def _start(self, stop: asyncio.Event) -> bool:
        """Publish the outbox rows of an earlier run, load, start to listen. False when `stop` was set meanwhile."""
        await self._send_leftovers()
        if self._trials is not None and self._subscriptions:
            await self._store_retrier.until_done(self._trials.begin)
        await self._store_retrier.until_done(self._load_events)
        if stop.is_set():
            return False
        self._loaded = True
        self._core_runner.undecoded = frozenset(each.type for each in self._subscriptions if each.undecoded)
        self._core_runner.aged = frozenset(each.type for each in self._subscriptions if each.aged)
        if self._store is not None and self._puts_back:
            self._listeners.append(self._spawn(watch_identity(self._store.identity, self._store_lost, self._identity)))
        for source in sources_of(self._consumers, self._subscriptions):
            sink = self._intake.sink(source, min(self._clock.real_s(source.may_wait_ms), _WAIT_MOST_S))
            self._listeners.append(self._spawn(self._bus.listen(source, sink, self._missed_of(source))))
        if self._answers or self._discoverable:
            answerers = self._intake.answerers(self._answers, self._answers_for)
            if self._discoverable:
                status = StatusAnswer(
                    self.name,
                    self.boot_id,
                    self._clock,
                    self._metrics,
                    problems=self.problems,
                    leases=self._leases,
                )
                answerers |= status.answerers()
            self._spawn(self._bus.answer(self.name, answerers, is_listed=self._discoverable))
        self._log.info(
            "service-started", boot_id=self.boot_id, subscriptions=len(self._subscriptions), answers=len(self._answers)
        )
        return True

    async def _store_lost(self) -> None:
        self._metrics.store_losses.inc()
        # Rows whose removal was lost: their messages have ids, so that the bus drops the second copy.
        await self._send_leftovers()
        await self.inject(StoreLost())

    def _tried_again(self, perform: Performer | None) -> Performer | None:
        """Perform the core's own effects so, and again while what they need is away."""
        if perform is None:
            return None

        async def performed(effect: Effect) -> Sequence[Struct]:
            found: list[Sequence[Struct]] = []

            async def attempt() -> None:
                found.append(await perform(effect))

            await self._store_retrier.until_done(attempt)
            return found[0]

        return performed

    async def _facts_missed(self, stream: str, why: str) -> None:
        self._metrics.facts_missed.inc()
        self._log.error(
            "facts-missed", why=why, then="asked for" if self._asks_for_missed else "known to be incomplete"
        )
        if self._asks_for_missed:
            await self.inject(FactsMissed(stream=stream))

    def _missed_of(self, source: Source) -> Missed | None:
        """What is called when the stream of the source has lost something."""
        if not source.last_per_subject:
            return partial(self._facts_missed, source.stream)
        return partial(self._stream_lost, source.stream) if self._says_again else None

    async def _stream_lost(self, stream: str, why: str) -> None:
        self._log.warning("stream-lost", why=why)
        await self.inject(StreamLost(stream=stream))

    async def _load_events(self) -> None:
        if self._store is not None and self._puts_back:
            # Asked before: what the store loses while it is read is noticed as well.
            self._identity = await self._store.identity()
        if self._load is not None:
            self._core_runner.left_over += await self._load()

    async def _send_leftovers(self) -> None:
        """Publish the outbox rows that a crash left between record and publish. A row that cannot be read is logged and kept."""
        store = self._store
        if store is None:
            return
        kind = outbox_kind(self.name)

        async def attempt() -> None:
            for row in await store.load(kind):
                try:
                    messages = outgoing_from_row(row.value)
                except DecodeError as error:
                    self._log.error("outbox-unreadable", row=row.id, error=str(error))
                    continue
                self._sender.put(OutgoingBatch(messages=list(messages), outbox=[outbox_removal(kind, row.id)]))

        await self._store_retrier.until_done(attempt)

    async def _drain(self) -> None:
        """Stop listening, handle the items of the inbox, send everything; for `drain_s` at most."""
        loop = asyncio.get_running_loop()
        self._end_s = self._end_s or loop.time() + self._drain_s
        for task in self._listeners:
            task.cancel()
        self._intake.close(_SHUTS_DOWN)
        try:
            if self._leave is not None:
                self._core_runner.left_over += await self._leave()
            while (len(self._inbox) or self._core_runner.left_over) and loop.time() < self._end_s:
                await self._run_items(await self._inbox.take(self._batch, 0))
            async with asyncio.timeout_at(self._end_s):
                if why := await self._sender.drained():
                    self._log.warning("left-unfinished", why=why)
        except TimeoutError:
            self._log.warning("left-unfinished", why="the time to drain is over", inbox=len(self._inbox))
        await self._hand_back()
        if self._trials is not None:
            with suppress(PortError):
                await self._trials.end()
        self._log.info("service-stopped")

    async def _hand_back(self) -> None:
        """Nak the messages that were not handled, so that another instance gets them at once."""
        if len(self._inbox):
            await _hand_back(await self._inbox.take(len(self._inbox), 0))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and self._failure is None:
            self._failure = task.exception()
            self._inbox.interrupt()

    async def _end_tasks(self, which: Sequence["asyncio.Task[None]"] = ()) -> None:
        """Cancel these tasks, or all."""
        tasks = tuple(which or self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _hand_back(items: Sequence[Item]) -> None:
    with suppress(PortError):
        for item in items:
            if isinstance(item, Delivery):
                await item.nak()


def _given_up(delivery: Delivery, trials: Trials | None) -> str:
    """Why a message is dead-lettered that breaks no rule."""
    if trials is None:
        return f"{delivery.subject}: was delivered {delivery.deliveries} times without success"
    return f"{delivery.subject}: ended the process {trials.tries_of(delivery)} times when it was handled"
