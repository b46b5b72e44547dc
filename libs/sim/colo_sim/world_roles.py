"""The cluster's services in a simulated world: real cores, with what their shells do beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

import msgspec
from msgspec import Struct

from colo_common.adapters.store_memory import MemoryStore
from colo_common.events.effects import Effect, Publish
from colo_common.events.node import AllocatableChanged
from colo_common.events.requests import Hold, HoldsReply, ListHolds, PendingReplicas, PendingReply
from colo_common.model.invalid import InvariantBroken
from colo_common.model.placement import ZoneShare
from colo_common.ports import Row
from colo_common.runtime.core import Core, Hearing
from colo_evictor import core as evictor
from colo_evictor import policy as evictor_policy
from colo_evictor.shell import HEARS as EVICTOR_HEARS
from colo_evictor.watched import NodeRow as EvictorRow
from colo_jobs.core import JobsCore
from colo_jobs.effects import JobReloaded, LogRefused, LogUnreadable, ReloadJob, RowsLoaded, WantsSaid
from colo_jobs.policy import JobsPolicy
from colo_jobs.records import JOB_KIND, PAGE_KIND, SPEC_KIND
from colo_jobs.shell import HEARS as JOBS_HEARS
from colo_overcommit import core as overcommit
from colo_overcommit import policy as overcommit_policy
from colo_overcommit.held import HoldsListed
from colo_overcommit.shell import HEARS as OVERCOMMIT_HEARS
from colo_scheduler import policy as scheduler_policy
from colo_scheduler.core import AskPending, SchedulerCore
from colo_scheduler.ledger import (
    CALL_MAX,
    CommitLedger,
    ConfirmHolds,
    HoldsReleased,
    LedgerAnswered,
    LedgerChanges,
    LedgerLoaded,
    LedgerRows,
    LoadRows,
    RefreshLedger,
    ReleaseHolds,
)
from colo_scheduler.shell import HEARS as SCHEDULER_HEARS
from colo_sim.agenda import Signal, Until, Work, at_once
from colo_sim.world_ledger import WorldLedger
from colo_sim.world_process import Process, ask

__all__ = ["EvictorRole", "JobsRole", "OvercommitRole", "SchedulerRole"]

#: A promise, and what is held of each zone.
Promises = Callable[[AllocatableChanged, dict[int, ZoneShare]], None]
_PAGE: Final = 7
_PAGE_ROUNDS: Final = 3
_ASK_AGAIN_MS: Final = 500
# Small pages, so that lists change between them.
_HOLDS_PAGE: Final = 7
_LIST_AGAIN_MS: Final = 60_000


class JobsRole:
    """The jobs service."""

    hears: Sequence[Hearing] = JOBS_HEARS

    def __init__(self, process: Process, store: MemoryStore, policy: JobsPolicy) -> None:
        self.jobs = JobsCore(policy)
        self.core = cast(Core, self.jobs)
        self.refused: list[LogRefused] = []
        self._process = process
        self._store = store

    def load(self) -> list[Struct]:
        """Every row."""
        specs, jobs, pages = (at_once(self._store.load(kind)) for kind in (SPEC_KIND, JOB_KIND, PAGE_KIND))
        return [RowsLoaded(specs=specs, jobs=jobs, pages=pages)]

    def perform(self, effect: Effect) -> Sequence[Struct]:
        """Tell, or read a job again."""
        match effect:
            case WantsSaid():
                return []
            case LogRefused():
                self.refused.append(effect)
                self._process.note(f"refuses   {effect.machine} {effect.state} {effect.event}")
                return []
            case ReloadJob(job=job):
                return [self._reloaded(job)]
            case LogUnreadable(why=why):
                raise InvariantBroken("the jobs service cannot read what it wrote", why=why)
            case _:
                raise InvariantBroken("the jobs service performs no such effect", effect=type(effect).__name__)

    def begin(self) -> Sequence[Work]:
        """Nothing."""
        return ()

    def _reloaded(self, job: str) -> JobReloaded:
        def of(kind: str) -> tuple[Row, ...]:
            return tuple(r for r in at_once(self._store.load(kind)) if r.id == job or r.id.startswith(f"{job}/"))

        return JobReloaded(job=job, specs=of(SPEC_KIND), jobs=of(JOB_KIND), pages=of(PAGE_KIND))


class SchedulerRole:
    """The scheduler. `committed` is called with every answer of the ledger before the core hears it."""

    hears: Sequence[Hearing] = SCHEDULER_HEARS

    def __init__(
        self,
        process: Process,
        ledger: WorldLedger,
        jobs: Process,
        committed: Callable[[SchedulerCore, LedgerAnswered], None],
        policy: scheduler_policy.Policy,
    ) -> None:
        self.scheduler = SchedulerCore(policy)
        self.core = cast(Core, self.scheduler)
        self._process = process
        self._ledger = ledger
        self._jobs = jobs
        self._committed = committed
        self._ask = Signal()
        self._is_asking = True

    def load(self) -> list[Struct]:
        """Every row of the ledger."""
        names = sorted(self._ledger.changes())
        pages = range(0, len(names), CALL_MAX)
        return [*(LedgerRows(rows=self._ledger.rows(names[at : at + CALL_MAX])) for at in pages), LedgerLoaded()]

    def perform(self, effect: Effect) -> Sequence[Struct]:
        """Write to the ledger or read it."""
        match effect:
            case CommitLedger(reserves=reserves):
                answered = LedgerAnswered(answers=self._ledger.commit(reserves))
                self._committed(self.scheduler, answered)
                return [answered]
            case ReleaseHolds(attempts=attempts):
                return [HoldsReleased(released=self._ledger.release(attempts))]
            case ConfirmHolds(attempts=attempts):
                self._ledger.confirm(attempts)
                return []
            case LoadRows(nodes=nodes):
                return [LedgerRows(rows=self._ledger.rows(nodes))]
            case RefreshLedger():
                return [LedgerChanges(changes=tuple(sorted(self._ledger.changes().items())))]
            case AskPending():
                self._is_asking = True
                self._ask.give()
                return []
            case _:
                raise InvariantBroken("the scheduler performs no such effect", effect=type(effect).__name__)

    def begin(self) -> Sequence[Work]:
        """Ask for the waiting replicas whenever that is due."""
        return (self._keep_asking(),)

    def _keep_asking(self) -> Work:
        while True:
            if not self._is_asking:
                yield Until(self._ask)
            self._is_asking = False
            for _ in range(_PAGE_ROUNDS):
                totals = []
                offset = 0
                while True:
                    page = yield ask(
                        self._process.bus, self._process, self._jobs, PendingReplicas(offset=offset, limit=_PAGE)
                    )
                    if not isinstance(page, PendingReply):
                        self._is_asking = True
                        break
                    self._process.inject(page)
                    totals.append(page.total)
                    offset += len(page.wants)
                    if not page.wants or offset >= page.total:
                        break
                if self._is_asking or totals[0] == totals[-1]:
                    break
            if self._is_asking:
                yield _ASK_AGAIN_MS


class _Judged:
    """The overcommit core, whose every promise is compared with what it knows to be held at that moment."""

    def __init__(self, core: overcommit.OvercommitCore, judge: Promises) -> None:
        self._core = core
        self._judge = judge
        self.deadline_ms = core.deadline_ms
        self.check = core.check

    def handle(self, event: overcommit.Event, now_ms: int) -> list[Effect]:
        effects = self._core.handle(event, now_ms)
        for effect in effects:
            if isinstance(effect, Publish) and isinstance(effect.fact, AllocatableChanged):
                self._judge(effect.fact, self._core.nodes[effect.fact.node].held.by_zone())
        return effects


class OvercommitRole:
    """The overcommit service. `judge` is shown every promise beside what is held of each zone."""

    hears: Sequence[Hearing] = OVERCOMMIT_HEARS

    def __init__(self, process: Process, scheduler: Process, judge: Promises, policy: overcommit_policy.Policy) -> None:
        self.overcommit = overcommit.OvercommitCore(policy)
        self.core = cast(Core, _Judged(self.overcommit, judge))
        self._process = process
        self._scheduler = scheduler

    def load(self) -> list[Struct]:
        """Nothing is stored."""
        return []

    def perform(self, effect: Effect) -> Sequence[Struct]:
        """There are no effects of its own."""
        raise InvariantBroken("the overcommit service performs no such effect", effect=type(effect).__name__)

    def begin(self) -> Sequence[Work]:
        """Ask for what is held."""
        return (self._keep_in_step(),)

    def _keep_in_step(self) -> Work:
        while True:
            asked_at_ms = self._process.clock.now_ms()
            holds: list[Hold] = []
            totals: set[int] = set()
            while True:
                request = ListHolds(offset=len(holds), limit=_HOLDS_PAGE)
                page = yield ask(self._process.bus, self._process, self._scheduler, request)
                if not isinstance(page, HoldsReply):
                    break
                totals.add(page.total)
                holds += page.holds
                if not page.holds or len(holds) >= page.total:
                    break
            if isinstance(page, HoldsReply):
                self._process.inject(
                    HoldsListed(holds=tuple(holds), asked_at_ms=asked_at_ms if len(totals) == 1 else 0)
                )
            yield _LIST_AGAIN_MS if isinstance(page, HoldsReply) else _ASK_AGAIN_MS


class EvictorRole:
    """The evictor."""

    hears: Sequence[Hearing] = EVICTOR_HEARS

    def __init__(self, store: MemoryStore, policy: evictor_policy.Policy) -> None:
        self.evictor = evictor.EvictorCore(policy)
        self.core = cast(Core, self.evictor)
        self._store = store

    def load(self) -> list[Struct]:
        """Victims on their way out and cool-downs."""
        stored = [
            evictor.StoredNode(node=row.id, version=row.version, row=msgspec.json.decode(row.value, type=EvictorRow))
            for row in at_once(self._store.load(evictor.ROW_KIND))
        ]
        return [evictor.RowsLoaded(rows=tuple(stored))]

    def perform(self, effect: Effect) -> Sequence[Struct]:
        """There are no effects of its own."""
        raise InvariantBroken("the evictor performs no such effect", effect=type(effect).__name__)

    def begin(self) -> Sequence[Work]:
        """Nothing."""
        return ()
