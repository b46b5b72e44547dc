"""A scheduler in a simulated world: the real core, with what its shell does beside it. Alone, or one of several."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Final, cast

from msgspec import Struct, structs

from colo_common.events.effects import Effect
from colo_common.events.requests import PendingReplicas, PendingReply
from colo_common.events.started import StartedReplicas, StartedReply
from colo_common.model.invalid import InvariantBroken
from colo_common.ports import Unavailable
from colo_common.runtime.core import Core, Subscription
from colo_scheduler import policy as scheduler_policy
from colo_scheduler.core import AskPending, SchedulerCore
from colo_scheduler.events import AskStarted, StartedKnown
from colo_scheduler.ledger.port import (
    CALL_MAX,
    Attempt,
    CommitLedger,
    ConfirmHolds,
    HoldsReleased,
    LedgerAnswered,
    LedgerChanges,
    LedgerLoaded,
    LedgerRefused,
    LedgerRows,
    LoadLedgerRows,
    NodeAnswer,
    RefreshLedger,
    ReleaseHolds,
)
from colo_scheduler.ledger.shards import Fence, ShardsHeld
from colo_scheduler.shell import HEARS, HEARS_SHARED
from colo_sim.event_queue import Until, Wakeup, Work
from colo_sim.world_ledger import WorldLedger
from colo_sim.world_process import SimProcess, ask

__all__ = ["SchedulerRole"]

#: Answers of the ledger, and the core that is about to hear them, unless they are lost.
Committed = Callable[[SchedulerCore, Sequence[NodeAnswer]], None]
_PAGE: Final = 7
_PAGE_ROUNDS: Final = 3
_ASK_AGAIN_MS: Final = 500
_COMMIT_WITHIN_MS: Final = 2_000
_LEASE_MS: Final = 5_000
_ROTATIONS: Final = 1_000


class SchedulerRole:
    """The scheduler. `committed` is called with every answer of the ledger, also with one that is lost.

    With `shards` above 0 it holds some of them by a lease, under a name that is new at each start.
    """

    def __init__(
        self,
        process: SimProcess,
        ledger: WorldLedger,
        jobs: SimProcess,
        committed: Committed,
        policy: scheduler_policy.SchedulerPolicy,
        shards: int,
    ) -> None:
        self.hears: Sequence[Subscription] = HEARS_SHARED if shards else HEARS
        self._owner = f"{process.key}-{process.boots}"
        if shards:
            policy = structs.replace(policy, tie_rotation=1 + zlib.crc32(self._owner.encode()) % _ROTATIONS)
        self.scheduler = SchedulerCore(policy, shards=shards)
        self.core = cast(Core, self.scheduler)
        self._process = process
        self._ledger = ledger
        self._jobs = jobs
        self._committed = committed
        self._ask = Wakeup()
        self._is_asking = not shards
        self._starts: dict[Attempt, None] = {}
        self._ask_starts = Wakeup()

    def load(self) -> list[Struct]:
        """Every row of the ledger."""
        floor, names = self._ledger.floor(), sorted(self._ledger.changes())
        pages = range(0, len(names), CALL_MAX)
        rows = [LedgerRows(rows=self._ledger.rows(names[at : at + CALL_MAX])) for at in pages]
        return [*rows, LedgerLoaded(floor=floor)]

    def perform(self, effect: Effect) -> Sequence[Struct]:
        """Write to the ledger or read it."""
        match effect:
            case CommitLedger():
                return [self._commit(effect)]
            case ReleaseHolds(attempts=attempts):
                return [HoldsReleased(released=self._ledger.release(attempts))]
            case ConfirmHolds(attempts=attempts):
                self._ledger.confirm(attempts)
                return []
            case LoadLedgerRows(nodes=nodes):
                return [LedgerRows(rows=self._ledger.rows(nodes))]
            case RefreshLedger():
                floor = self._ledger.floor()
                return [LedgerChanges(changes=tuple(sorted(self._ledger.changes().items())), floor=floor)]
            case AskPending():
                self._is_asking = True
                self._ask.give()
                return []
            case AskStarted(attempts=attempts):
                self._starts |= dict.fromkeys(attempts)
                self._ask_starts.give()
                return []
            case _:
                raise InvariantBroken("the scheduler performs no such effect", effect=type(effect).__name__)

    def _commit(self, effect: CommitLedger) -> LedgerAnswered | LedgerRefused:
        if self._process.event_queue.now_ms > self._process.decided_at_ms + _COMMIT_WITHIN_MS:
            self._process.note("commits   too late")
            return LedgerRefused(effect=effect, is_late=True)
        written = partial(self._committed, self.scheduler)
        owner = effect.written_by(self._owner)
        return LedgerAnswered(answers=self._ledger.commit(effect.reserves, effect.fences, owner, written))

    def begin(self) -> Sequence[Work]:
        """Ask for the waiting replicas and for what has started whenever that is due, and keep the leases."""
        if self.scheduler.shards.count:
            return (self._keep_asking(), self._keep_asking_starts(), self._keep_leasing())
        return (self._keep_asking(), self._keep_asking_starts())

    def _keep_leasing(self) -> Work:
        """Renew three times in the time of a lease; what could not be renewed in time is not ours any more."""
        event_queue, lost_at_ms = self._process.event_queue, 0
        held: tuple[Fence, ...] = ()
        fences: tuple[Fence, ...]
        while True:
            asked_at_ms = event_queue.now_ms
            try:
                fences = self._ledger.lease(self._owner, _LEASE_MS, self.scheduler.shards.count)
            except Unavailable:
                fences = held if event_queue.now_ms < lost_at_ms else ()
            else:
                lost_at_ms = asked_at_ms + _LEASE_MS
            if fences != held:
                self._process.note(f"holds     {len(fences)} shards")
                held = fences
                self._process.inject(ShardsHeld(fences=fences))
            yield _LEASE_MS // 3

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
                        self._process.bus, self._process, (self._jobs,), PendingReplicas(offset=offset, limit=_PAGE)
                    )
                    if not isinstance(page, PendingReply):
                        self._is_asking = True
                        break
                    self._process.inject(page)
                    totals.append(page.total)
                    offset += len(page.placement_requests)
                    if not page.placement_requests or offset >= page.total:
                        break
                if self._is_asking or totals[0] == totals[-1]:
                    break
            if self._is_asking:
                yield _ASK_AGAIN_MS

    def _keep_asking_starts(self) -> Work:
        while True:
            if not self._starts:
                yield Until(self._ask_starts)
            part = tuple(islice(self._starts, _PAGE))
            answer = yield ask(self._process.bus, self._process, (self._jobs,), StartedReplicas(attempts=part))
            if not isinstance(answer, StartedReply):
                yield _ASK_AGAIN_MS
                continue
            for attempt in part:
                self._starts.pop(attempt, None)
            known = StartedKnown(started=answer.started, over=answer.over, waiting=answer.waiting)
            self._process.inject(known)
