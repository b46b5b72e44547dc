"""Connects the core with the ledger and the jobs service: performs effects, loads the state, asks for pending requests."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar, assert_never

import structlog
from msgspec import Struct

from colo_common.events.effects import Effect, StoreLost
from colo_common.events.enforcement import NodeRecovered, PlacementRefused, ReplicaEnded
from colo_common.events.eviction import EvictionRequested
from colo_common.events.fact import Fact
from colo_common.events.job import MidPlacementsRequested, PlacementRequest, PlacementsRequested, ReplicasWithdrawn
from colo_common.events.node import AllocatableChanged, FreshnessChanged, NodeTopologyReported
from colo_common.events.placement import PlacementsReleased
from colo_common.events.policy import PolicyChanged
from colo_common.events.reservation import ReservationChanged
from colo_common.events.restriction import RestrictionsChanged
from colo_common.events.trace import trace_is_sampled
from colo_common.model.invalid import InvariantBroken
from colo_common.model.partition import Fence, PartitionsHeld
from colo_common.model.placement import Attempt, Placement
from colo_common.ports import Bus, Clock, PortError, Refused, Replay, SpanSink, Store
from colo_common.runtime.backoff import Backoff
from colo_common.runtime.bus_watch import BusWatch
from colo_common.runtime.core import Subscription
from colo_common.runtime.lease_keeper import LEASE_TTL_MS, LeaseKeeper
from colo_common.runtime.metrics import Metrics, ServiceMetrics
from colo_common.runtime.retry import Retrier
from colo_common.runtime.store_watch import watch_identity
from colo_scheduler.commit.jobs_asked import AskPending, AskStarted
from colo_scheduler.commit.known_places import known_places
from colo_scheduler.commit.pending import PAGE, Pending
from colo_scheduler.commit.starts import Starts
from colo_scheduler.figures import CoreFigures
from colo_scheduler.ledger.compare import compare_ledger, ended_last, read_rows
from colo_scheduler.ledger.port import (
    CALL_MAX,
    CommitLedger,
    ConfirmHolds,
    ForgetRows,
    HoldsReleased,
    Ledger,
    LedgerAnswered,
    LedgerChanges,
    LedgerCompared,
    LedgerEffect,
    LedgerLoaded,
    LedgerRefused,
    LedgerRows,
    LoadLedgerRows,
    NodeAnswer,
    NodeRow,
    PutBackRows,
    RefreshLedger,
    ReleaseHolds,
)
from colo_scheduler.reservations.rows import AskJobs, JobsOver, LoadReservations
from colo_scheduler.reservations.store import jobs_over, load_reservations

__all__ = ["HEARS", "HEARS_SHARED", "SchedulerShell", "StageTimes"]


_TIMED_MAX: Final = 10_000


class _Timed(NamedTuple):
    placement_request: PlacementRequest
    filter_us: int
    score_us: int
    done_us: int


class StageTimes:
    """The stage observer of a core. Equal placement requests are decided at once and share the times.

    `wall_us_at` gives the wall clock at a time of the service's clock.
    """

    def __init__(self, wall_us: Callable[[], int], wall_us_at: Callable[[int], int], span: SpanSink) -> None:
        self._wall_us = wall_us
        self._wall_us_at = wall_us_at
        self._span = span
        self._marks: dict[str, int] = {}
        self._timed: dict[Attempt, _Timed] = {}

    def mark(self, stage: str) -> None:
        """Note that this stage begins now."""
        self._marks[stage] = self._wall_us()

    def decided(self, placement_requests: Sequence[PlacementRequest]) -> None:
        """Give these requests the times of the last marks. Only sampled requests are timed, at most 10,000 at once."""
        times = (self._marks["filter"], self._marks["score"], self._marks["done"])
        for placement_request in placement_requests:
            if trace_is_sampled(placement_request.traceparent) and len(self._timed) < _TIMED_MAX:
                self._timed[(placement_request.replica, placement_request.attempt)] = _Timed(placement_request, *times)

    @property
    def is_timing(self) -> bool:
        """Whether a timed decision waits for its commit."""
        return bool(self._timed)

    def committed(self, attempt: Attempt, node: str, start_us: int, end_us: int, *, error: str = "") -> None:
        """The ledger answered: emit the spans queue.wait, decide with filter and score, and commit."""
        timed = self._timed.pop(attempt, None)
        if timed is None:
            return
        parent = timed.placement_request.traceparent
        names = {"replica": timed.placement_request.replica, "attempt": str(timed.placement_request.attempt)}
        queued_at_ms = timed.placement_request.queued_at_ms
        queued_us = self._wall_us_at(queued_at_ms) if queued_at_ms else 0
        if 0 < queued_us <= timed.filter_us:
            self._say("queue.wait", parent, queued_us, timed.filter_us, names)
        decide = self._say("decide", parent, timed.filter_us, timed.done_us, names | {"node": node})
        self._say("filter", decide, timed.filter_us, timed.score_us, {})
        self._say("score", decide, timed.score_us, timed.done_us, {})
        self._say("commit", parent, start_us, end_us, names | {"node": node}, error)

    def _say(
        self, name: str, parent: str, start_us: int, end_us: int, attributes: dict[str, str], error: str = ""
    ) -> str:
        return self._span(name, parent=parent, start_us=start_us, end_us=end_us, attributes=attributes, error=error)


T = TypeVar("T")

# Reports of machines come by the thousand, and cost a fraction when all reports of one moment are taken in together. They are
# less urgent than placement requests, and the wait is short beside the age of a report.
_FACTS_WAIT_MS: Final = 10
_REPORTS_WAIT_MS: Final = 25

HEARS: Final = (
    Subscription(type=NodeTopologyReported, durable=False, replay=True, may_wait_ms=_FACTS_WAIT_MS),
    Subscription(type=AllocatableChanged, durable=False, replay=True, may_wait_ms=_FACTS_WAIT_MS, aged=True),
    # The same wait as the allocatable published with it: a node that is fresh again must not be used with its old allocatable.
    Subscription(type=FreshnessChanged, durable=False, replay=True, may_wait_ms=_FACTS_WAIT_MS, aged=True),
    Subscription(type=RestrictionsChanged, durable=False, replay=True),
    Subscription(type=PolicyChanged, durable=False, replay=True),
    Subscription(type=PlacementsRequested),
    Subscription(type=MidPlacementsRequested),
    Subscription(type=ReplicasWithdrawn),
    Subscription(type=ReplicaEnded, may_wait_ms=_REPORTS_WAIT_MS),
    Subscription(type=PlacementRefused),
    # The same wait as the ends that the node reported before it: ended attempts are not ordered again.
    Subscription(type=NodeRecovered, may_wait_ms=_REPORTS_WAIT_MS),
)
# Where several schedulers share the work each receives all placement requests and ignores those of other shards. Each end is
# received by only one scheduler, because any scheduler can release the hold in the ledger.
HEARS_SHARED: Final = (
    *(subscription for subscription in HEARS if subscription.type not in (PlacementsRequested, MidPlacementsRequested)),
    Subscription(type=PlacementsRequested, durable=False),
    Subscription(type=MidPlacementsRequested, durable=False),
    Subscription(type=ReplicasWithdrawn, durable=False),
    Subscription(type=PlacementsReleased, durable=False),
    # All schedulers avoid a node that evicts a replica; this event informs a scheduler that does not receive the end in time.
    Subscription(type=EvictionRequested, durable=False),
    Subscription(type=ReservationChanged, durable=False),
)

_RESERVATIONS: Final = "reservations"
_COUNT_EVERY_S: Final = 1.0
_LEAVE_AFTER_S: Final = 6.0
_REFUSALS_MAX: Final = 5
"""Refusals after which one call is given up: about two seconds, in which a server may change its role."""
_COMMIT_WITHIN_S: Final = 2.0
"""Seconds (real time) after which a decision is not committed any more: the capacity it rests on may have shrunk."""

Inject = Callable[[Struct], Awaitable[None]]


class _GivenUpError(Exception):
    """The ledger refused one call _REFUSALS_MAX times."""


class _TooLateError(_GivenUpError):
    """The decision is too old to be committed."""


class SchedulerShell:
    """The generic service calls `perform_many`, `load` and `leave`; `run` works beside the service."""

    def __init__(
        self,
        ledger: Ledger,
        bus: Bus,
        clock: Clock,
        *,
        figures: CoreFigures,
        stages: StageTimes,
        metrics: Metrics,
        rng: random.Random,
        owner: str = "",
        shards: int = 0,
        lease_ttl_ms: int = LEASE_TTL_MS,
        store: Store | None = None,
        replay: Replay | None = None,
        page: int = PAGE,
        bus_watch: BusWatch | None = None,
    ) -> None:
        """`owner` names this scheduler among those that share `shards`; 0: it is alone. A lease on a shard lasts `lease_ttl_ms`.

        `figures` are those of the core; `run` keeps them up to date. `replay`: what the ledger is compared with; None: it is not.
        `page`: the number of replicas in one request to the jobs service. `bus_watch`: as of LeaseKeeper.
        """
        self._figures = figures
        self._ledger = ledger
        self._bus = bus
        self._clock = clock
        self._stages = stages
        self._rng = rng
        self._leaving = asyncio.Event()
        self._retrier = Retrier("ledger", rng, ServiceMetrics(metrics, "scheduler").retries, self._leaving)
        self._page = page
        self._pending = Pending(bus, rng, page)
        self._starts = Starts(bus, rng, page)
        self._store = store
        self._replay = replay
        self._decided_s = 0.0
        self._refused: dict[str, str] = {}
        self._identity = ""
        self._unread: dict[str, None] = {}
        self._read_again = asyncio.Event()
        self._jobs_to_ask: tuple[str, ...] = ()
        self._ask_jobs = asyncio.Event()
        self._owner = owner
        #: None: this scheduler is alone.
        self.leases = (
            LeaseKeeper(ledger.leases, owner, shards, lease_ttl_ms, bus=bus_watch, setting="shards") if shards else None
        )
        if self.leases is None:
            # The one before may have died before it said that facts are lost.
            self._pending.ask(compare_holds=True)
        self._log = structlog.get_logger("scheduler")
        self._commit_seconds = metrics.histogram(
            "colo_scheduler_commit_seconds", "time of one ledger commit, retries included"
        )
        self._shards_held = metrics.gauge("colo_scheduler_held_shards", "shards whose wants are decided here")

    # ---- effects

    async def perform_many(self, effects: Sequence[Effect]) -> Sequence[Struct]:
        """Perform all effects of a round and return their events, in the order of the effects.

        Commits and reads run in their order. Releases and confirmations run beside them, because they depend on no revision and
        on no reservation of the same round.
        """
        lanes: dict[type[Effect], list[int]] = {}
        for number, effect in enumerate(effects):
            lane = type(effect) if isinstance(effect, ReleaseHolds | ConfirmHolds) else Effect
            lanes.setdefault(lane, []).append(number)
        found: list[Sequence[Struct]] = [()] * len(effects)
        self._decided_s = asyncio.get_running_loop().time()

        async def work(lane: Sequence[int]) -> None:
            for number in lane:
                found[number] = await self.perform(effects[number])

        tasks = [asyncio.create_task(work(lane)) for lane in lanes.values()]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return [event for events in found for event in events]

    async def perform(self, effect: Effect) -> Sequence[Struct]:
        """Perform one effect of the core, with retries. Raises ShuttingDown when the service leaves while the ledger is away.

        A call that the ledger refuses _REFUSALS_MAX times returns LedgerRefused: more retries would block all other calls.
        """
        match effect:
            case (
                CommitLedger()
                | ReleaseHolds()
                | ConfirmHolds()
                | LoadLedgerRows()
                | RefreshLedger()
                | ForgetRows()
                | PutBackRows()
            ):
                return await self._call_or_give_up(effect)
            case AskPending(compare_holds=compare_holds):
                self._pending.ask(compare_holds=compare_holds)
                return []
            case AskStarted(attempts=attempts):
                self._starts.ask(attempts)
                return []
            case LoadReservations(names=names) if (store := self._store) is not None:
                try:
                    return [await load_reservations(store, names)]
                except PortError as error:
                    # No other effect waits for reservations: `_keep_reading` reads them as soon as the store answers.
                    self._refused[_RESERVATIONS] = str(error)
                    self._unread |= dict.fromkeys(names)
                    self._read_again.set()
                return []
            case AskJobs(jobs=jobs):
                self._jobs_to_ask = jobs
                self._ask_jobs.set()
                return []
            case _:
                raise InvariantBroken("the scheduler has no such effect", effect=type(effect).__name__)

    async def _call_or_give_up(
        self,
        effect: LedgerEffect,
    ) -> Sequence[Struct]:
        name = type(effect).__name__
        try:
            events = await self._call(effect)
        except _TooLateError as error:
            self._log.info("commit-too-late", error=str(error))
            return [LedgerRefused(effect=effect, is_late=True)]
        except _GivenUpError as error:
            self._refused[name] = str(error)
            self._log.warning("ledger-refused", call=name, error=str(error))
            return [LedgerRefused(effect=effect)]
        self._refused.pop(name, None)
        return events

    async def _call(
        self,
        effect: LedgerEffect,
    ) -> Sequence[Struct]:
        match effect:
            case CommitLedger():
                return [await self._commit(effect)]
            case ReleaseHolds(attempts=attempts, nodes=nodes):
                return [HoldsReleased(released=await self._asked(lambda: self._ledger.release(attempts, nodes)))]
            case ConfirmHolds(attempts=attempts):
                await self._asked(lambda: self._ledger.confirm(attempts))
                return []
            case LoadLedgerRows(nodes=nodes):
                return [LedgerRows(rows=await self._asked(lambda: self._ledger.rows(nodes)))]
            case RefreshLedger():
                # The floor is read first: a row that is forgotten after that read is still among the changes or above the floor.
                floor = await self._asked(self._ledger.floor)
                changes = await self._asked(self._ledger.changes)
                return [LedgerChanges(changes=tuple(sorted(changes.items())), floor=floor)]
            case PutBackRows(rows=rows, floor=floor):
                await self._asked(lambda: self._ledger.put_back(rows, floor))
                names = [row.node for row in rows]
                return [LedgerRows(rows=await self._asked(lambda: self._ledger.rows(names)))]
            case ForgetRows(nodes=nodes):
                await self._asked(lambda: self._ledger.forget(nodes))
                return []
            case _:
                assert_never(effect)

    async def _commit(self, effect: CommitLedger) -> LedgerAnswered:
        start_us = self._clock.wall_us()
        loop = asyncio.get_running_loop()
        by_s = self._decided_s + _COMMIT_WITHIN_S

        async def commit() -> Sequence[NodeAnswer]:
            if loop.time() > by_s:
                raise _TooLateError(self._retrier.problem or "other calls took too long")
            if effect.compared != self._compared:
                raise _TooLateError("Redis began again since")
            return await self._ledger.commit(
                effect.reserves, effect.fences, effect.written_by(self._owner), effect.compared
            )

        # A call whose answer was lost is sent again: the ledger accepts the same bytes twice and changes nothing.
        answers = await self._asked(commit)
        end_us = self._clock.wall_us()
        self._commit_seconds.observe((end_us - start_us) / 1e6)
        for answer in answers if self._stages.is_timing else ():
            for attempt in answer.accepted:
                self._stages.committed(attempt, answer.node, start_us, end_us)
            for refused in answer.refused:
                attempt = (refused.replica, refused.attempt)
                self._stages.committed(attempt, answer.node, start_us, end_us, error=refused.reason.value)
        return LedgerAnswered(answers=tuple(answers))

    async def _until_done(self, call: Callable[[], Awaitable[T]]) -> T:
        results: list[T] = []

        async def attempt() -> None:
            results.append(await call())

        await self._retrier.until_done(attempt)
        return results[0]

    async def _asked(self, call: Callable[[], Awaitable[T]]) -> T:
        """As `_until_done`; raises _GivenUpError once the ledger has refused the call _REFUSALS_MAX times."""
        refusals = 0

        async def attempt() -> T:
            nonlocal refusals
            try:
                return await call()
            except Refused as error:
                refusals += 1
                if refusals >= _REFUSALS_MAX:
                    raise _GivenUpError(str(error)) from error
                raise

        return await self._until_done(attempt)

    def problems(self) -> Mapping[str, str]:
        """One sentence each for ledger, leases and reservations that says why it is unavailable; empty while it is available."""
        ledger = next((why for call, why in sorted(self._refused.items()) if call != _RESERVATIONS), "")
        return {
            "ledger": self._retrier.problem or ledger,
            "leases": "" if self.leases is None else self.leases.problem,
            _RESERVATIONS: self._refused.get(_RESERVATIONS, ""),
        }

    # ---- start

    async def load(self) -> Sequence[Struct]:
        """Every row of the ledger, every reservation, LedgerLoaded, and what ended last. Raises the ledger's and the bus's errors.

        The service tries again then. What the ledger lost is put back before: no place is decided on what is missing from it.
        """
        identity = await self._ledger.identity()
        if self._replay is None:
            rows, ended = await read_rows(self._ledger), list[Fact]()
        else:
            rows, ended = await self._compare(self._replay, partial(known_places, self._bus, self._page))
        floor = await self._ledger.floor()
        events: list[Struct] = [
            LedgerRows(rows=rows[start : start + CALL_MAX]) for start in range(0, len(rows), CALL_MAX)
        ]
        if self._store is not None:
            events.append(await load_reservations(self._store))
        return [*events, self._compared_with(identity), LedgerLoaded(floor=floor), *ended]

    async def _compare(
        self, replay: Replay, places: Callable[[], Awaitable[Sequence[Placement]]] | None = None
    ) -> tuple[tuple[NodeRow, ...], list[Fact]]:
        """Compare the ledger with the stream of facts, and tell what it had lost: its rows now, and what ended last.

        `places`: see `compare_ledger`. A scheduler that lives needs none: it knows every place, and better than the jobs service.

        Holds that ended unheard are released as ever: the jobs service is asked about each.
        """
        found = await compare_ledger(self._ledger, replay, places)
        if found.put_back or found.released:
            self._log.error(
                "holds-lost",
                why="the ledger lacked places that were decided and not released, or had places that were released",
                facts=found.facts,
                from_jobs=found.from_jobs,
                nodes=len({node for _, node in (*found.put_back, *found.released)}),
                put_back=len(found.put_back),
                released=len(found.released),
            )
        return found.rows, await ended_last(replay)

    def _compared_with(self, identity: str) -> LedgerCompared:
        """From now on commits are for the ledger of this identity; one scheduler alone knows itself what was written."""
        self._identity = identity
        return LedgerCompared(identity=self._compared)

    @property
    def _compared(self) -> str:
        return self._identity if self._replay is not None and self.leases is not None else ""

    async def _store_lost(self, inject: Inject) -> None:
        """The ledger is another one than before: put back what it lost. Until then it takes no commit of this scheduler.

        What another scheduler wrote may stand in the stream alone, as that one may have died, or be about to put it back.
        """
        backoff, is_logged = Backoff(self._rng), False
        while self._replay is not None and self.leases is not None:
            try:
                identity = await self._ledger.identity()
                _, ended = await self._compare(self._replay)
            except PortError as error:
                self._log.warning(
                    "ledger-not-compared", why="the stream or the ledger does not answer", error=str(error)
                )
                if not is_logged:
                    # What this scheduler knows itself needs no stream.
                    await inject(StoreLost())
                is_logged = True
                await asyncio.sleep(backoff.next_s())
                continue
            # The core puts back what it knows before it decides again.
            for event in (StoreLost(), self._compared_with(identity), *ended):
                await inject(event)
            return
        await inject(StoreLost())

    async def leave(self) -> Sequence[Struct]:
        """Release all shards to the other schedulers at once."""
        if self.leases is None:
            return []
        await self.leases.leave()
        return [PartitionsHeld(fences=())]

    # ---- beside the service

    async def run(self, stop: asyncio.Event, inject: Inject) -> None:
        """Keep leases and counters, and ask for pending requests and started attempts whenever that is due, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if self.leases is not None:
                tasks.create_task(self._keep_leasing(self.leases, stop, inject))
            tasks.create_task(self._pending.keep(inject))
            tasks.create_task(self._starts.keep(inject))
            tasks.create_task(self._keep_asking_jobs(inject))
            tasks.create_task(self._keep_reading(inject))
            tasks.create_task(self._keep_counting())
            tasks.create_task(watch_identity(self._ledger.identity, lambda: self._store_lost(inject), self._identity))
            tasks.create_task(self._leave_when(stop))

    async def _leave_when(self, stop: asyncio.Event) -> None:
        await stop.wait()
        # Longer than a reachable ledger needs to answer, shorter than the service may take to leave.
        await asyncio.sleep(_LEAVE_AFTER_S)
        self._leaving.set()

    async def _keep_leasing(self, leases: LeaseKeeper, stop: asyncio.Event, inject: Inject) -> None:
        """Tell the core which shards are its own, until the service leaves."""

        async def changed(fences: tuple[Fence, ...]) -> None:
            self._shards_held.set(len(fences))
            await inject(PartitionsHeld(fences=fences))

        await leases.run(changed, stop)

    async def _keep_asking_jobs(self, inject: Inject) -> None:
        """Ask about jobs whenever that is due. Nothing waits for the answer: while the jobs service is away the core asks later."""
        while True:
            await self._ask_jobs.wait()
            self._ask_jobs.clear()
            over = await jobs_over(self._bus, self._jobs_to_ask)
            if over:
                await inject(JobsOver(jobs=over))

    async def _keep_reading(self, inject: Inject) -> None:
        """Read the reservations that could not be read, with growing waits."""
        backoff = Backoff(self._rng)
        while self._store is not None:
            await self._read_again.wait()
            await asyncio.sleep(backoff.next_s())
            names = list(self._unread)
            try:
                loaded = await load_reservations(self._store, names)
            except PortError as error:
                self._refused[_RESERVATIONS] = str(error)
                continue
            for name in names:
                self._unread.pop(name, None)
            if not self._unread:
                self._read_again.clear()
                self._refused.pop(_RESERVATIONS, None)
            backoff.reset()
            await inject(loaded)

    async def _keep_counting(self) -> None:
        while True:
            self._figures.update()
            await asyncio.sleep(_COUNT_EVERY_S)
