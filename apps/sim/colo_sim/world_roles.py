"""The cluster's services in a simulated world: real cores, with what their shells do beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

import msgspec
from msgspec import Struct

from colo_common.adapters.store_memory import MemoryStore
from colo_common.events.effects import Effect, Publish
from colo_common.events.node import AllocatableChanged
from colo_common.events.requests import Hold, HoldsReply, ListHolds
from colo_common.model.invalid import InvariantBroken
from colo_common.model.placement import ZoneShare
from colo_common.ports import Row
from colo_common.runtime.core import Core, Subscription
from colo_evictor import core as evictor
from colo_evictor import policy as evictor_policy
from colo_evictor.shell import HEARS as EVICTOR_HEARS
from colo_evictor.watched import EvictorRow
from colo_jobs.core import JobsCore
from colo_jobs.effects import JobReloaded, JobRowsLoaded, LogRefused, LogUnreadable, ReloadJob, RequestsPublished
from colo_jobs.policy import JobsPolicy
from colo_jobs.records import JOB_KIND, PAGE_KIND, SPEC_KIND
from colo_jobs.shell import HEARS as JOBS_HEARS
from colo_overcommit import core as overcommit
from colo_overcommit import policy as overcommit_policy
from colo_overcommit.held_by_batch import HoldsListed
from colo_overcommit.shell import HEARS as OVERCOMMIT_HEARS
from colo_sim.event_queue import Work, at_once
from colo_sim.world_process import SimProcess, ask

__all__ = ["EvictorRole", "JobsRole", "OvercommitRole"]

#: A promise, and what is held of each zone.
Promises = Callable[[AllocatableChanged, dict[int, ZoneShare]], None]
_ASK_AGAIN_MS: Final = 500
# Small pages, so that lists change between them.
_HOLDS_PAGE: Final = 7
_LIST_AGAIN_MS: Final = 60_000


class JobsRole:
    """The jobs service."""

    hears: Sequence[Subscription] = JOBS_HEARS

    def __init__(self, process: SimProcess, store: MemoryStore, policy: JobsPolicy) -> None:
        self.jobs = JobsCore(policy)
        self.core = cast(Core, self.jobs)
        self.refused: list[LogRefused] = []
        self._process = process
        self._store = store

    def load(self) -> list[Struct]:
        """Every row."""
        specs, jobs, pages = (at_once(self._store.load(kind)) for kind in (SPEC_KIND, JOB_KIND, PAGE_KIND))
        return [JobRowsLoaded(specs=specs, jobs=jobs, pages=pages)]

    def perform(self, effect: Effect) -> Sequence[Struct]:
        """Tell, or read a job again."""
        match effect:
            case RequestsPublished():
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

    hears: Sequence[Subscription] = OVERCOMMIT_HEARS

    def __init__(
        self,
        process: SimProcess,
        schedulers: Sequence[SimProcess],
        judge: Promises,
        policy: overcommit_policy.OvercommitPolicy,
    ) -> None:
        self.overcommit = overcommit.OvercommitCore(policy)
        self.core = cast(Core, _Judged(self.overcommit, judge))
        self._process = process
        self._schedulers = schedulers

    def load(self) -> list[Struct]:
        """Nothing is stored."""
        return []

    def perform(self, effect: Effect) -> Sequence[Struct]:
        """There are no effects of its own."""
        raise InvariantBroken("the overcommit service performs no such effect", effect=type(effect).__name__)

    def begin(self) -> Sequence[Work]:
        """Ask for what is held."""
        return (self._reconcile(),)

    def _reconcile(self) -> Work:
        while True:
            asked_at_ms = self._process.clock.now_ms()
            holds: list[Hold] = []
            totals: set[int] = set()
            while True:
                request = ListHolds(offset=len(holds), limit=_HOLDS_PAGE)
                page = yield ask(self._process.bus, self._process, self._schedulers, request)
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

    hears: Sequence[Subscription] = EVICTOR_HEARS

    def __init__(self, store: MemoryStore, policy: evictor_policy.EvictorPolicy) -> None:
        self.evictor = evictor.EvictorCore(policy)
        self.core = cast(Core, self.evictor)
        self._store = store

    def load(self) -> list[Struct]:
        """Victims on their way out and cool-downs."""
        stored = [
            evictor.StoredNode(node=row.id, version=row.version, row=msgspec.json.decode(row.value, type=EvictorRow))
            for row in at_once(self._store.load(evictor.ROW_KIND))
        ]
        return [evictor.EvictorRowsLoaded(rows=tuple(stored))]

    def perform(self, effect: Effect) -> Sequence[Struct]:
        """There are no effects of its own."""
        raise InvariantBroken("the evictor performs no such effect", effect=type(effect).__name__)

    def begin(self) -> Sequence[Work]:
        """Nothing."""
        return ()
