"""Connects the two cores with a runtime: performs the effects of the executor core, and runs the reflex independently of it."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import structlog
from msgspec import Struct
from msgspec.structs import replace

from colo_common.events.effects import Effect, Wake
from colo_common.events.enforcement import ZoneCeiling
from colo_common.model.invalid import InvariantBroken
from colo_common.model.reasons import SENTENCES, Reason
from colo_common.ports import Clock, SpanSink
from colo_common.runtime.metrics import Metrics
from colo_executor.cgroup import CgroupError
from colo_executor.lease import LeasePhase
from colo_executor.local import (
    Attempt,
    CeilingFound,
    CeilingMoved,
    CeilingRefused,
    CeilingWritten,
    DiskOverused,
    Drift,
    FastReading,
    FreezeRefused,
    FreezeWritten,
    FrozenFound,
    FrozenMoved,
    KeepCpus,
    LaunchFailed,
    LaunchReplica,
    LocateDevices,
    NoteMode,
    NoteViolation,
    RememberEnd,
    RememberPlacement,
    RememberRestrictions,
    RememberTerm,
    RenewLease,
    ReplicasSuspended,
    SetCeiling,
    SetFrozen,
    SignalReplica,
    SuspendReplicas,
)
from colo_executor.not_restored import NotRestored
from colo_executor.reflex import MOVES, Reflex, ReflexEvent
from colo_executor.reflex_policy import ReflexPolicy
from colo_executor.runtime import Runtime
from colo_executor.suppress import bounds_mcpu
from colo_executor.zone_gauges import ZoneGauges

__all__ = [
    "OBSERVE_CEILING",
    "OBSERVE_DISK",
    "OBSERVE_DRIFT",
    "OBSERVE_FREEZE",
    "OBSERVE_NODE",
    "OBSERVE_UNMANAGED",
    "ExecutorShell",
    "no_span",
]

OBSERVE_CEILING: Final = "ceiling"
OBSERVE_DRIFT: Final = "drift"
OBSERVE_FREEZE: Final = "freeze"
OBSERVE_DISK: Final = "disk"
OBSERVE_UNMANAGED: Final = "unmanaged"
OBSERVE_NODE: Final = "node"
_NO_FREEZE: Final = frozenset((OBSERVE_CEILING, OBSERVE_FREEZE, OBSERVE_NODE))
_CHECK_EVERY_MS: Final = 1_000
_ADVICE_MOST: Final = 100
_QUIET_PERIODS: Final = 5
_NAMED_MOST: Final = 10

Inject = Callable[[Struct], Awaitable[None]]


def no_span(
    name: str,
    *,
    parent: str,
    start_us: int,
    end_us: int,
    attributes: Mapping[str, str] | None = None,
    error: str = "",
) -> str:
    """Keep no span. Returns an empty id."""
    return ""


class ExecutorShell:
    """`perform`, `load` and `leave` are for the generic service; `run_reflex` owns the reflex, in a thread of its own.

    The reflex never waits for the network or the rest of this process: it reads, decides and writes. Its events for the executor
    core wait until `run_teller` hands them to the service; lease renewals and violation rates for it wait in `_advice`.
    """

    def __init__(
        self,
        runtime: Runtime,
        clock: Clock,
        *,
        policy: ReflexPolicy,
        period_ms: int,
        metrics: Metrics,
        span: SpanSink = no_span,
        reconcile_ms: int = 10_000,
        observes: Collection[str] = (),
        beat: Callable[[], None] = lambda: None,
        yields: Callable[[], bool] = lambda: False,
        paused: Callable[[], Collection[Attempt]] = tuple,
    ) -> None:
        """`observes` are rules that decide and write nothing, or the whole node, of which all is said that would be written. `beat`
        is called in each turn of the reflex thread. `yields`: whether an operator holds the node, whose changes of kernel values
        are then left as they are. So are those of the groups of `paused` attempts.
        """
        self._runtime = runtime
        self._clock = clock
        self._policy = policy
        self._period_ms = period_ms
        self._reconcile_ms = reconcile_ms
        self._span = span
        self._observes = frozenset(observes)
        self._beat = beat
        self._yields = yields
        self._paused = paused
        self.not_restored = ""
        self._checked_at_ms = 0
        self._reflex: Reflex | None = None
        self._advice: deque[RenewLease | NoteMode | NoteViolation] = deque(maxlen=_ADVICE_MOST)
        self._to_tell: deque[Struct] = deque()
        self._moved: CeilingMoved | None = None
        self._news = threading.Lock()
        self._turning = threading.Lock()
        self._has_news = asyncio.Event()
        self._ready = asyncio.Event()
        self._log = structlog.get_logger("executor")
        self._is_blind = False
        self._is_unheld = False
        self._has_drift = self._has_open_cpus = False
        self._seen: Drift | None = None
        self._reading: FastReading | None = None
        self._overused: set[Attempt] = set()
        self._register_gauges(metrics)
        self._writes = metrics.counter("colo_executor_ceiling_writes_total", "ceilings written")
        self._refusals = metrics.counter("colo_executor_ceiling_refusals_total", "ceilings that the kernel refused")
        self._freezes = metrics.counter(
            "colo_executor_freezes_total", "times that all batch work was frozen or thawed", ("outcome",)
        )
        self._frozen_seconds = metrics.counter(
            "colo_executor_batch_frozen_seconds_total", "time for which all batch work was frozen"
        )
        self._frozen_until_ms: int | None = None
        self._moves = metrics.counter(
            "colo_executor_reflex_moves_total", "moves of the batch ceiling, freezes and thaws, by why", ("reason",)
        )
        for reason in MOVES:
            # From 0, so that the first move is an increase.
            self._moves.labels(reason.value)
        self._reflex_seconds = metrics.histogram(
            "colo_executor_reflex_seconds", "from the beginning of a fast reading to the ceiling written"
        )
        self._register_counts(metrics)

    @property
    def reflex(self) -> Reflex | None:
        """The reflex, once the machine is adopted."""
        return self._reflex

    def _register_counts(self, metrics: Metrics) -> None:
        """Register what is counted beside the reflex."""
        self._disk_ends = metrics.counter(
            "colo_executor_disk_ends_total",
            "replicas that are ended, or would be, for what they take of the disk",
            ("outcome",),
        )
        self._drifts = metrics.counter(
            "colo_executor_drifts_total", "kernel values that somebody else changed", ("outcome", "by")
        )
        self._suspensions = metrics.counter(
            "colo_executor_suspensions_total", "replicas that were suspended or resumed", ("outcome",)
        )
        self._launches = metrics.counter("colo_executor_launches_total", "attempts to start a replica", ("outcome",))

    def _register_gauges(self, metrics: Metrics) -> None:
        """Register gauges that are computed when they are read, because the reflex has no time to set them."""
        for name, says, field in (
            ("colo_executor_online_used_mcpu", "CPU use of everything but batch work", "online_used_mcpu"),
            ("colo_executor_batch_used_mcpu", "CPU use of batch work", "batch_used_mcpu"),
        ):
            metrics.gauge(name, says).set_function(partial(self._read_value, field))
        metrics.gauge("colo_executor_batch_ceiling_mcpu", "the batch tier's CPU ceiling").set_function(self._ceiling)
        self._zones = ZoneGauges(metrics, lambda: () if self._reflex is None else self._reflex.zones)
        metrics.gauge(
            "colo_executor_unseen_groups_count",
            "busy groups of online work whose waits for a CPU neither a pressure file nor their threads show",
        ).set_function(lambda: float(len(self._unseen())))
        metrics.gauge(
            "colo_executor_run_queue_groups_count",
            "groups of online work without a pressure file whose waits for a CPU are read from their threads",
        ).set_function(self._by_threads)
        metrics.gauge("colo_executor_open_own_cpus_count", "own CPUs on which groups of others run, too").set_function(
            lambda: float(len(self._runtime.open_cpus.cpus))
        )
        metrics.gauge(
            "colo_executor_lease_expired_count",
            "1 while the control plane has not renewed the lease of batch work in time",
        ).set_function(lambda: float(self._is_unheld))
        metrics.gauge("colo_executor_batch_frozen_count", "1 while all batch work is frozen").set_function(self._frozen)
        metrics.gauge(
            "colo_executor_batch_whole_cores_count",
            "1 while batch work has only as many whole cores as its ceiling needs",
        ).set_function(lambda: float(self._runtime.has_whole_cores))
        ways = metrics.gauge(
            "colo_executor_batch_low_priority_count",
            "1 for how the kernel makes batch work give way to online work",
            ("by",),
        )
        for way in ("idle", "bvt", "weight", "nothing"):
            ways.labels(way).set_function(partial(self._low_priority, way))

    def _read_value(self, field: str) -> float:
        return 0.0 if self._reading is None else float(getattr(self._reading, field))

    def _ceiling(self) -> float:
        return 0.0 if self._reflex is None else float(self._reflex.ceiling_mcpu or 0)

    def _unseen(self) -> tuple[str, ...]:
        stalls = None if self._reading is None else self._reading.stalls
        return () if stalls is None else stalls.unseen

    def _by_threads(self) -> float:
        stalls = None if self._reading is None else self._reading.stalls
        return 0.0 if stalls is None else float(len(stalls.by_threads))

    def _frozen(self) -> float:
        return float(self._is_frozen())

    def _is_frozen(self) -> bool:
        """Whether batch work is frozen in truth: not where that is only observed."""
        return self._reflex is not None and self._reflex.is_frozen and self._observes.isdisjoint(_NO_FREEZE)

    def _low_priority(self, way: str) -> float:
        return float(self._reading is not None and (self._reading.low_priority or "nothing") == way)

    # ------------------------------------------------------------ for the service

    async def load(self) -> Sequence[Struct]:
        """Adopt the machine. Returns the first event of the executor core."""
        now_ms = self._clock.now_ms()
        adopted = await self._runtime.adopt(now_ms)
        self._reflex = Reflex(
            self._policy,
            capacity_mcpu=self._runtime.capacity_mcpu,
            now_ms=now_ms,
            ceiling_mcpu=self._runtime.ceiling_mcpu,
            zones=self._runtime.zone_ceilings,
            has_whole_cores=self._runtime.has_whole_cores,
            last_lease=self._runtime.continued_lease(),
        )
        self._log.info(
            "adopted", replicas=len(adopted.replicas), waiting=len(adopted.waiting), remarks=list(adopted.remarks)
        )
        self._ready.set()
        return [adopted]

    async def perform(self, effect: Effect) -> Sequence[Struct]:
        """Perform one effect of the executor core. Returns its resulting events."""
        match effect:
            case LaunchReplica():
                return [await self._launch(effect)]
            case SignalReplica():
                self._log.info("signal", replica=effect.replica, attempt=effect.attempt, signal=effect.signal)
                await self._runtime.signal(effect)
            case SuspendReplicas():
                return [await self._suspend(effect)]
            case KeepCpus():
                await self._keep_cpus(effect)
            case LocateDevices():
                await self._runtime.locate_devices(effect.devices)
            case RememberPlacement() | RememberEnd() | RememberRestrictions() | RememberTerm():
                await self._runtime.remember(effect)
            case RenewLease():
                self._runtime.note_lease(effect.lease_ms)
                self._advice.append(replace(effect, received_at_ms=self._clock.now_ms()))
            case NoteMode() | NoteViolation():
                self._advice.append(effect)
            case _:
                raise InvariantBroken("the executor performs no such effect", effect=type(effect).__name__)
        return []

    async def leave(self) -> Sequence[Struct]:
        """Stop the reflex and set the ceiling to the floor, at which batch work runs until the next executor adopts it: frozen work
        runs again.
        """
        await self._hold_reflex()
        news = [*self._take_news(), *self._thaw_at_exit()]
        ceiling_mcpu, now_ms = self._runtime.ceiling_mcpu, self._clock.now_ms()
        floor_mcpu, _ = bounds_mcpu(self._policy.suppress, self._runtime.capacity_mcpu)
        if self._runtime.has_batch and ceiling_mcpu is not None and ceiling_mcpu > floor_mcpu:
            self._count(self._set_ceiling(floor_mcpu))
            news.append(self._left(now_ms, ceiling_mcpu, floor_mcpu))
        return news

    async def restore(self) -> Sequence[Struct]:
        """Stop the reflex and put the machine back. Returns the exits of the ended replicas.

        Where the machine is not put back in whole, `not_restored` says what of it, and batch work that is left gets the floor.
        """
        await self._hold_reflex()
        news = self._take_news()
        try:
            return [*news, *await self._runtime.restore()]
        except NotRestored as error:
            self.not_restored = str(error)
            news += error.exits
        if self._runtime.has_batch:
            floor_mcpu, _ = bounds_mcpu(self._policy.suppress, self._runtime.capacity_mcpu)
            self._count(self._set_ceiling(floor_mcpu))
            self.not_restored += "; batch work that is left has the floor"
        return news

    async def _hold_reflex(self) -> None:
        """Stop the turns of the reflex, and wait until the one that is under way has ended: it still writes what it has decided.

        A kernel that keeps it for ever keeps this process, too, whose watchdog then writes the floor.
        """
        self._ready.clear()
        if not self._turning.acquire(blocking=False):
            await asyncio.to_thread(self._turning.acquire)
        self._turning.release()

    def _thaw_at_exit(self) -> list[FrozenMoved]:
        reflex = self._reflex
        if reflex is None or not reflex.is_frozen:
            return []
        result = self._set_frozen(is_frozen=False)
        self._count_freeze(result)
        if isinstance(result, FreezeRefused):
            return []
        return [
            FrozenMoved(
                at_ms=self._clock.now_ms(),
                is_frozen=False,
                reason=Reason.SHUTDOWN_RESTORE,
                ceiling_mcpu=reflex.ceiling_mcpu or 0,
                capacity_mcpu=self._runtime.capacity_mcpu,
                knobs=result.knobs,
                observed=result.observed,
            )
        ]

    def _left(self, now_ms: int, before_mcpu: int, ceiling_mcpu: int) -> CeilingMoved:
        reading = self._reading
        return CeilingMoved(
            at_ms=now_ms,
            reason=Reason.SHUTDOWN_RESTORE,
            ceiling_mcpu=ceiling_mcpu,
            before_mcpu=before_mcpu,
            online_used_mcpu=0 if reading is None else reading.online_used_mcpu,
            target_mcpu=ceiling_mcpu,
            capacity_mcpu=self._runtime.capacity_mcpu,
            zones=self._runtime.zone_ceilings,
        )

    async def _suspend(self, effect: SuspendReplicas) -> ReplicasSuspended:
        result = await self._runtime.suspend(effect)
        done = len(result.attempts) - len(result.failed)
        self._suspensions.labels("suspended" if effect.is_suspended else "resumed").inc(done)
        self._suspensions.labels("failed").inc(len(result.failed))
        failed = [sentence for _, _, sentence in result.failed[:_NAMED_MOST]]
        self._log.info("suspension", is_suspended=effect.is_suspended, done=done, failed=failed)
        return result

    async def _keep_cpus(self, effect: KeepCpus) -> None:
        refusal = await self._runtime.keep_cpus(effect.kept)
        kept = effect.kept
        if refusal:
            self._log.warning("kept-cpus-refused", withheld=str(kept.withheld), pinned=str(kept.pinned), detail=refusal)
            return
        self._log.info("kept-cpus", withheld=str(kept.withheld), pinned=str(kept.pinned))

    async def _launch(self, effect: LaunchReplica) -> Struct:
        placement = effect.placement
        start_us = self._clock.wall_us()
        parent, node = placement.traceparent, placement.node
        if effect.sent_us and parent:
            self._span("command", parent=parent, start_us=effect.sent_us, end_us=start_us, attributes={"node": node})
        result = await self._runtime.launch(placement, self._clock.now_ms())
        error = result.detail if isinstance(result, LaunchFailed) else ""
        self._launches.labels("failed" if error else "started").inc()
        if isinstance(result, LaunchFailed):
            self._log.warning(
                "launch-failed",
                replica=placement.replica,
                attempt=placement.attempt,
                reason=result.reason.value,
                detail=result.detail,
            )
        if parent:
            attributes = {"node": node, "replica": placement.replica, "attempt": str(placement.attempt)}
            end_us = self._clock.wall_us()
            self._span("apply", parent=parent, start_us=start_us, end_us=end_us, attributes=attributes, error=error)
        return result

    # ------------------------------------------------------------ the reflex

    async def run_reflex(self) -> None:
        """Run a turn of the reflex every period until cancelled, in a thread, so that the work of the loop does not delay it."""
        await self._ready.wait()
        stop = threading.Event()
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "reflex") as pool:
            try:
                await loop.run_in_executor(pool, self._turn_until, stop, loop)
            finally:
                stop.set()

    def turn(self) -> None:
        """Run one turn of the reflex, for a caller that keeps the time itself. Does nothing before the machine is adopted."""
        if self._turn():
            self._notify()

    def _turn(self) -> bool:
        """Run one turn, unless the reflex is held. Returns whether it ran."""
        with self._turning:
            if not self._ready.is_set():
                return False
            self.tick()
            return True

    async def run_reconcile(self, inject: Inject) -> None:
        """Put back the kernel values that other programs changed, every `reconcile_ms` until cancelled."""
        if OBSERVE_NODE in self._observes:
            await self._ready.wait()
            await self.reconcile(inject)
        while True:
            await self._ready.wait()
            await asyncio.sleep(self._clock.real_s(self._reconcile_ms))
            if self._ready.is_set():
                await self.reconcile(inject)

    async def reconcile(self, inject: Inject) -> None:
        """Put back the kernel values that other programs changed, once, and inject the drift."""
        is_held = self._yields()
        drift = await self._runtime.reconcile(
            observes=is_held or OBSERVE_DRIFT in self._observes, paused=self._paused()
        )
        if (found := self._runtime.open_cpus).cpus or self._has_open_cpus:
            await inject(found)
        self._has_open_cpus = bool(found.cpus)
        # An empty drift tells the core that a failed correction is over.
        if drift is not None or self._has_drift:
            await inject(drift or Drift())
        self._has_drift = drift is not None
        # Of itself the journal says when it falls behind and when it has caught up, and not at each look.
        drift = None if drift is None else replace(drift, journal="")
        seen_before, self._seen = self._seen, drift
        if drift is None or not (drift.knobs or drift.failed or drift.yielded or drift.withheld):
            return
        if drift == seen_before and (drift.observed or not (drift.knobs or drift.failed)):
            return
        outcome = "yielded" if is_held else "observed" if drift.observed else "corrected"
        by = {writer.path: writer.writer for writer in drift.writers}
        for knob in drift.knobs:
            self._drifts.labels(outcome, by.get(knob.path, "unknown")).inc()
        if seen_before is None or drift.yielded != seen_before.yielded:
            for knob in drift.yielded:
                self._drifts.labels("yielded", by.get(knob.path, "unknown")).inc()
        if seen_before is None or drift.withheld != seen_before.withheld:
            for _ in drift.withheld:
                self._drifts.labels("observed", "unknown").inc()
        self._drifts.labels("failed", "unknown").inc(len(drift.failed))
        paths, yielded, withheld = (
            [knob.path for knob in knobs[:_NAMED_MOST]] for knobs in (drift.knobs, drift.yielded, drift.withheld)
        )
        failed = drift.failed[:_NAMED_MOST]
        by_whom = [writer.evidence for writer in drift.writers[:_NAMED_MOST]]
        self._log.warning(
            "drift",
            corrected=len(drift.knobs),
            paths=paths,
            failed=failed,
            yielded=yielded,
            withheld=withheld,
            writers=by_whom,
        )

    async def run_teller(self, inject: Inject) -> None:
        """Hand the events of the reflex and the runtime to the service until cancelled."""
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            for event in self._take_news():
                await inject(event)

    def _turn_until(self, stop: threading.Event, loop: asyncio.AbstractEventLoop) -> None:
        period_s = self._clock.real_s(self._period_ms)
        quiet_s = period_s * _QUIET_PERIODS
        next_s = time.monotonic()
        while not stop.is_set():
            self._beat()
            if self._turn() and (self._to_tell or self._moved is not None):
                loop.call_soon_threadsafe(self._notify)
            # Without batch work a slower reflex harms nothing.
            next_s = max(next_s + (period_s if self._runtime.has_batch else quiet_s), time.monotonic())
            time.sleep(max(0.0, next_s - time.monotonic()))

    def _notify(self) -> None:
        if self._to_tell or self._moved is not None:
            self._has_news.set()

    def tick(self) -> None:
        """Run one turn of the reflex and collect the exits of replicas."""
        while self._advice:
            self._step(self._advice.popleft(), self._clock.now_ms())
        started_s = time.perf_counter()
        now_ms = self._clock.now_ms()
        self._check_lease(now_ms)
        self._check_ceiling(now_ms)
        reading = self._runtime.read_fast(now_ms)
        if reading is not None:
            unseen_before, self._reading = self._unseen(), reading
            self._zones.show(reading)
            if self._unseen() != unseen_before:
                self._log.warning("waits-unseen", groups=list(self._unseen()[:_NAMED_MOST]))
            self._is_blind = False
            if self._step(reading, now_ms):
                self._reflex_seconds.observe(time.perf_counter() - started_s)
        else:
            self._wake(now_ms)
        self._count_frozen(now_ms)
        for event in self._runtime.poll_exits():
            self._overused.discard((event.replica, event.attempt))
            self._tell(event)
        for overused in self._runtime.poll_overused():
            self._take_overused(overused)

    def _take_overused(self, overused: DiskOverused) -> None:
        """Let the core end the replica, or where that is only observed say once what it would do: it is found at each look."""
        attempt, is_observed = (overused.replica, overused.attempt), OBSERVE_DISK in self._observes
        if attempt not in self._overused:
            self._overused.add(attempt)
            self._disk_ends.labels("observed" if is_observed else "ended").inc()
            if is_observed:
                self._log.warning(
                    "disk-end-observed", replica=overused.replica, attempt=overused.attempt, detail=overused.detail
                )
        if not is_observed:
            self._tell(overused)

    def _count_frozen(self, now_ms: int) -> None:
        """Add the time since the last turn while batch work is frozen."""
        since_ms, is_frozen = self._frozen_until_ms, self._is_frozen()
        if since_ms is not None:
            self._frozen_seconds.inc(max(0, now_ms - since_ms) / 1000)
        self._frozen_until_ms = now_ms if is_frozen else None

    def _check_lease(self, now_ms: int) -> None:
        """Say on the machine itself that nobody renews the lease, because then nobody may hear what is published either."""
        is_unheld = self._reflex is not None and self._reflex.phase(now_ms) is not LeasePhase.HELD
        if is_unheld == self._is_unheld:
            return
        self._is_unheld = is_unheld
        if is_unheld:
            self._log.warning("lease-expired", detail=SENTENCES[Reason.LEASE_EXPIRED])
        else:
            self._log.info("lease-renewed", detail=SENTENCES[Reason.LEASE_RENEWED])

    def _check_ceiling(self, now_ms: int) -> None:
        """Once a second: whether the kernel still has the ceiling that the reflex wrote, and freezes batch work or does not."""
        is_due = not 0 <= now_ms - self._checked_at_ms < _CHECK_EVERY_MS
        if self._reflex is None or not is_due or not self._observes.isdisjoint((OBSERVE_CEILING, OBSERVE_NODE)):
            return
        self._checked_at_ms = now_ms
        try:
            found_mcpu, is_frozen = self._runtime.read_ceiling(), self._runtime.read_frozen()
        except (CgroupError, OSError):
            return
        written_mcpu = self._reflex.ceiling_mcpu
        if found_mcpu != written_mcpu and not self._yields():
            self._log.warning("ceiling-changed", written_mcpu=written_mcpu, found_mcpu=found_mcpu)
            self._step(CeilingFound(ceiling_mcpu=found_mcpu), now_ms)
        if is_frozen != self._is_frozen() and OBSERVE_FREEZE not in self._observes and not self._yields():
            self._log.warning("freeze-changed", found_frozen=is_frozen)
            self._step(FrozenFound(is_frozen=is_frozen), now_ms)

    def _wake(self, now_ms: int) -> None:
        """Wake the reflex at its deadline when there is no reading."""
        reflex = self._reflex
        due_ms = None if reflex is None else reflex.deadline_ms()
        if due_ms is None or due_ms > now_ms:
            return
        self._step(Wake(), now_ms)
        if not self._is_blind and self._reading is not None and now_ms - self._reading.at_ms >= self._policy.blind_ms:
            self._is_blind = True
            self._log.warning("load-unreadable")

    def _step(self, event: ReflexEvent, now_ms: int) -> bool:
        """Let the reflex handle an event and perform its effects. Returns whether a ceiling was written."""
        if self._reflex is None:
            return False
        wrote = False
        effects = self._reflex.handle(event, now_ms)
        while effects:
            effect = effects.pop(0)
            match effect:
                case SetCeiling():
                    cores = effect.has_whole_cores
                    result = self._set_ceiling(effect.ceiling_mcpu, effect.zones, has_whole_cores=cores)
                    wrote = wrote or isinstance(result, CeilingWritten)
                    self._count(result)
                    # A kernel takes its time; what follows from the write is timed from its end.
                    effects += self._reflex.handle(result, max(now_ms, self._clock.now_ms()))
                case SetFrozen():
                    answer = self._set_frozen(is_frozen=effect.is_frozen)
                    self._count_freeze(answer)
                    effects += self._reflex.handle(answer, now_ms)
                case CeilingMoved() | FrozenMoved():
                    self._moves.labels(effect.reason.value).inc()
                    self._tell(effect)
        return wrote

    def _set_ceiling(
        self, ceiling_mcpu: int, zones: tuple[ZoneCeiling, ...] | None = None, *, has_whole_cores: bool = False
    ) -> CeilingWritten | CeilingRefused:
        """Write the ceilings; None: those of the zones, and the whole cores, stay as they are."""
        if OBSERVE_CEILING in self._observes:
            cores = has_whole_cores
            return CeilingWritten(ceiling_mcpu=ceiling_mcpu, zones=zones or (), has_whole_cores=cores, observed=True)
        return self._runtime.set_ceiling(ceiling_mcpu, zones, has_whole_cores=has_whole_cores)

    def _set_frozen(self, *, is_frozen: bool) -> FreezeWritten | FreezeRefused:
        if not self._observes.isdisjoint(_NO_FREEZE):
            return FreezeWritten(is_frozen=is_frozen, observed=True)
        return self._runtime.set_frozen(is_frozen=is_frozen)

    def _count_freeze(self, result: FreezeWritten | FreezeRefused) -> None:
        if isinstance(result, FreezeRefused):
            self._freezes.labels("refused").inc()
            self._log.warning("freeze-refused", is_frozen=result.is_frozen, detail=result.detail)
        elif result.observed:
            self._freezes.labels("observed").inc()
            self._log.info("freeze-observed", is_frozen=result.is_frozen)
        else:
            self._freezes.labels("frozen" if result.is_frozen else "thawed").inc()
            self._log.warning("batch-frozen" if result.is_frozen else "batch-thawed")

    def _count(self, result: CeilingWritten | CeilingRefused) -> None:
        if isinstance(result, CeilingWritten):
            self._writes.inc(not result.observed)
            if result.sets_refused:
                self._refusals.inc()
                self._log.warning("cpu-sets-refused", detail=result.sets_refused)
            return
        self._refusals.inc()
        if self._reflex is not None and self._reflex.refusals == 0:
            self._log.warning("ceiling-refused", ceiling_mcpu=result.ceiling_mcpu, detail=result.detail)

    def _tell(self, event: Struct) -> None:
        with self._news:
            if isinstance(event, CeilingMoved):
                # The newer of two moves of the ceiling replaces the older one.
                self._moved = event
            else:
                self._to_tell.append(event)

    def _take_news(self) -> list[Struct]:
        with self._news:
            news = list(self._to_tell)
            self._to_tell.clear()
            if self._moved is not None:
                news.append(self._moved)
                self._moved = None
        return news
