"""The core's part of reservations: keeps their rows, requests places, places owners in them, releases them.

The ledger keeps a reservation's place whole for as long as it is held, and each owner's place beside it; the hold beside the owners
follows from these rows. In the scheduler's own books the hold of a reservation shrinks and grows with its owners. Rows are written
by Records of their own: the core's other decisions must not fail with a Record that a store refuses.

The ledger is the truth about places, a row about the rest. A row's place is used once the ledger's row of that node was read too; a
place in the ledger without a row is released once a read confirms that there is no row. So all schedulers reach the same state,
whichever writes first: a scheduler whose write loses reads the other's row and adds the ledger's places and uses.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct, structs

from colo_common.events.effects import Conflict, Effect, Publish, Record, Wake, Write
from colo_common.events.job import PlacementRequest
from colo_common.events.node import FreshnessChanged
from colo_common.events.placement import PlacementsReleased
from colo_common.events.reservation import ReservationChanged
from colo_common.model.freshness import Freshness
from colo_common.model.invalid import InvalidInput
from colo_common.model.partition import Partitions, PartitionsHeld
from colo_common.model.placement import Attempt, Placement, attempt_key
from colo_common.model.reservation import ReservationSpec
from colo_scheduler.cluster.cluster import Cluster, View
from colo_scheduler.commit.commit import Commits, CommitTurn, load_rows, placement_of
from colo_scheduler.ledger.port import HoldsReleased, LedgerAnswered, LedgerRows, name_of
from colo_scheduler.placement.choice import Choice
from colo_scheduler.placement.decide import ClassDecision
from colo_scheduler.placement.report import Report
from colo_scheduler.requests.queue import Parked, RequestQueue
from colo_scheduler.requests.request_class import RequestClass
from colo_scheduler.reservations.book import ReservationBook
from colo_scheduler.reservations.expiry import last_ms
from colo_scheduler.reservations.fit import policies_conflict
from colo_scheduler.reservations.lifecycle import ReservationPhase
from colo_scheduler.reservations.owner_search import Taken, serve
from colo_scheduler.reservations.owners import Claimant, claimant_of
from colo_scheduler.reservations.preallocation_search import place_over, running_owners
from colo_scheduler.reservations.remainder import remainder_of
from colo_scheduler.reservations.report import report_for_owner
from colo_scheduler.reservations.reservation import BookChange, HoldChanged, PhaseChanged, Reservation, attempt_of
from colo_scheduler.reservations.rows import (
    DELETED,
    KIND,
    AskJobs,
    JobsOver,
    LoadReservations,
    ReservationsLoaded,
    encode_row,
)
from colo_scheduler.reservations.snapshot import ReservationSnapshot, left_of

__all__ = ["ASK_JOBS_MS", "ReservationController"]

ASK_JOBS_MS: Final = 15_000
"""The interval of asking whether a reservation's only owner has ended."""
_JOBS_ASKED: Final = 50
_ROWS_A_TURN: Final = 200
_JOBS_LOOKED_AT: Final = 50
_FOR_EVER_MS: Final = (1 << 53) - 1
_ROWS_A_CALL: Final = 200


class ReservationController:
    """The book of reservations beside the ledger, the commits in flight, and the core's pending work.

    `end` releases an attempt for good. Pending are the reservations whose rows have to be written, published or read, and the nodes
    whose ledger rows have to be read.
    """

    def __init__(
        self,
        cluster: Cluster,
        queue: RequestQueue,
        commits: Commits,
        counts: Counter[str],
        shards: Partitions,
        end: Callable[[Attempt], None],
    ) -> None:
        self.book = ReservationBook()
        self.places = ReservationSnapshot(self.book)
        self._cluster = cluster
        self._queue = queue
        self._commits = commits
        self._counts = counts
        self._shards = shards
        self._end = end
        self._versions: dict[str, int] = {}
        self._unwritten: dict[str, None] = {}
        self._redelivery: dict[str, None] = {}
        self._unread: dict[str, None] = {}
        self._unloaded: dict[str, None] = {}
        # Whether a waiting reservation may be in no queue, and whether owners may find a new place.
        self._is_unqueued = False
        self._has_news = False
        # Rows with a place, until the ledger's row of that node is read; holds of reservations that are not in the book.
        self._unheld: dict[str, Reservation] = {}
        self._strays: dict[Attempt, None] = {}
        self._claimants: dict[Attempt, Claimant] = {}
        self._seeking: dict[str, tuple[Attempt, str]] = {}
        self._over: dict[str, tuple[Placement, tuple[Placement, ...]]] = {}
        self._jobs_at_ms: int | None = None
        self._jobs_asked = ""

    # ---- reads

    @property
    def is_empty(self) -> bool:
        """Whether there is no reservation, nothing in flight, and nothing to read or write."""
        is_under_way = bool(self._seeking or self.places.under_way or self.has_pending_output)
        is_reading = bool(self._unheld or self._strays)
        return not (is_reading or self._versions or is_under_way or len(self.book))

    @property
    def has_pending_output(self) -> bool:
        """Whether the next Wake has something to write, publish or read."""
        return bool(self._unwritten or self._redelivery or self._unread or self._unloaded or self._has_news)

    def deadline_ms(self) -> int | None:
        """When `wake` has work to do, apart from pending output."""
        if self.is_empty:
            return None
        snapshots = [at for at in (self.book.deadline_ms(), self._jobs_at_ms) if at is not None]
        return min(snapshots, default=None)

    # ---- requests

    def create(self, spec: ReservationSpec, now_ms: int) -> list[Effect]:
        """Take a reservation; returns the Record that keeps it. Raises InvalidInput as the book does."""
        if not self.book.create(spec, now_ms):
            return []
        self._counts["reservations_created"] += 1
        self._is_unqueued = True
        self._queue_requests()
        self._plan_to_ask(now_ms)
        return self._row(spec.name, now_ms)

    def delete(self, name: str, now_ms: int) -> list[Effect]:
        """Delete a reservation; returns the Record that removes it. Raises InvalidInput when there is none."""
        found = self.book.find(name)
        changes = self.book.delete(name)
        if found is None:
            return []
        self._counts["reservations_deleted"] += 1
        self._give_up(found)
        for change in changes:
            self._take_change(change)
        self._unwritten.pop(name, None)
        self._redelivery.pop(name, None)
        fact = self._fact(found, DELETED, now_ms)
        return [*self._record(name), fact]

    # ---- placement requests

    def narrowed(self, request: RequestClass) -> RequestClass:
        """The class of a reservation's replica, without the nodes whose reservations conflict with its policy."""
        found = self.book.find(request.reserves)
        if found is None:
            return request
        conflicting = set(self.book.conflicting_nodes(found.spec))
        for name, (_, node) in self._seeking.items():
            other = self.book.find(name)
            if (
                other is not None
                and name != request.reserves
                and policies_conflict(found.spec.policy, [other.spec.policy])
            ):
                conflicting.add(node)
        if not conflicting:
            return request
        return request._replace(avoid=(*request.avoid, *((node, _FOR_EVER_MS) for node in sorted(conflicting))))

    def chosen(
        self,
        view: View,
        request: RequestClass,
        placement_requests: Sequence[PlacementRequest],
        decision: ClassDecision,
        turn: CommitTurn,
    ) -> ClassDecision:
        """The decision on a class, completed for reservations: a reservation's replica may be placed over running owners.

        `request` is the class of a reservation's replica, as `narrowed` returned it.
        """
        if not decision.choices and (over := self._take_over(view, request, placement_requests[0], turn)) is not None:
            decision = decision._replace(choices=(over,))
        if decision.choices:
            self._seek(placement_requests[0], decision.choices[0])
        return decision

    def _seek(self, placement_request: PlacementRequest, choice: Choice) -> None:
        """Place a reservation's replica here, if the ledger agrees."""
        node = self._cluster.nodes[choice.row].name
        name, attempt = name_of(placement_request.replica), (placement_request.replica, placement_request.attempt)
        self._seeking[name] = (attempt, node)
        if choice.inside:
            held = self._commits.held
            self._over[name] = (held[attempt].placement, tuple(held[each].placement for each in choice.inside))
            self._resize_over()

    def _take_over(
        self, view: View, request: RequestClass, placement_request: PlacementRequest, turn: CommitTurn
    ) -> Choice | None:
        """A place over running owners, where the reservation may have one.

        The commit asks the ledger for the whole place; the part that no owner holds is held on the node.
        """
        found = self.book.find(request.reserves)
        if found is None or not found.spec.pre_allocates or not request.is_admitted:
            return None
        pending = {(owner.replica, owner.attempt) for _, owners in self._over.values() for owner in owners}
        held = self._commits.held
        owners = running_owners(found.spec, held, lambda each: each in pending or self.book.is_used_by(each))
        place = place_over(view, request, found.spec, owners)
        if place is None:
            return None
        self._commits.place(turn, placement_request, place.whole, subtracted=place.more)
        return place.whole

    def _resize_over(self) -> None:
        """Hold for each reservation over running owners the part that they leave, until the ledger has its place."""
        commits = self._commits
        for name, (place, owners) in self._over.items():
            here = tuple(owner for owner in owners if (owner.replica, owner.attempt) in commits.held)
            self._over[name] = (place, here)
            commits.change((place.replica, place.attempt), left_of(place, remainder_of(place, here)))

    def serve(
        self, view: View, request: RequestClass, placement_requests: Sequence[PlacementRequest], turn: CommitTurn
    ) -> tuple[list[Taken], list[PlacementRequest]]:
        """Place owners where their reservations hold room for them. Returns the placed owners, and the requests without a place."""

        def take(taken: Taken) -> None:
            node = self._cluster.nodes[taken.choice.row]
            self._claimants[(taken.placement_request.replica, taken.placement_request.attempt)] = claimant_of(
                taken.placement_request
            )
            self.places.use(placement_of(taken.placement_request, node, taken.choice, view.now_ms))
            self._resize(taken.reservation)
            self._commits.place(turn, taken.placement_request, taken.choice)

        return serve(self.places, view, request, placement_requests, take)

    def report(self, view: View, request: RequestClass, placement_request: PlacementRequest) -> Report:
        """Why a request that names a reservation is not placed."""
        return report_for_owner(self.places, view, request, placement_request)

    # ---- events of the ledger and of other schedulers

    def follow(self, event: Struct, now_ms: int) -> None:
        """Apply an event that the core has taken."""
        match event:
            case LedgerAnswered() | Wake():
                self.settle(now_ms)
            case LedgerRows() if self._commits.is_loaded:
                self.settle(now_ms)
                self._took_rows(event, now_ms)
            case HoldsReleased():
                self.released([attempt for deleted in event.released for attempt in deleted.attempts], now_ms)
            case PlacementsReleased():
                self.released([attempt for release in event.nodes for attempt in release.attempts], now_ms)
            case FreshnessChanged(node=node):
                known = self._cluster.find(node)
                if known is not None and known.freshness is Freshness.LOST:
                    self.node_lost(node, now_ms)
            case ReservationsLoaded():
                self._read(event, now_ms)
                self._plan_to_ask(now_ms)
            case ReservationChanged():
                self._received(event)
            case PartitionsHeld():
                self._is_unqueued = True
            case JobsOver():
                self.jobs_over(event, now_ms)
            case Conflict(kind=kind) if kind == KIND:
                self._conflict(event)
            case _:
                pass

    def settle(self, now_ms: int) -> None:
        """Resolve the commits in flight: find those that are held by now, and those that were refused."""
        self._resize_over()
        for name, attempts in [(name, tuple(uses)) for name, uses in self.places.under_way.items()]:
            for attempt in attempts:
                held = self._commits.held.get(attempt)
                if held is not None and held.is_assumed:
                    continue
                self.places.settle(name, attempt)
                if held is None:
                    self._has_news = True
                else:
                    self._used(attempt, now_ms)
                    self._redelivery[name] = None
                del self._claimants[attempt]
                self._resize(name)
        for name, (attempt, _) in list(self._seeking.items()):
            held = self._commits.held.get(attempt)
            if held is not None and held.is_assumed:
                continue
            del self._seeking[name]
            if held is not None:
                self._bound(attempt, now_ms)
            elif attempt not in self._queue:
                self._seek_again(name, attempt, now_ms)
            self._over.pop(name, None)

    def released(self, attempts: Sequence[Attempt], now_ms: int) -> None:
        """These attempts hold nothing any more: the owners' parts fall back to their reservations."""
        self._resize_over()
        for attempt in attempts:
            for change in self.book.leave(attempt):
                self._take_change(change)
                self._has_news = True
            name = name_of(attempt[0])
            found = self.book.find(name) if name else None
            if found is not None and found.phase is ReservationPhase.AVAILABLE and attempt_of(found) == attempt:
                # The attempt was released, and a row of another scheduler brought the reservation back.
                self._apply(self.book.renew(name, now_ms))

    # ---- events of other services

    def node_lost(self, node: str, now_ms: int) -> None:
        """A node was silent for so long that its replicas are moved: nothing is held on it any more."""
        self._apply(self.book.node_deleted(node, now_ms))

    def jobs_over(self, event: JobsOver, now_ms: int) -> None:
        """End these jobs in the book."""
        for job in event.jobs:
            self._apply(self.book.workload_deleted(job, now_ms))

    # ---- the timer

    def wake(self, now_ms: int) -> tuple[list[Effect], list[Effect]]:
        """Records with the facts that depend on them; then all other effects."""
        if (due := self.book.deadline_ms()) is not None and due <= now_ms:
            self._apply(self.book.wake(now_ms))
            self._unwritten |= dict.fromkeys(name for name in self._versions if self.book.find(name) is None)
        self._queue_requests()
        if self._has_news:
            self._has_news = False
            self._wake_owners(now_ms)
        records: list[Effect] = []
        for name in list(self._unwritten)[:_ROWS_A_TURN]:
            del self._unwritten[name]
            self._redelivery.pop(name, None)
            records += self._row(name, now_ms)
        others: list[Effect] = []
        if not records:
            found = [self.book.find(name) for name in self._redelivery]
            others += [
                self._fact(each, each.phase.value, now_ms)
                for each in found
                if each is not None and each.phase is ReservationPhase.AVAILABLE
            ]
            self._redelivery.clear()
            others += self._ask_jobs(now_ms)
            others += self._to_read()
        return records, others

    def _ask_jobs(self, now_ms: int) -> list[Effect]:
        if self._jobs_at_ms is None or now_ms < self._jobs_at_ms:
            return []
        self._jobs_at_ms = None
        self._plan_to_ask(now_ms)
        jobs = self.book.jobs()
        if not jobs:
            return []
        # A long list is asked in turns.
        later = [job for job in jobs if job > self._jobs_asked]
        asked = (later or list(jobs))[:_JOBS_ASKED]
        self._jobs_asked = asked[-1]
        return [AskJobs(jobs=tuple(asked))]

    def _plan_to_ask(self, now_ms: int) -> None:
        if self._jobs_at_ms is None and self.book.jobs():
            self._jobs_at_ms = now_ms + ASK_JOBS_MS

    def _queue_requests(self) -> None:
        """Queue every reservation without a place; if the queue is full the reservation is queued at the next turn."""
        if not self._is_unqueued:
            return
        self._is_unqueued = False
        for name in self.book.placement_requests():
            placement_request = self.book.placement_request(name)
            attempt = (placement_request.replica, placement_request.attempt)
            if not self._shards.owns(placement_request.job) or attempt in self._queue or attempt in self._commits.held:
                continue
            if not self._queue.add(placement_request):
                self._is_unqueued = True
                return

    def _wake_owners(self, now_ms: int) -> None:
        """Wake the parked requests that may use a place that is held now."""

        def may_use(request: RequestClass, parked: Parked) -> bool:
            placement_requests = self._queue.waiting(request, _JOBS_LOOKED_AT)
            return any(
                self.places.offers(claimant_of(placement_request), placement_request, now_ms)
                for placement_request in placement_requests
            )

        self._queue.wake_where(may_use)

    # ---- rows of other schedulers and of the ledger

    def _to_read(self) -> list[Effect]:
        """The effects that read the pending rows of reservations and of the ledger."""
        names, nodes = list(self._unread), list(self._unloaded)
        self._unread.clear()
        self._unloaded.clear()
        effects: list[Effect] = load_rows(nodes)
        for at in range(0, len(names), _ROWS_A_CALL):
            effects.append(LoadReservations(names=tuple(names[at : at + _ROWS_A_CALL])))
        return effects

    def _took_rows(self, event: LedgerRows, now_ms: int) -> None:
        """Rows were read again: reconcile with the current holds."""
        nodes = {row.node for row in event.rows}
        self.released([attempt for attempt in self.book.used_by() if attempt not in self._commits.held], now_ms)
        for found in self.book.on_nodes(nodes):
            if attempt_of(found) not in self._commits.held:
                self._apply(self.book.renew(found.spec.name, now_ms))
        for name, found in list(self._unheld.items()):
            if found.place is not None and found.place.node in nodes:
                del self._unheld[name]
                is_held = attempt_of(found) in self._commits.held
                self._load_row(found if is_held else self._without_place(found, now_ms), now_ms)
        inside = {each.attempt: each.inside for row in event.rows for each in row.holds if each.inside}
        self._apply(self.book.load((), self._news(event), now_ms, inside))
        for found in self.book.on_nodes(nodes):
            self._resize(found.spec.name)

    def _news(self, event: LedgerRows) -> list[Placement]:
        """The holds that the book does not know: committed places and new owners."""
        book, news = self.book, []
        for row in event.rows:
            for attempt, placement in [(each.attempt, each.placement) for each in row.holds]:
                held = self._commits.held.get(attempt)
                if held is None or held.is_assumed or book.is_used_by(attempt):
                    continue
                if name := name_of(placement.replica):
                    held.is_confirmed = True
                    self._look_for(name, attempt)
                    found = book.find(name)
                    if found is not None and attempt_of(found) == attempt and found.phase is ReservationPhase.PENDING:
                        news += [placement, *self._held_ones(held.inside)]
                elif placement.reservation:
                    news.append(placement)
        return news

    def _held_ones(self, attempts: Sequence[Attempt]) -> list[Placement]:
        """The places of these attempts, as far as the ledger holds them."""
        found = [self._commits.held.get(attempt) for attempt in attempts]
        return [each.placement for each in found if each is not None and not each.is_assumed]

    def _without_place(self, found: Reservation, now_ms: int) -> Reservation:
        """The ledger was emptied: the place is requested again, unless the reservation's only use is committed."""
        node = self._cluster.find(found.place.node) if found.place is not None else None
        holds = [
            self._commits.held[attempt] for attempt in (node.holds if node else ()) if attempt in self._commits.held
        ]
        if found.spec.allocate_once and any(each.placement.reservation == found.spec.name for each in holds):
            return found
        self._unwritten[found.spec.name] = None
        return structs.replace(
            found, phase=ReservationPhase.PENDING, place=None, attempt=max(found.attempt + 1, now_ms)
        )

    def _read(self, event: ReservationsLoaded, now_ms: int) -> None:
        """Take rows as they are now, with the ledger's holds for them."""
        for row in event.rows:
            found, known = row.reservation, self.book.find(row.reservation.spec.name)
            # The versions of a row that was removed and written again restart at the beginning; attempts only rise.
            is_later = known is None or found.attempt > known.attempt
            if is_later or self._versions.get(found.spec.name, 0) < row.version:
                self._versions[found.spec.name] = row.version
                self._unwritten.pop(found.spec.name, None)
                self._take_row(found, now_ms)
        self._versions |= dict(event.unreadable)
        for name in event.missing:
            self._versions.pop(name, None)
            self._unwritten.pop(name, None)
            if (found_here := self.book.find(name)) is not None:
                self._give_up(found_here)
                self._apply(self.book.delete(name))
        if not self._commits.is_loaded:
            self._find_strays()
            return
        for attempt in [each for each in self._strays if name_of(each[0]) in event.missing]:
            del self._strays[attempt]
            self._end(attempt)

    def _find_strays(self) -> None:
        """Request the rows of holds that belong to no known reservation; another scheduler may have written them meanwhile."""
        for attempt, held in self._commits.held.items():
            name = name_of(attempt[0])
            if not name:
                continue
            held.is_confirmed = True
            self._look_for(name, attempt)

    def _look_for(self, name: str, attempt: Attempt) -> None:
        found = self.book.find(name)
        if found is None or attempt_of(found) != attempt:
            self._strays[attempt] = None
            self._unread[name] = None

    def _take_row(self, found: Reservation, now_ms: int) -> None:
        name, attempt = found.spec.name, attempt_of(found)
        before = self.book.find(name)
        if before is not None and (attempt_of(before) != attempt or found.phase is not ReservationPhase.PENDING):
            self._give_up(before)
        if found.phase is ReservationPhase.AVAILABLE and found.place is not None and attempt not in self._commits.held:
            # Until the ledger's holds on that node are read.
            self._unheld[name] = found
            self._unloaded[found.place.node] = None
            return
        self._load_row(found, now_ms)

    def _load_row(self, found: Reservation, now_ms: int) -> None:
        name, attempt = found.spec.name, attempt_of(found)
        book, commits = self.book, self._commits
        before, held = book.find(name), commits.held.get(attempt)
        placements: list[Placement] = []
        inside: dict[Attempt, tuple[Attempt, ...]] = {}
        if found.phase is ReservationPhase.PENDING and held is not None and not held.is_assumed:
            placements += [held.placement, *self._held_ones(held.inside)]
            inside[attempt] = held.inside
        placements += self._held_ones(found.over)
        node = self._cluster.find(found.place.node) if found.place is not None else None
        for other in node.holds if node is not None else ():
            of_node = commits.held.get(other)
            if of_node is not None and not of_node.is_assumed and of_node.placement.reservation == name:
                placements.append(of_node.placement)
        self._apply(self.book.load([found], placements, now_ms, inside))
        for old in (before, found if found.phase.is_ended else None):
            if (
                old is not None
                and (old is found or attempt_of(old) != attempt)
                and attempt_of(old) in self._commits.held
            ):
                self._end(attempt_of(old))
        if attempt in self._strays:
            del self._strays[attempt]
        self._resize(name)
        self._is_unqueued = True
        self._has_news = True

    def _conflict(self, event: Conflict) -> None:
        """Another scheduler changed a row first: request that row; the ledger's places and uses are added to it."""
        self._counts["reservation_conflicts"] += 1
        # Any version of that row counts as newer than ours.
        self._versions[event.id] = 0
        self._unread[event.id] = None

    def _received(self, event: ReservationChanged) -> None:
        """Another scheduler published a reservation's state; its row is read when the book differs."""
        found = self.book.find(event.reservation)
        is_known = found is not None and found.phase.value == event.phase and attempt_of(found)[1] == event.attempt
        if not is_known and (found is not None or event.phase != DELETED):
            self._unread[event.reservation] = None
        elif event.node and event.owners != len(self.book.owners(event.reservation)):
            # Owners came or left elsewhere, unless this scheduler published it and its book is newer.
            self._unloaded[event.node] = None

    # ---- changes of the book

    def _apply(self, changes: Sequence[BookChange]) -> None:
        """Apply these changes of the book, in order."""
        for change in changes:
            self._take_change(change)

    def _take_change(self, change: BookChange) -> None:
        """Apply one change of the book."""
        match change:
            case PhaseChanged(name=name, phase=phase):
                self._unwritten[name] = None
                self._counts[f"reservations_{phase.value.lower()}"] += 1
                found = self.book.find(name)
                if phase is ReservationPhase.PENDING:
                    self._is_unqueued = True
                elif phase is ReservationPhase.AVAILABLE:
                    self._has_news = True
                elif found is not None:
                    self._give_up(found)
            case HoldChanged(name=name, attempt=attempt):
                found = self.book.find(name)
                is_held = (
                    found is not None and found.phase is ReservationPhase.AVAILABLE and attempt_of(found) == attempt
                )
                if not is_held:
                    self._end(attempt)
                elif self._resize(name):
                    self._redelivery[name] = None

    def _give_up(self, found: Reservation) -> None:
        """The reservation waits no more; a place that is in flight to it is given back on arrival."""
        attempt = attempt_of(found)
        self._queue.remove(attempt)
        self._commits.gave_up(attempt)

    def _resize(self, name: str) -> bool:
        """Hold for a reservation the part that its owners leave. True when the amount changed."""
        found, placement = self.book.find(name), self.places.placement(name)
        if found is None or placement is None:
            return False
        return self._commits.change(attempt_of(found), placement)

    def _used(self, attempt: Attempt, now_ms: int) -> None:
        """Take an owner's place, which the ledger holds, into the book."""
        placement = self._commits.held[attempt].placement
        try:
            changes = self.book.use(self._claimants[attempt], placement, now_ms)
        except InvalidInput:
            # A committed use counts in any case, as long as the reservation exists.
            changes = self.book.load((), [placement], now_ms)
        if not self.book.is_used_by(attempt):
            # The reservation ended between decision and commit: its owner keeps the place as any other replica does.
            self._counts["reservation_uses_late"] += 1
        self._apply(changes)

    def _bound(self, attempt: Attempt, now_ms: int) -> None:
        held = self._commits.held[attempt]
        held.is_confirmed = True
        place, owners = self._over.pop(name_of(attempt[0]), (held.placement, ()))
        try:
            changes = self.book.bind(place, now_ms, owners)
        except InvalidInput:
            self._counts["reservations_unbound"] += 1
            self._end(attempt)
            self._seek_again(name_of(attempt[0]), attempt, now_ms)
            return
        self._apply(changes)

    def _seek_again(self, name: str, attempt: Attempt, now_ms: int) -> None:
        found = self.book.find(name)
        if found is not None and attempt_of(found) == attempt and found.phase is ReservationPhase.PENDING:
            self._apply(self.book.renew(name, now_ms))

    # ---- rows and facts

    def _row(self, name: str, now_ms: int) -> list[Effect]:
        """The Record of a reservation's current state, and the fact about it."""
        found = self.book.find(name)
        if found is None:
            return self._record(name)
        return [*self._record(name), self._fact(found, found.phase.value, now_ms)]

    def _record(self, name: str) -> list[Effect]:
        """The Record of a reservation's current state, or of its deletion; none when it has no row."""
        found, version = self.book.find(name), self._versions.get(name, 0)
        if found is None:
            self._versions.pop(name, None)
            write = Write(kind=KIND, id=name, value=None, expect=version)
            return [Record(writes=(write,))] if version else []
        self._versions[name] = version + 1
        return [Record(writes=(Write(kind=KIND, id=name, value=encode_row(found), expect=version),))]

    def put_back(self) -> list[Effect]:
        """The Records that put the rows of all reservations back into a store that lost them."""
        effects: list[Effect] = []
        for name, version in self._versions.items():
            if version and (found := self.book.find(name)) is not None:
                write = Write(kind=KIND, id=name, value=encode_row(found), expect=version, puts_back=True)
                effects.append(Record(writes=(write,)))
        return effects

    def _fact(self, found: Reservation, phase: str, now_ms: int) -> Publish:
        """The fact about the reservation in this phase."""
        name, (replica, attempt) = found.spec.name, attempt_of(found)
        left = self.places.remainder(name) if phase == ReservationPhase.AVAILABLE.value else None
        fact = ReservationChanged(
            at_ms=now_ms,
            reservation=name,
            phase=phase,
            reason=found.reason,
            replica=replica,
            attempt=attempt,
            qos=found.spec.qos,
            band=found.spec.band,
            node=found.place.node if found.place else "",
            zones=left.zones if left else (),
            owners=len(self.book.owners(name)),
            expires_at_ms=last_ms(found.created_ms, found.spec.ttl_ms, found.spec.expires_ms) or 0,
        )
        key = attempt_key(replica, attempt)
        return Publish(fact=fact, id=f"scheduler:reservation:{key}:{phase}:{now_ms}:{fact.owners}")
