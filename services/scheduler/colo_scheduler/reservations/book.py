"""The book of all reservations: their places, owners and ends, and the changes that follow when owners come, leave, or time passes.

Pure: every method takes the time, nothing happens between calls. After its last moment a reservation takes no owner; only `wake`
ends it, so that no change is lost when a call is refused. The scheduler uses the book so:

    create(spec)        then decides `placement_request(name)` like the request of any replica and commits its placement;
    bind(placement)     when that is committed;
    matching(claimant)  before it decides a request: these places are open to it, beside free capacity;
    use(claimant, placement)   when an owner's placement, which names the reservation, is committed;
    leave(attempt)      when an owner's place is released;
    deadline_ms(), wake(now)   its timer;
    load(rows, placements)     after a restart; load((), placements) for rows that other schedulers wrote.

After each HoldChanged the caller makes the node's hold of that attempt equal to `held(change)`, or gives it back when that is None:
so a reservation and its owners together never hold less than the reserved amounts nor more than their real needs. A reservation
that ends while it waits has no hold, but its placement request is to be withdrawn.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import structs

from colo_common.events.job import PlacementRequest
from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_common.model.placement import Attempt, Placement
from colo_common.model.reasons import Reason
from colo_common.model.reservation import ReservationSpec
from colo_common.model.reservation_rules import check_reservation
from colo_common.model.transitions import Fired
from colo_scheduler.ledger.port import name_of
from colo_scheduler.reservations.agreement import check_agreement
from colo_scheduler.reservations.expiry import is_over, last_ms
from colo_scheduler.reservations.fit import ReservationCapacity, fits_reservation, policies_conflict
from colo_scheduler.reservations.lifecycle import RESERVATION, EndReason, ReservationPhase
from colo_scheduler.reservations.match import mismatch_of
from colo_scheduler.reservations.owner_index import OwnerIndex
from colo_scheduler.reservations.owners import Claimant, is_of_job, job_of
from colo_scheduler.reservations.pre_allocation import check_pre_allocation
from colo_scheduler.reservations.remainder import Remainder, remainder_of
from colo_scheduler.reservations.reservation import (
    BookChange,
    HoldChanged,
    Match,
    PhaseChanged,
    Reservation,
    attempt_of,
    offer_of,
    placement_request_of,
)
from colo_scheduler.reservations.timers import ReservationTimers
from colo_scheduler.reservations.use import check_use

__all__ = [
    "KEEP_ENDED_MS",
    "NO_SUCH_RESERVATION",
    "RESERVATIONS_MOST",
    "BookFull",
    "ReservationBook",
    "ReservationExists",
]

RESERVATIONS_MOST: Final = 10_000
"""The most reservations in the book, ended ones included."""
NO_SUCH_RESERVATION: Final = "there is no reservation of this name"
_NOBODY: Final[Mapping[Attempt, Sequence[Attempt]]] = {}
KEEP_ENDED_MS: Final = 86_400_000
"""How long an ended reservation can still be read."""


class ReservationExists(InvalidInput):
    """Another reservation has this name and has not ended."""


class BookFull(InvalidInput):
    """The book is full, and no reservation in it has ended."""


class ReservationBook:
    """Every reservation, and the attempts that use it. An ended reservation is deleted after `keep_ended_ms`."""

    def __init__(self, *, most: int = RESERVATIONS_MOST, keep_ended_ms: int = KEEP_ENDED_MS) -> None:
        self._most = most
        self._keep_ended_ms = keep_ended_ms
        self._reservations: dict[str, Reservation] = {}
        self._owners: dict[str, dict[Attempt, Placement]] = {}
        self._used_by: dict[Attempt, str] = {}
        self._on_node: dict[str, set[str]] = {}
        self._node_of: dict[str, str] = {}
        self._newest_attempt = 0
        self._timers = ReservationTimers()
        self._index = OwnerIndex()

    def fork(self) -> "ReservationBook":
        """A copy of the current content, for trials: it is only read."""
        other = ReservationBook(most=self._most, keep_ended_ms=self._keep_ended_ms)
        other._reservations = dict(self._reservations)
        other._owners = {name: dict(owners) for name, owners in self._owners.items()}
        other._used_by = dict(self._used_by)
        other._on_node = {node: set(names) for node, names in self._on_node.items()}
        other._index = self._index.fork()
        return other

    # ---- reads

    def __len__(self) -> int:
        """The number of reservations kept, ended ones included."""
        return len(self._reservations)

    def find(self, name: str) -> Reservation | None:
        """The reservation of that name, also if it ended and is still kept."""
        return self._reservations.get(name)

    @property
    def has_places(self) -> bool:
        """Whether any reservation holds a place."""
        return bool(self._on_node)

    def used_by(self) -> tuple[Attempt, ...]:
        """The attempts that use a reservation, or whose use ended one, sorted."""
        return tuple(sorted(self._used_by))

    def is_used_by(self, attempt: Attempt) -> bool:
        """Whether the attempt uses a reservation, or its use ended one."""
        return attempt in self._used_by

    def names(self) -> tuple[str, ...]:
        """The names of all reservations, the oldest first."""
        return tuple(self._reservations)

    def rows(self) -> tuple[Reservation, ...]:
        """All reservations by name: with the ledger's placements, the full input of `load`."""
        return tuple(self._reservations[name] for name in sorted(self._reservations))

    def jobs(self) -> tuple[str, ...]:
        """The jobs that alone may own some live reservation, sorted: `workload_deleted` ends the reservation with its job."""
        found: set[str] = set()
        for reservation in self._reservations.values():
            terms = reservation.spec.owners if not reservation.phase.is_ended else ()
            jobs = {job_of(term) for term in terms}
            if len(jobs) == 1:
                found |= jobs - {""}
        return tuple(sorted(found))

    def owners(self, name: str) -> tuple[Placement, ...]:
        """The placements that use the reservation now, by replica and attempt."""
        owners = self._owners.get(name, {})
        return tuple(owners[attempt] for attempt in sorted(owners))

    def remainder(self, name: str) -> Remainder | None:
        """The part held in the reservation's own name now; None when it holds no place."""
        reservation = self._reservations.get(name)
        if reservation is None or reservation.phase is not ReservationPhase.AVAILABLE or reservation.place is None:
            return None
        return remainder_of(reservation.place, self.owners(name))

    def held(self, change: HoldChanged) -> Remainder | None:
        """The hold to set for the attempt and node of a change; None: the attempt's place is to be given back."""
        found, left = self._reservations.get(change.name), self.remainder(change.name)
        if found is None or left is None or attempt_of(found) != change.attempt:
            return None
        return left if left.node == change.node else None

    def placement_requests(self) -> tuple[str, ...]:
        """The reservations that wait for a place, by name; `placement_request` returns the replica of each."""
        return tuple(
            name for name in sorted(self._reservations) if self._reservations[name].phase is ReservationPhase.PENDING
        )

    def on_nodes(self, nodes: Iterable[str]) -> tuple[Reservation, ...]:
        """The reservations that hold a place on these nodes, by node and name."""
        return tuple(self._reservations[name] for node in sorted(nodes) for name in sorted(self._on_node.get(node, ())))

    def conflicts_on(self, node: str, spec: ReservationSpec) -> bool:
        """Whether the node has reservations whose policy conflicts with a new one of this policy."""
        others = [self._reservations[name].spec for name in sorted(self._on_node.get(node, ())) if name != spec.name]
        return policies_conflict(spec.policy, [other.policy for other in others])

    def conflicting_nodes(self, spec: ReservationSpec) -> tuple[str, ...]:
        """The nodes where `conflicts_on` is true, sorted."""
        return tuple(node for node in sorted(self._on_node) if self.conflicts_on(node, spec))

    def matching(self, claimant: Claimant, now_ms: int) -> tuple[Match, ...]:
        """The places that the claimant may use now, by node and name; whether it fits there is not tested."""
        matches = [
            Match(name=name, node=found.place.node, context=self._context(name))
            for name in self._index.candidates(claimant)
            if (found := self._reservations[name]).place is not None
            and not self._is_over(found, now_ms)
            and mismatch_of(found.spec, claimant) is None
        ]
        return tuple(sorted(matches, key=lambda match: (match.node, match.name)))

    def why_not(self, claimant: Claimant, now_ms: int) -> Reason | None:
        """Why a claimant cannot use the reservation that it names; None when it can, by the sums of CPU and memory."""
        found = self._reservations.get(claimant.reservation)
        if found is None or found.phase is not ReservationPhase.AVAILABLE or self._is_over(found, now_ms):
            return Reason.RESERVATION_UNKNOWN
        if mismatch_of(found.spec, claimant) is not None:
            return Reason.RESERVATION_NOT_OWNED
        context = self._context(found.spec.name)
        is_short = context.policy.is_bounded and fits_reservation(claimant.request, context)
        return Reason.RESERVATION_SHORT if is_short else None

    def placement_request(self, name: str) -> PlacementRequest:
        """The replica that stands for a waiting reservation. Raises InvalidInput for any other reservation."""
        reservation = self._demand(name)
        if reservation.phase is not ReservationPhase.PENDING:
            raise InvalidInput("reservation", "must wait for a place", f"{name} is {reservation.phase}")
        return placement_request_of(reservation)

    # ---- changes

    def create(self, spec: ReservationSpec, now_ms: int) -> tuple[BookChange, ...]:
        """Take a new reservation; an identical repetition changes nothing.

        Raises InvalidInput for a reservation that breaks a rule, ReservationExists for a different one under a name in use,
        BookFull when the book is full and no reservation in it has ended.
        """
        known = self._reservations.get(spec.name)
        if known is not None and not known.phase.is_ended:
            if known.spec == spec:
                return ()
            raise ReservationExists("name", "must not be the name of another reservation", spec.name)
        check_reservation(spec, now_ms)
        if known is None:
            self._make_room(spec.name)
        self._forget(spec.name)
        # A ledger never takes an ended attempt again, so a reused name needs a later attempt.
        self._newest_attempt = max(self._newest_attempt + 1, now_ms)
        self._keep(Reservation(spec=spec, created_ms=now_ms, attempt=self._newest_attempt))
        return (PhaseChanged(name=spec.name, phase=ReservationPhase.PENDING),)

    def bind(self, place: Placement, now_ms: int, over: Sequence[Placement] = ()) -> tuple[BookChange, ...]:
        """Bind a reservation to its committed place; `over` are the placements of the running owners inside it.

        For a reservation that ended meanwhile the result is a HoldChanged without remainder: the place is to be given back.
        """
        name = name_of(place.replica)
        reservation = self._reservations.get(name)
        hold = HoldChanged(name=name, node=place.node, attempt=(place.replica, place.attempt))
        if reservation is None or reservation.phase.is_ended or self._is_over(reservation, now_ms):
            return (hold,)
        if attempt_of(reservation) != hold.attempt:
            return (hold,)
        if reservation.phase is ReservationPhase.AVAILABLE:
            if reservation.place == place:
                return ()
            raise InvalidInput("placement", "the reservation holds another place already", place.node)
        if (place.cpu_mcpu, place.memory_bytes) != structs.astuple(reservation.spec.request):
            raise InvalidInput("placement", "must be of the size that the reservation asks for", place.cpu_mcpu)
        if self.conflicts_on(place.node, reservation.spec):
            raise InvalidInput("policy", "cannot stand beside those of the node's other reservations", name)
        check_pre_allocation(reservation.spec, place, over)
        for owner in over:
            if (owner.replica, owner.attempt) in self._used_by:
                raise InvalidInput("over", "must not use another reservation", owner.replica)
        fired = self._fire(reservation, "bound")
        inside = tuple((owner.replica, owner.attempt) for owner in over)
        self._keep(structs.replace(reservation, phase=ReservationPhase(fired.state), place=place, over=inside))
        for owner in over:
            self._add_owner(name, owner)
        return (
            PhaseChanged(name=name, phase=ReservationPhase.AVAILABLE, node=place.node),
            hold,
        )

    def use(self, claimant: Claimant, placement: Placement, now_ms: int) -> tuple[BookChange, ...]:
        """Take an owner's committed placement, which names the reservation it uses. An identical repetition changes nothing.

        Raises InvalidInput when the reservation holds no place, is held for another owner, on another node, used up, or too small
        for a claimant that may not go beyond it.
        """
        name, attempt = placement.reservation, (placement.replica, placement.attempt)
        if self._used_by.get(attempt) == name and self._owners.get(name, {}).get(attempt) == placement:
            return ()
        reservation = self._demand(name)
        if (
            reservation.phase is not ReservationPhase.AVAILABLE
            or reservation.place is None
            or self._is_over(reservation, now_ms)
        ):
            phase = EndReason.EXPIRED if self._is_over(reservation, now_ms) else reservation.phase
            raise InvalidInput("reservation", "must hold a place", f"{name} is {phase}")
        if attempt in self._used_by:
            raise InvalidInput("placement", "must not change the place of an attempt", placement.replica)
        check_use(reservation.spec, reservation.place, self.owners(name), claimant, placement)
        fired = self._fire(reservation, "used", once=reservation.spec.allocate_once)
        self._add_owner(name, placement)
        if fired.state != ReservationPhase.SUCCEEDED:
            return (HoldChanged(name=name, node=placement.node, attempt=attempt_of(reservation)),)
        return self._end(reservation, ReservationPhase.SUCCEEDED, EndReason.USED, now_ms)

    def leave(self, attempt: Attempt) -> tuple[BookChange, ...]:
        """An attempt gives up its place: its part of a reservation falls back to the reservation, while that holds a place."""
        name = self._used_by.pop(attempt, None)
        if name is None:
            return ()
        self._owners[name].pop(attempt, None)
        reservation = self._reservations[name]
        if reservation.phase.is_ended or reservation.place is None:
            return ()
        self._fire(reservation, "left")
        return (HoldChanged(name=name, node=reservation.place.node, attempt=attempt_of(reservation)),)

    def delete(self, name: str) -> tuple[BookChange, ...]:
        """Delete a reservation at once, in any phase; its owners keep their holds. Raises InvalidInput when unknown."""
        reservation = self._demand(name)
        node = reservation.place.node if reservation.phase is ReservationPhase.AVAILABLE and reservation.place else ""
        self._forget(name)
        return (HoldChanged(name=name, node=node, attempt=attempt_of(reservation)),) if node else ()

    def renew(self, name: str, now_ms: int) -> tuple[BookChange, ...]:
        """Make a reservation whose attempt lost its place wait again, under a later attempt. Its owners keep their holds."""
        reservation = self._demand(name)
        if reservation.phase.is_ended:
            return ()
        if reservation.phase is ReservationPhase.AVAILABLE:
            self._fire(reservation, "unheld")
            for attempt in self._owners.pop(name, {}):
                self._used_by.pop(attempt, None)
        self._newest_attempt = max(self._newest_attempt + 1, now_ms)
        self._keep(
            structs.replace(
                reservation, phase=ReservationPhase.PENDING, place=None, over=(), attempt=self._newest_attempt
            )
        )
        return (PhaseChanged(name=name, phase=ReservationPhase.PENDING),)

    def node_deleted(self, node: str, now_ms: int) -> tuple[BookChange, ...]:
        """End the reservations on a node that will not come back."""
        changes: list[BookChange] = []
        for name in sorted(self._on_node.get(node, ())):
            reservation = self._reservations[name]
            self._fire(reservation, "node_gone")
            changes += self._end(reservation, ReservationPhase.FAILED, EndReason.NODE_DELETED, now_ms)
        return tuple(changes)

    def workload_deleted(self, job: str, now_ms: int) -> tuple[BookChange, ...]:
        """End the reservations that only this ended job may own, so that they do not block other work."""
        changes: list[BookChange] = []
        for reservation in self.rows():
            terms = reservation.spec.owners
            is_only_for_it = bool(terms) and all(is_of_job(term, job) for term in terms)
            if is_only_for_it and not reservation.phase.is_ended:
                self._fire(reservation, "owner_gone")
                changes += self._end(reservation, ReservationPhase.FAILED, EndReason.OWNER_DELETED, now_ms)
        return tuple(changes)

    # ---- time

    def deadline_ms(self) -> int | None:
        """The next moment at which `wake` changes something, None when there is none."""
        first = self._timers.first()
        return None if first is None else first[0]

    def wake(self, now_ms: int) -> tuple[BookChange, ...]:
        """End expired reservations and delete those that ended long ago."""
        changes: list[BookChange] = []
        while (first := self._timers.first()) is not None and first[0] <= now_ms:
            reservation = self._reservations[first[1]]
            if reservation.phase.is_ended:
                self._forget(first[1])
                continue
            self._fire(reservation, "expired")
            changes += self._end(reservation, ReservationPhase.FAILED, EndReason.EXPIRED, now_ms)
        return tuple(changes)

    def _is_over(self, reservation: Reservation, now_ms: int) -> bool:
        spec = reservation.spec
        return is_over(now_ms, reservation.created_ms, spec.ttl_ms, spec.expires_ms)

    # ---- parts

    def _demand(self, name: str) -> Reservation:
        reservation = self._reservations.get(name)
        if reservation is None:
            raise InvalidInput("reservation", NO_SUCH_RESERVATION, name)
        return reservation

    def _context(self, name: str) -> ReservationCapacity:
        return offer_of(self._reservations[name].spec, self.owners(name))

    def _add_owner(self, name: str, placement: Placement) -> None:
        attempt = (placement.replica, placement.attempt)
        self._owners[name][attempt] = placement
        self._used_by[attempt] = name

    def _fire(self, reservation: Reservation, event: str, *, once: bool = False) -> Fired:
        outcome = RESERVATION.demand(reservation.phase, event, {"once": once})
        if not isinstance(outcome, Fired):
            raise InvariantBroken("a reservation that ended was moved", reservation=reservation.spec.name, event=event)
        return outcome

    def _end(
        self, reservation: Reservation, phase: ReservationPhase, reason: EndReason, now_ms: int
    ) -> tuple[BookChange, ...]:
        name = reservation.spec.name
        node = reservation.place.node if reservation.place else ""
        self._keep(structs.replace(reservation, phase=phase, reason=reason.value, ended_ms=now_ms))
        changed = PhaseChanged(name=name, phase=phase, reason=reason.value, node=node)
        return (changed, HoldChanged(name=name, node=node, attempt=attempt_of(reservation))) if node else (changed,)

    def _keep(self, reservation: Reservation) -> None:
        name = reservation.spec.name
        self._reservations[name] = reservation
        self._owners.setdefault(name, {})
        self._leave_node(name)
        if reservation.phase is ReservationPhase.AVAILABLE and reservation.place is not None:
            self._on_node.setdefault(reservation.place.node, set()).add(name)
            self._node_of[name] = reservation.place.node
            self._index.add(name, reservation.spec.owners)
        self._timers.set(name, self._due_ms(reservation))

    def _due_ms(self, reservation: Reservation) -> int | None:
        if reservation.phase.is_ended:
            return reservation.ended_ms + self._keep_ended_ms
        last = last_ms(reservation.created_ms, reservation.spec.ttl_ms, reservation.spec.expires_ms)
        return None if last is None else last + 1

    def _leave_node(self, name: str) -> None:
        self._index.remove(name)
        node = self._node_of.pop(name, None)
        if node is not None:
            self._on_node[node].discard(name)
            if not self._on_node[node]:
                del self._on_node[node]

    def _make_room(self, name: str) -> None:
        if len(self._reservations) < self._most:
            return
        ended = [(row.ended_ms, row.spec.name) for row in self._reservations.values() if row.phase.is_ended]
        if not ended:
            raise BookFull("reservation", f"at most {self._most} reservations are kept", name)
        self._forget(min(ended)[1])

    def _forget(self, name: str) -> None:
        self._leave_node(name)
        self._timers.set(name, None)
        self._reservations.pop(name, None)
        for attempt in self._owners.pop(name, {}):
            self._used_by.pop(attempt, None)

    # ---- restart

    def load(
        self,
        rows: Iterable[Reservation],
        placements: Iterable[Placement],
        now_ms: int,
        inside: Mapping[Attempt, Sequence[Attempt]] = _NOBODY,
    ) -> tuple[BookChange, ...]:
        """Take rows and the ledger's placements as the truth, and update the rows that are older than the ledger.

        A committed place is bound, a committed use counts. A place that belongs to no reservation is returned as a HoldChanged; a
        use of a deleted reservation counts for nothing. `inside`: for each place that was committed over running owners the
        attempts of these owners; an attempt that is not among `placements` has left.
        """
        for row in rows:
            self._forget(row.spec.name)
            self._keep(row)
            self._newest_attempt = max(self._newest_attempt, row.attempt)
        changes: list[BookChange] = []
        uses: list[Placement] = []
        placements = list(placements)
        by_attempt = {(placement.replica, placement.attempt): placement for placement in placements}
        for placement in placements:
            if not name_of(placement.replica):
                uses.append(placement)
                continue
            try:
                over = inside.get((placement.replica, placement.attempt), ())
                still = [by_attempt[each] for each in over if each in by_attempt and each not in self._used_by]
                changes += self.bind(placement, now_ms, still)
            except InvalidInput:
                attempt = (placement.replica, placement.attempt)
                changes.append(HoldChanged(name=name_of(placement.replica), node=placement.node, attempt=attempt))
        taken_over = {attempt: row.spec.name for row in self.rows() for attempt in row.over}
        for placement in uses:
            name = placement.reservation or taken_over.get((placement.replica, placement.attempt), "")
            changes += self._load_use(name, placement, now_ms)
        return tuple(changes)

    def _load_use(self, name: str, placement: Placement, now_ms: int) -> tuple[BookChange, ...]:
        reservation = self._reservations.get(name)
        if reservation is None or reservation.phase is not ReservationPhase.AVAILABLE or reservation.place is None:
            return ()
        if reservation.place.node != placement.node or (placement.replica, placement.attempt) in self._used_by:
            return ()
        if placement.decided_at_ms < reservation.place.decided_at_ms and name == placement.reservation:
            # The attempt used an earlier reservation of that name.
            return ()
        self._add_owner(name, placement)
        if reservation.spec.allocate_once:
            return self._end(reservation, ReservationPhase.SUCCEEDED, EndReason.USED, now_ms)
        return (HoldChanged(name=name, node=placement.node, attempt=attempt_of(reservation)),)

    def check(self) -> None:
        """`check_one` of all reservations, and `check_sums`."""
        for name in self._reservations:
            self.check_one(name)
        self.check_sums()

    def check_one(self, name: str) -> int:
        """Raise InvariantBroken unless the indexes agree with a reservation; returns its number of owners, 0 for a deleted one."""
        found, owners = self._reservations.get(name), self._owners.get(name, {})
        if found is None:
            return 0
        node = found.place.node if found.place else ""
        is_on_node, has_timer = name in self._on_node.get(node, ()), self._timers.at(name) == self._due_ms(found)
        check_agreement(found, owners, self._used_by, is_on_node=is_on_node, has_timer=has_timer)
        return len(owners)

    def check_sums(self) -> None:
        """Raise InvariantBroken unless every use is of a known reservation: with `check_one` of all, of exactly the right one."""
        owners = sum([len(owners) for owners in self._owners.values()])
        if owners != len(self._used_by) or not self._owners.keys() <= self._reservations.keys():
            raise InvariantBroken("owners and their reservations disagree", owners=owners, used_by=len(self._used_by))
