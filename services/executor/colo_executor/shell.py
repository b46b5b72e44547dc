"""Connects the two cores with a runtime: performs what the executor core says, and keeps the reflex going whatever waits."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog
from msgspec import Struct

from colo_common.events.effects import Effect, Wake
from colo_common.model.invalid import InvariantBroken
from colo_common.ports import Clock
from colo_common.runtime.metrics import Metrics
from colo_executor.local import (
    CeilingMoved,
    CeilingRefused,
    CeilingWritten,
    LaunchFailed,
    LaunchReplica,
    RememberEnd,
    RememberPlacement,
    RenewLease,
    SetCeiling,
    SignalReplica,
)
from colo_executor.reflex import Reflex, ReflexEffect, ReflexEvent, ReflexPolicy
from colo_executor.runtime import Runtime

__all__ = ["ExecutorShell", "SpanSink"]

_TOLD_MOST: Final = 10_000

#: Takes a finished span: name, parent traceparent, start and end (wall microseconds), attributes, error.
SpanSink = Callable[[str, str, int, int, dict[str, str], str], None]
Inject = Callable[[Struct], Awaitable[None]]


def _no_span(name: str, parent: str, start_us: int, end_us: int, attributes: dict[str, str], error: str) -> None:
    return


class ExecutorShell:
    """`perform` and `load` are for the generic service; `run_reflex` is a task of its own.

    The reflex never waits for the network: it reads, decides and writes here, and what it has to say lies ready for whoever
    carries it to the service.
    """

    def __init__(
        self,
        runtime: Runtime,
        clock: Clock,
        *,
        policy: ReflexPolicy,
        period_ms: int,
        metrics: Metrics,
        span: SpanSink = _no_span,
    ) -> None:
        self._runtime = runtime
        self._clock = clock
        self._policy = policy
        self._period_ms = period_ms
        self._span = span
        self._reflex: Reflex | None = None
        self._to_tell: deque[Struct] = deque(maxlen=_TOLD_MOST)
        self._has_news = asyncio.Event()
        self._ready = asyncio.Event()
        self._log = structlog.get_logger("executor")
        self._is_blind = False
        self._ceiling_gauge = metrics.gauge("colo_executor_batch_ceiling_mcpu", "the batch tier's CPU ceiling")
        self._online_gauge = metrics.gauge("colo_executor_online_used_mcpu", "CPU use of everything but batch work")
        self._batch_gauge = metrics.gauge("colo_executor_batch_used_mcpu", "CPU use of batch work")
        self._writes = metrics.counter("colo_executor_ceiling_writes_total", "ceilings written")
        self._refusals = metrics.counter("colo_executor_ceiling_refusals_total", "ceilings that the kernel refused")
        self._reflex_seconds = metrics.histogram(
            "colo_executor_reflex_seconds", "from the beginning of a fast reading to the ceiling written"
        )
        self._launches = metrics.counter("colo_executor_launches_total", "attempts to start a replica", ("outcome",))

    @property
    def reflex(self) -> Reflex | None:
        """The reflex, once the machine is adopted."""
        return self._reflex

    # ------------------------------------------------------------ for the service

    async def load(self) -> Sequence[Struct]:
        """Adopt the machine; the first event of the executor core."""
        now_ms = self._clock.now_ms()
        adopted = await self._runtime.adopt(now_ms)
        self._reflex = Reflex(
            self._policy,
            capacity_mcpu=self._runtime.capacity_mcpu,
            now_ms=now_ms,
            ceiling_mcpu=self._runtime.ceiling_mcpu,
        )
        self._log.info("adopted", replicas=len(adopted.replicas), waiting=len(adopted.waiting))
        self._ready.set()
        return [adopted]

    async def perform(self, effect: Effect) -> Sequence[Struct]:
        """Do one effect of the executor core."""
        match effect:
            case LaunchReplica():
                return [await self._launch(effect)]
            case SignalReplica():
                self._log.info("signal", replica=effect.replica, attempt=effect.attempt, signal=effect.signal)
                await self._runtime.signal(effect)
            case RememberPlacement() | RememberEnd():
                await self._runtime.remember(effect)
            case RenewLease():
                self._step(effect)
            case _:
                raise InvariantBroken("the executor performs no such effect", effect=type(effect).__name__)
        return []

    async def leave(self) -> Sequence[Struct]:
        """Put the machine back; what ended by it. Only for a service that restores when it leaves."""
        self._ready.clear()
        return [*self._to_tell, *await self._runtime.restore()]

    async def _launch(self, effect: LaunchReplica) -> Struct:
        placement = effect.placement
        start_us = self._clock.wall_us()
        if effect.sent_us and placement.traceparent:
            self._span("command", placement.traceparent, effect.sent_us, start_us, {"node": placement.node}, "")
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
        if placement.traceparent:
            attributes = {"node": placement.node, "replica": placement.replica, "attempt": str(placement.attempt)}
            self._span("apply", placement.traceparent, start_us, self._clock.wall_us(), attributes, error)
        return result

    # ------------------------------------------------------------ the reflex

    async def run_reflex(self) -> None:
        """Read, decide and write every period until cancelled. A late turn is not made up for."""
        loop = asyncio.get_running_loop()
        period_s = self._clock.real_s(self._period_ms)
        await self._ready.wait()
        next_s = loop.time()
        while True:
            if self._ready.is_set():
                self.tick()
            next_s = max(next_s + period_s, loop.time())
            await asyncio.sleep(next_s - loop.time())

    async def run_teller(self, inject: Inject) -> None:
        """Carry what the reflex and the runtime have to say to the service until cancelled."""
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            while self._to_tell:
                await inject(self._to_tell.popleft())

    def tick(self) -> None:
        """One turn of the reflex, and a look at what ended."""
        started_s = time.perf_counter()
        reading = self._runtime.read_fast(self._clock.now_ms())
        if reading is not None:
            self._online_gauge.set(reading.online_used_mcpu)
            self._batch_gauge.set(reading.batch_used_mcpu)
            self._is_blind = False
            if self._step(reading):
                self._reflex_seconds.observe(time.perf_counter() - started_s)
        reflex = self._reflex
        due_ms = None if reflex is None else reflex.deadline_ms()
        if due_ms is not None and due_ms <= self._clock.now_ms():
            if reading is None and not self._is_blind:
                self._is_blind = True
                self._log.warning("load-unreadable")
            self._step(Wake())
        for exited in self._runtime.poll_exits():
            self._tell(exited)

    def _step(self, event: ReflexEvent) -> bool:
        """Let the reflex handle an event and do what it says, the writing included; whether a ceiling was written."""
        if self._reflex is None:
            return False
        wrote = False
        effects: deque[ReflexEffect] = deque(self._reflex.handle(event, self._clock.now_ms()))
        while effects:
            effect = effects.popleft()
            match effect:
                case SetCeiling():
                    result = self._runtime.set_ceiling(effect.ceiling_mcpu)
                    wrote = wrote or isinstance(result, CeilingWritten)
                    self._count(result)
                    effects.extend(self._reflex.handle(result, self._clock.now_ms()))
                case CeilingMoved():
                    self._tell(effect)
        return wrote

    def _count(self, result: CeilingWritten | CeilingRefused) -> None:
        if isinstance(result, CeilingWritten):
            self._writes.inc()
            self._ceiling_gauge.set(result.ceiling_mcpu)
            return
        self._refusals.inc()
        if self._reflex is not None and self._reflex.refusals == 0:
            self._log.warning("ceiling-refused", ceiling_mcpu=result.ceiling_mcpu, detail=result.detail)

    def _tell(self, event: Struct) -> None:
        # Of two moves of the ceiling only the newer one matters.
        if isinstance(event, CeilingMoved) and self._to_tell and isinstance(self._to_tell[-1], CeilingMoved):
            self._to_tell.pop()
        self._to_tell.append(event)
        self._has_news.set()
