"""What the core does with the book of reservations: keeps rows, seeks places, gives them to owners, lets them go.

The ledger keeps a reservation's place whole as long as it is held, and each owner's beside it; what is held beside the owners
follows from these rows. Here the hold of the replica that stands for it shrinks and grows with them. Rows are written by Records of
their own: what else the core decides must not fall with one that a store refuses.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from colo_common.events.effects import Conflict, Effect, Wake
from colo_common.events.job import PlacementRequest
from colo_common.events.node import FreshnessChanged
from colo_common.events.placement import PlacementsReleased
from colo_common.events.reservation import ReservationChanged
from colo_common.model.freshness import Freshness
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import Placement
from colo_common.model.reservation import ReservationSpec
from colo_scheduler.cluster.cluster import View
from colo_scheduler.commit.commit import placement_of
from colo_scheduler.ledger.port import Attempt, HoldsReleased, LedgerAnswered, LedgerRows
from colo_scheduler.ledger.reservation_names import name_of
from colo_scheduler.ledger.shards import ShardsHeld
from colo_scheduler.placement.decide import Choice
from colo_scheduler.placement.explain import Report
from colo_scheduler.requests.queue import Parked
from colo_scheduler.requests.request_class import RequestClass
from colo_scheduler.reservations.fit import policies_conflict
from colo_scheduler.reservations.lifecycle import ReservationPhase
from colo_scheduler.reservations.owners import Claimant, claimant_of
from colo_scheduler.reservations.preallocation_search import place_over, running_owners
from colo_scheduler.reservations.reconcile import ReservationReconciler
from colo_scheduler.reservations.remainder import remainder_of
from colo_scheduler.reservations.report import report_for_owner
from colo_scheduler.reservations.reservation import attempt_of
from colo_scheduler.reservations.rows import DELETED, KIND, AskJobs, JobsOver, ReservationsLoaded
from colo_scheduler.reservations.snapshot import Taken, left_of, serve
from colo_scheduler.reservations.state import ReservationState

__all__ = ["ASK_JOBS_MS", "ReservationController"]

ASK_JOBS_MS: Final = 15_000
"""How often it is asked whether the only owner of a reservation is over."""
_JOBS_ASKED: Final = 50
_ROWS_A_TURN: Final = 200
_JOBS_LOOKED_AT: Final = 50
_FOR_EVER_MS: Final = (1 << 53) - 1


class ReservationController:
    """The book, what is under way, and what the core is to do next."""

    def __init__(self, state: ReservationState) -> None:
        self._state = state
        self.book, self.places = self._state.book, self._state.places
        self._rows = ReservationReconciler(self._state, self.released)
        self._claimants: dict[Attempt, Claimant] = {}
        self._seeking: dict[str, tuple[Attempt, str]] = {}
        self._over: dict[str, tuple[Placement, tuple[Placement, ...]]] = {}
        self._jobs_at_ms: int | None = None
        self._jobs_asked = ""

    # ---- reads

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing at all to do here."""
        is_under_way = bool(self._seeking or self.places.under_way or self.has_pending_output)
        return self._rows.is_idle and not (self._state.versions or is_under_way or len(self.book))

    @property
    def has_places(self) -> bool:
        """Whether a reservation holds a place that owners may get."""
        return self.book.has_places

    @property
    def has_pending_output(self) -> bool:
        """Whether something is to be written or said at the next Wake."""
        return self._state.has_pending_output

    def deadline_ms(self) -> int | None:
        """When `wake` has something to do, apart from what is hurried."""
        if self.is_empty:
            return None
        snapshots = [at for at in (self.book.deadline_ms(), self._jobs_at_ms) if at is not None]
        return min(snapshots, default=None)

    # ---- requests

    def create(self, spec: ReservationSpec, now_ms: int) -> list[Effect]:
        """Take a reservation; the Record that keeps it. Raises InvalidInput as the book does."""
        if not self.book.create(spec, now_ms):
            return []
        self._state.counts["reservations_created"] += 1
        self._state.is_unqueued = True
        self._queue_wants()
        self._plan_to_ask(now_ms)
        return self._state.row(spec.name, now_ms)

    def delete(self, name: str, now_ms: int) -> list[Effect]:
        """Forget a reservation; the Record that removes it. Raises InvalidInput when there is none."""
        found = self.book.find(name)
        changes = self.book.delete(name)
        if found is None:
            return []
        self._state.counts["reservations_deleted"] += 1
        self._state.give_up(found)
        for change in changes:
            self._state.take_change(change)
        self._state.unwritten.pop(name, None)
        self._state.redelivery.pop(name, None)
        fact = self._state.fact(found, DELETED, now_ms)
        return [*self._state.record(name), fact]

    # ---- wants

    def narrowed(self, request: RequestClass) -> RequestClass:
        """The class of what stands for a reservation, without the nodes whose reservations forbid one of its policy."""
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

    def chose(self, placement_request: PlacementRequest, choice: Choice) -> None:
        """What stands for a reservation gets this place, if the ledger agrees."""
        node = self._state.cluster.nodes[choice.row].name
        name, attempt = name_of(placement_request.replica), (placement_request.replica, placement_request.attempt)
        self._seeking[name] = (attempt, node)
        if choice.inside:
            held = self._state.commits.held
            self._over[name] = (held[attempt].placement, tuple(held[each].placement for each in choice.inside))
            self._resize_over()

    def take_over(self, view: View, request: RequestClass, placement_request: PlacementRequest) -> Choice | None:
        """A place over owners that run, where the reservation may have one; what no owner has of it is held at once.

        `Commits.assume` follows with the choice that comes back, which is the whole place, and then `chose`.
        """
        found = self.book.find(request.reserves)
        if found is None or not found.spec.pre_allocates or not request.is_admitted:
            return None
        pending = {(owner.replica, owner.attempt) for _, owners in self._over.values() for owner in owners}
        held = self._state.commits.held
        owners = running_owners(found.spec, held, lambda each: each in pending or self.book.is_used_by(each))
        place = place_over(view, request, found.spec, owners)
        if place is None:
            return None
        self._state.commits.taker(request, [placement_request])(0, place.more)
        return place.whole

    def _resize_over(self) -> None:
        """What stands for a reservation over running owners holds what these leave of its place, until the ledger has it."""
        commits = self._state.commits
        for name, (place, owners) in self._over.items():
            here = tuple(owner for owner in owners if (owner.replica, owner.attempt) in commits.held)
            self._over[name] = (place, here)
            commits.change((place.replica, place.attempt), left_of(place, remainder_of(place, here)))

    def serve(
        self, view: View, request: RequestClass, placement_requests: Sequence[PlacementRequest]
    ) -> tuple[list[Taken], list[PlacementRequest]]:
        """Hold for owners the places of their reservations; `Commits.assume` follows. The wants that got none come back."""

        def take(taken: Taken) -> None:
            node = self._state.cluster.nodes[taken.choice.row]
            self._claimants[(taken.placement_request.replica, taken.placement_request.attempt)] = claimant_of(
                taken.placement_request
            )
            self.places.use(placement_of(taken.placement_request, node, taken.choice, view.now_ms))
            self._state.resize(taken.reservation)
            self._state.commits.taker(request, [taken.placement_request])(0, taken.choice)

        return serve(self.places, view, request, placement_requests, take)

    def report(self, view: View, request: RequestClass, placement_request: PlacementRequest) -> Report:
        """Why a want that names a reservation does not get its place."""
        return report_for_owner(self.places, view, request, placement_request)

    # ---- what the ledger and others say

    def follow(self, event: Struct, now_ms: int) -> None:
        """Keep up with an event that the core has taken."""
        match event:
            case LedgerAnswered() | Wake():
                self.settle(now_ms)
            case LedgerRows() if self._state.commits.is_loaded:
                self.settle(now_ms)
                self._rows.took_rows(event, now_ms)
            case HoldsReleased():
                self.released([attempt for gone in event.released for attempt in gone.attempts], now_ms)
            case PlacementsReleased():
                self.released([attempt for release in event.nodes for attempt in release.attempts], now_ms)
            case FreshnessChanged(node=node):
                known = self._state.cluster.find(node)
                if known is not None and known.freshness is Freshness.LOST:
                    self.node_lost(node, now_ms)
            case ReservationsLoaded():
                self._rows.read(event, now_ms)
                self._plan_to_ask(now_ms)
            case ReservationChanged():
                self._rows.heard(event)
            case ShardsHeld():
                self._state.is_unqueued = True
            case JobsOver():
                self.jobs_over(event, now_ms)
            case Conflict(kind=kind) if kind == KIND:
                self._rows.conflict(event)
            case _:
                pass

    def settle(self, now_ms: int) -> None:
        """See what became of everything under way: held, or refused."""
        self._resize_over()
        for name, attempts in [(name, tuple(uses)) for name, uses in self.places.under_way.items()]:
            for attempt in attempts:
                held = self._state.commits.held.get(attempt)
                if held is not None and held.is_assumed:
                    continue
                self.places.settle(name, attempt)
                if held is None:
                    self._state.has_news = True
                else:
                    self._used(attempt, now_ms)
                    self._state.redelivery[name] = None
                del self._claimants[attempt]
                self._state.resize(name)
        for name, (attempt, _) in list(self._seeking.items()):
            held = self._state.commits.held.get(attempt)
            if held is not None and held.is_assumed:
                continue
            del self._seeking[name]
            if held is not None:
                self._bound(attempt, now_ms)
            elif attempt not in self._state.queue:
                self._seek_again(name, attempt, now_ms)
            self._over.pop(name, None)

    def released(self, attempts: Sequence[Attempt], now_ms: int) -> None:
        """These attempts hold nothing any more: what owners took falls back to their reservations."""
        self._resize_over()
        for attempt in attempts:
            for change in self.book.leave(attempt):
                self._state.take_change(change)
                self._state.has_news = True
            name = name_of(attempt[0])
            found = self.book.find(name) if name else None
            if found is not None and found.phase is ReservationPhase.AVAILABLE and attempt_of(found) == attempt:
                # It was given up, and a row that somebody else wrote brought it back.
                self._state.apply(self.book.renew(name, now_ms))

    # ---- what others say

    def node_lost(self, node: str, now_ms: int) -> None:
        """A node was not heard of for so long that its replicas go elsewhere: nothing is held on it any more."""
        self._state.apply(self.book.node_gone(node, now_ms))

    def jobs_over(self, event: JobsOver, now_ms: int) -> None:
        """Jobs have ended."""
        for job in event.jobs:
            self._state.apply(self.book.workload_gone(job, now_ms))

    # ---- the timer

    def wake(self, now_ms: int) -> tuple[list[Effect], list[Effect]]:
        """Records with what is said because of them; and what else is said or done."""
        if (due := self.book.deadline_ms()) is not None and due <= now_ms:
            self._state.apply(self.book.wake(now_ms))
            self._state.unwritten |= dict.fromkeys(
                name for name in self._state.versions if self.book.find(name) is None
            )
        self._queue_wants()
        if self._state.has_news:
            self._state.has_news = False
            self._wake_owners(now_ms)
        records: list[Effect] = []
        for name in list(self._state.unwritten)[:_ROWS_A_TURN]:
            del self._state.unwritten[name]
            self._state.redelivery.pop(name, None)
            records += self._state.row(name, now_ms)
        others: list[Effect] = []
        if not records:
            found = [self.book.find(name) for name in self._state.redelivery]
            others += [
                self._state.fact(each, each.phase.value, now_ms)
                for each in found
                if each is not None and each.phase is ReservationPhase.AVAILABLE
            ]
            self._state.redelivery.clear()
            others += self._ask_jobs(now_ms)
            others += self._rows.to_read()
        return records, others

    def _ask_jobs(self, now_ms: int) -> list[Effect]:
        if self._jobs_at_ms is None or now_ms < self._jobs_at_ms:
            return []
        self._jobs_at_ms = None
        self._plan_to_ask(now_ms)
        jobs = self.book.jobs()
        if not jobs:
            return []
        # Many are asked in turn.
        later = [job for job in jobs if job > self._jobs_asked]
        asked = (later or list(jobs))[:_JOBS_ASKED]
        self._jobs_asked = asked[-1]
        return [AskJobs(jobs=tuple(asked))]

    def _plan_to_ask(self, now_ms: int) -> None:
        if self._jobs_at_ms is None and self.book.jobs():
            self._jobs_at_ms = now_ms + ASK_JOBS_MS

    def _queue_wants(self) -> None:
        """Let every reservation wait that has no place; what finds the queue full waits for the next turn."""
        if not self._state.is_unqueued:
            return
        self._state.is_unqueued = False
        for name in self.book.placement_requests():
            placement_request = self.book.placement_request(name)
            attempt = (placement_request.replica, placement_request.attempt)
            if (
                not self._state.shards.owns(placement_request.job)
                or attempt in self._state.queue
                or attempt in self._state.commits.held
            ):
                continue
            if not self._state.queue.add(placement_request):
                self._state.is_unqueued = True
                return

    def _wake_owners(self, now_ms: int) -> None:
        """Let those parked wants be decided again that may use what is held now."""

        def may_use(request: RequestClass, parked: Parked) -> bool:
            placement_requests = self._state.queue.waiting(request, _JOBS_LOOKED_AT)
            return any(
                self.places.offers(claimant_of(placement_request), placement_request, now_ms)
                for placement_request in placement_requests
            )

        self._state.queue.wake_where(may_use)

    # ---- parts

    def _used(self, attempt: Attempt, now_ms: int) -> None:
        """The ledger has an owner's place."""
        placement = self._state.commits.held[attempt].placement
        try:
            changes = self.book.use(self._claimants[attempt], placement, now_ms)
        except InvalidInput:
            # What is committed counts all the same, as long as the reservation is there.
            changes = self.book.load((), [placement], now_ms)
        if not self.book.is_used_by(attempt):
            # It ended between decision and commit: its owner keeps the place as any other replica does.
            self._state.counts["reservation_uses_late"] += 1
        self._state.apply(changes)

    def _bound(self, attempt: Attempt, now_ms: int) -> None:
        held = self._state.commits.held[attempt]
        held.is_confirmed = True
        place, owners = self._over.pop(name_of(attempt[0]), (held.placement, ()))
        try:
            changes = self.book.bind(place, now_ms, owners)
        except InvalidInput:
            self._state.counts["reservations_unbound"] += 1
            self._state.end(attempt)
            self._seek_again(name_of(attempt[0]), attempt, now_ms)
            return
        self._state.apply(changes)

    def _seek_again(self, name: str, attempt: Attempt, now_ms: int) -> None:
        found = self.book.find(name)
        if found is not None and attempt_of(found) == attempt and found.phase is ReservationPhase.PENDING:
            self._state.apply(self.book.renew(name, now_ms))
