"""What the core does with the book of reservations: keeps rows, seeks places, gives them to owners, lets them go.

The ledger keeps a reservation's place whole as long as it is held, and each owner's beside it; what is held beside the owners
follows from these rows. Here the hold of the replica that stands for it shrinks and grows with them. Rows are written by Records of
their own: what else the core decides must not fall with one that a store refuses.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct, structs

from colo_common.events.effects import Conflict, Effect, Publish, Record, Wake, Write
from colo_common.events.job import ReplicaWant
from colo_common.events.node import FreshnessChanged
from colo_common.events.placement import PlacementsReleased
from colo_common.events.reservation import ReservationChanged
from colo_common.model.freshness import Freshness
from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_common.model.placement import attempt_key
from colo_common.model.reservation import ReservationSpec
from colo_scheduler.cluster import Cluster, View
from colo_scheduler.commit import Commits, placement_of
from colo_scheduler.decide import Choice
from colo_scheduler.explain import Report
from colo_scheduler.held_places import HeldPlaces, Taken, serve
from colo_scheduler.ledger import Attempt, HoldsReleased, LedgerAnswered, LedgerRows
from colo_scheduler.queue import Parked, WantQueue
from colo_scheduler.request import RequestClass
from colo_scheduler.reservation.book import ReservationBook
from colo_scheduler.reservation.expiry import last_ms
from colo_scheduler.reservation.fit import policies_conflict
from colo_scheduler.reservation.held_place import (
    BookChange,
    HoldChanged,
    PhaseChanged,
    Reservation,
    attempt_of,
    name_of,
)
from colo_scheduler.reservation.lifecycle import Phase
from colo_scheduler.reservation.owners import Claimant, claimant_of
from colo_scheduler.reservation_report import report_for_owner
from colo_scheduler.reservation_rows import KIND, AskJobs, JobsOver, ReservationsLoaded, encode_row

__all__ = ["ASK_JOBS_MS", "DELETED", "Reserve"]

ASK_JOBS_MS: Final = 15_000
"""How often it is asked whether the only owner of a reservation is over."""
DELETED: Final = "Deleted"
_JOBS_ASKED: Final = 50
_ROWS_A_TURN: Final = 200
_JOBS_LOOKED_AT: Final = 50
_FOR_EVER_MS: Final = (1 << 53) - 1


class Reserve:
    """The book, the uses under way, and the rows that are still to be written. `end` lets go of an attempt for good."""

    def __init__(
        self,
        cluster: Cluster,
        queue: WantQueue,
        commits: Commits,
        counts: Counter[str],
        end: Callable[[Attempt], None],
    ) -> None:
        self.book = ReservationBook()
        self.places = HeldPlaces(self.book)
        self._cluster = cluster
        self._queue = queue
        self._commits = commits
        self._counts = counts
        self._end = end
        self._versions: dict[str, int] = {}
        self._claimants: dict[Attempt, Claimant] = {}
        self._seeking: dict[str, tuple[Attempt, str]] = {}
        self._unwritten: dict[str, None] = {}
        self._untold: dict[str, None] = {}
        self._unqueued = False
        self._has_news_for_owners = False
        self._jobs_at_ms: int | None = None
        self._jobs_asked = ""

    # ---- reads

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing at all to do here."""
        idle = not self._versions and not self._unwritten and not self._seeking and not self.places.under_way
        return idle and not len(self.book)

    @property
    def has_places(self) -> bool:
        """Whether a reservation holds a place that owners may get."""
        return self.book.has_places

    @property
    def is_hurried(self) -> bool:
        """Whether something is to be written or said at the next Wake."""
        return bool(self._unwritten or self._untold or self._has_news_for_owners)

    def deadline_ms(self) -> int | None:
        """When `wake` has something to do, apart from what is hurried."""
        moments = [at for at in (self.book.deadline_ms(), self._jobs_at_ms) if at is not None]
        return min(moments, default=None)

    # ---- requests

    def create(self, spec: ReservationSpec, now_ms: int) -> list[Effect]:
        """Take a reservation; the Record that keeps it. Raises InvalidInput as the book does."""
        if spec.pre_allocates:
            raise InvalidInput("pre_allocates", "is not offered: a place cannot be taken over its running owners", True)
        if not self.book.create(spec, now_ms):
            return []
        self._counts["reservations_created"] += 1
        self._unqueued = True
        self._queue_wants()
        self._plan_to_ask(now_ms)
        return self._row(spec.name, now_ms)

    def delete(self, name: str, now_ms: int) -> list[Effect]:
        """Forget a reservation; the Record that removes it. Raises InvalidInput when there is none."""
        found = self.book.find(name)
        changes = self.book.delete(name)
        if found is None:
            return []
        self._counts["reservations_deleted"] += 1
        self._give_up(found)
        for change in changes:
            self._take_change(change)
        self._unwritten.pop(name, None)
        self._untold.pop(name, None)
        fact = self._fact(found, DELETED, now_ms)
        return [*self._record(name), fact]

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

    def chose(self, want: ReplicaWant, choice: Choice) -> None:
        """What stands for a reservation gets this place, if the ledger agrees."""
        node = self._cluster.nodes[choice.row].name
        self._seeking[name_of(want.replica)] = ((want.replica, want.attempt), node)

    def serve(
        self, view: View, request: RequestClass, wants: Sequence[ReplicaWant]
    ) -> tuple[list[Taken], list[ReplicaWant]]:
        """Hold for owners the places of their reservations; `Commits.assume` follows. The wants that got none come back."""

        def take(taken: Taken) -> None:
            node = self._cluster.nodes[taken.choice.row]
            self._claimants[(taken.want.replica, taken.want.attempt)] = claimant_of(taken.want)
            self.places.use(placement_of(taken.want, node, taken.choice, view.now_ms))
            self._resize(taken.reservation)
            self._commits.take([taken.want], 0, taken.choice)

        return serve(self.places, view, request, wants, take)

    def report(self, view: View, request: RequestClass, want: ReplicaWant) -> Report:
        """Why a want that names a reservation does not get its place."""
        return report_for_owner(self.places, view, request, want)

    # ---- what the ledger and others say

    def follow(self, event: Struct, now_ms: int) -> None:
        """Keep up with an event that the core has taken."""
        match event:
            case LedgerAnswered() | Wake():
                self.settle(now_ms)
            case LedgerRows() if self._commits.is_loaded:
                self.took_rows(event, now_ms)
            case HoldsReleased():
                self.released([attempt for gone in event.released for attempt in gone.attempts])
            case PlacementsReleased():
                self.released([attempt for release in event.nodes for attempt in release.attempts])
            case FreshnessChanged(node=node):
                known = self._cluster.find(node)
                if known is not None and known.freshness is Freshness.LOST:
                    self.node_lost(node, now_ms)
            case ReservationsLoaded():
                self.loaded(event, now_ms)
            case JobsOver():
                self.jobs_over(event, now_ms)
            case Conflict(kind=kind) if kind == KIND:
                self.conflict(event)
            case _:
                pass

    def settle(self, now_ms: int) -> None:
        """See what became of everything under way: held, or refused."""
        for name, attempts in [(name, tuple(uses)) for name, uses in self.places.under_way.items()]:
            for attempt in attempts:
                held = self._commits.held.get(attempt)
                if held is not None and held.is_assumed:
                    continue
                self.places.settle(name, attempt)
                if held is None:
                    self._has_news_for_owners = True
                else:
                    self._used(attempt, now_ms)
                    self._untold[name] = None
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

    def released(self, attempts: Sequence[Attempt]) -> None:
        """These attempts hold nothing any more: what owners took falls back to their reservations."""
        for attempt in attempts:
            for change in self.book.leave(attempt):
                self._take_change(change)
                self._has_news_for_owners = True

    def took_rows(self, event: LedgerRows, now_ms: int) -> None:
        """Rows were read again: come into step with what is held now."""
        self.settle(now_ms)
        nodes = {row.node for row in event.rows}
        self.released([attempt for attempt in self.book.used_by() if attempt not in self._commits.held])
        for found in self.book.rows():
            is_there = found.place is not None and found.place.node in nodes and found.phase is Phase.AVAILABLE
            if is_there and attempt_of(found) not in self._commits.held:
                self._apply(self.book.renew(found.spec.name, now_ms))
        used = set(self.book.used_by())
        news = [
            reservation.placement
            for row in event.rows
            for reservation in row.reservations
            if (reservation.placement.reservation or name_of(reservation.placement.replica))
            and reservation.attempt not in used
            and (held := self._commits.held.get(reservation.attempt)) is not None
            and not held.is_assumed
        ]
        self._apply(self.book.load((), news, now_ms))

    def loaded(self, event: ReservationsLoaded, now_ms: int) -> None:
        """Begin from the rows and from what the ledger was read to hold."""
        held = [
            each.placement
            for each in self._commits.held.values()
            if each.placement.reservation or name_of(each.placement.replica)
        ]
        used = {(place.reservation, place.node) for place in held if place.reservation}
        rows = []
        for row in event.rows:
            found = row.reservation
            self._versions[found.spec.name] = row.version
            is_lost = found.phase is Phase.AVAILABLE and attempt_of(found) not in self._commits.held
            if is_lost and not (
                found.spec.allocate_once and found.place and (found.spec.name, found.place.node) in used
            ):
                # Somebody emptied the ledger: the place is sought anew.
                found = structs.replace(found, phase=Phase.PENDING, place=None, attempt=max(found.attempt + 1, now_ms))
                self._unwritten[found.spec.name] = None
            rows.append(found)
        self._versions |= dict(event.unreadable)
        self._apply(self.book.load(rows, held, now_ms))
        for place in held:
            if name_of(place.replica):
                self._commits.held[(place.replica, place.attempt)].is_confirmed = True
        self._unqueued = True
        self._plan_to_ask(now_ms)

    def conflict(self, event: Conflict) -> None:
        """Another writer changed a row: the book, which comes from the ledger, is written over it."""
        self._counts["reservation_conflicts"] += 1
        if event.found:
            self._versions[event.id] = event.found
        else:
            self._versions.pop(event.id, None)
        self._unwritten[event.id] = None

    # ---- what others say

    def node_lost(self, node: str, now_ms: int) -> None:
        """A node was not heard of for so long that its replicas go elsewhere: nothing is held on it any more."""
        self._apply(self.book.node_gone(node, now_ms))

    def jobs_over(self, event: JobsOver, now_ms: int) -> None:
        """Jobs have ended."""
        for job in event.jobs:
            self._apply(self.book.workload_gone(job, now_ms))

    # ---- the timer

    def wake(self, now_ms: int) -> tuple[list[Effect], list[Effect]]:
        """Records with what is said because of them; and what else is said or done."""
        if (due := self.book.deadline_ms()) is not None and due <= now_ms:
            self._apply(self.book.wake(now_ms))
            self._unwritten |= dict.fromkeys(name for name in self._versions if self.book.find(name) is None)
        self._queue_wants()
        if self._has_news_for_owners:
            self._has_news_for_owners = False
            self._wake_owners(now_ms)
        records: list[Effect] = []
        for name in list(self._unwritten)[:_ROWS_A_TURN]:
            del self._unwritten[name]
            self._untold.pop(name, None)
            records += self._row(name, now_ms)
        others: list[Effect] = []
        if not records:
            found = [self.book.find(name) for name in self._untold]
            others += [
                self._fact(each, each.phase.value, now_ms)
                for each in found
                if each is not None and each.phase is Phase.AVAILABLE
            ]
            self._untold.clear()
            others += self._ask_jobs(now_ms)
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
        if not self._unqueued:
            return
        self._unqueued = False
        for name in self.book.wants():
            want = self.book.want(name)
            attempt = (want.replica, want.attempt)
            if attempt in self._queue or attempt in self._commits.held:
                continue
            if not self._queue.add(want):
                self._unqueued = True
                return

    def _wake_owners(self, now_ms: int) -> None:
        """Let those parked wants be decided again that may use what is held now."""

        def may_use(request: RequestClass, parked: Parked) -> bool:
            wants = self._queue.waiting(request, _JOBS_LOOKED_AT)
            return any(self.places.offers(claimant_of(want), want, now_ms) for want in wants)

        self._queue.wake_where(may_use)

    # ---- parts

    def _used(self, attempt: Attempt, now_ms: int) -> None:
        """The ledger has an owner's place."""
        placement = self._commits.held[attempt].placement
        try:
            changes = self.book.use(self._claimants[attempt], placement, now_ms)
        except InvalidInput:
            # What is committed counts all the same, as long as the reservation is there.
            changes = self.book.load((), [placement], now_ms)
        if attempt not in self.book.used_by():
            # It ended between decision and commit: its owner keeps the place as any other replica does.
            self._counts["reservation_uses_late"] += 1
        self._apply(changes)

    def _bound(self, attempt: Attempt, now_ms: int) -> None:
        held = self._commits.held[attempt]
        held.is_confirmed = True
        try:
            changes = self.book.bind(held.placement, now_ms)
        except InvalidInput:
            self._counts["reservations_unbound"] += 1
            self._end(attempt)
            self._seek_again(name_of(attempt[0]), attempt, now_ms)
            return
        self._apply(changes)

    def _seek_again(self, name: str, attempt: Attempt, now_ms: int) -> None:
        found = self.book.find(name)
        if found is not None and attempt_of(found) == attempt and found.phase is Phase.PENDING:
            self._apply(self.book.renew(name, now_ms))

    def _apply(self, changes: Sequence[BookChange]) -> None:
        for change in changes:
            self._take_change(change)

    def _take_change(self, change: BookChange) -> None:
        match change:
            case PhaseChanged(name=name, phase=phase):
                self._unwritten[name] = None
                self._counts[f"reservations_{phase.value.lower()}"] += 1
                found = self.book.find(name)
                if phase is Phase.PENDING:
                    self._unqueued = True
                elif phase is Phase.AVAILABLE:
                    self._has_news_for_owners = True
                elif found is not None:
                    self._give_up(found)
            case HoldChanged(name=name, attempt=attempt):
                found = self.book.find(name)
                is_held = found is not None and found.phase is Phase.AVAILABLE and attempt_of(found) == attempt
                if not is_held:
                    self._end(attempt)
                elif self._resize(name):
                    self._untold[name] = None

    def _give_up(self, found: Reservation) -> None:
        """It waits no more; a place that is on its way is given back when it comes."""
        attempt = attempt_of(found)
        self._queue.remove(attempt)
        self._commits.gave_up(attempt)

    def _resize(self, name: str) -> bool:
        """Hold for a reservation what its owners leave; whether that is another amount than before."""
        found, placement = self.book.find(name), self.places.placement(name)
        if found is None or placement is None:
            return False
        return self._commits.change(attempt_of(found), placement)

    # ---- words

    def _row(self, name: str, now_ms: int) -> list[Effect]:
        found = self.book.find(name)
        if found is None:
            return self._record(name)
        return [*self._record(name), self._fact(found, found.phase.value, now_ms)]

    def _record(self, name: str) -> list[Effect]:
        found, version = self.book.find(name), self._versions.get(name, 0)
        if found is None:
            self._versions.pop(name, None)
            write = Write(kind=KIND, id=name, value=None, expect=version)
            return [Record(writes=(write,))] if version else []
        self._versions[name] = version + 1
        return [Record(writes=(Write(kind=KIND, id=name, value=encode_row(found), expect=version),))]

    def _fact(self, found: Reservation, phase: str, now_ms: int) -> Publish:
        name, (replica, attempt) = found.spec.name, attempt_of(found)
        left = self.places.remainder(name) if phase == Phase.AVAILABLE.value else None
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

    def check(self) -> None:
        """Raise InvariantBroken unless the book agrees with itself and with what is held."""
        self.book.check()
        for found in self.book.rows():
            if found.phase is not Phase.AVAILABLE:
                continue
            held, placement = self._commits.held.get(attempt_of(found)), self.places.placement(found.spec.name)
            if held is None or held.placement != placement:
                raise InvariantBroken("a reservation does not hold what its owners leave", reservation=found.spec.name)
