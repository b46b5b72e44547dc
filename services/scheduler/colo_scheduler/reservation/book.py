"""The book of all reservations: who holds what for whom, and what must change when owners come, leave, or time runs out.

Pure: every method takes the time, nothing happens between calls. From its last moment on nobody gets a reservation any more; only
`wake` ends it, so that no answer is lost when a call is refused. What the scheduler does with the book:

    create(spec)        then decides `want(name)` like the want of any replica and commits its placement;
    bind(placement)     when that is committed;
    matching(claimant)  before it decides a want: these places are open to it, beside what is free;
    use(claimant, placement)   when an owner's placement, which names the reservation, is committed;
    leave(attempt)      when an owner's place is released;
    deadline_ms(), wake(now)   its timer;
    load(rows, placements)     after a restart.

After each change the node's hold of `attempt_of(name)` is to be made equal to `remainder(name)`, or dropped when that is None: so a
reservation and its owners together never hold less than what was reserved nor more than what they really need. A reservation that
ends while it waits has no hold, but its want is to be withdrawn.
"""

import heapq
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import structs

from colo_common.events.job import ReplicaWant
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_common.model.placement import Placement
from colo_common.model.transitions import Fired
from colo_scheduler.ledger import Attempt
from colo_scheduler.reservation.amounts import CPU, MEMORY
from colo_scheduler.reservation.expiry import is_over, last_ms
from colo_scheduler.reservation.fit import Offer, fits_reservation, policies_conflict
from colo_scheduler.reservation.held_place import (
    BookChange,
    HoldChanged,
    Match,
    PhaseChanged,
    Reservation,
    name_of,
    offer_of,
    want_of,
)
from colo_scheduler.reservation.lifecycle import RESERVATION, EndReason, Phase
from colo_scheduler.reservation.match import Mismatch, mismatch_of
from colo_scheduler.reservation.owners import Claimant, is_of_job
from colo_scheduler.reservation.pre_allocation import check_pre_allocation
from colo_scheduler.reservation.remainder import Remainder, are_shares_within, remainder_of
from colo_scheduler.reservation.spec import ReservationSpec, check_reservation

__all__ = ["KEEP_ENDED_MS", "RESERVATIONS_MOST", "ReservationBook"]

RESERVATIONS_MOST: Final = 10_000
"""The most reservations in the book, ended ones included."""
KEEP_ENDED_MS: Final = 86_400_000
"""How long an ended reservation can still be asked for."""
_STALE_TIMERS_MOST: Final = 64


class ReservationBook:
    """Every reservation, and which attempts use it. A reservation that ended is forgotten after `keep_ended_ms`."""

    def __init__(self, *, most: int = RESERVATIONS_MOST, keep_ended_ms: int = KEEP_ENDED_MS) -> None:
        self._most = most
        self._keep_ended_ms = keep_ended_ms
        self._reservations: dict[str, Reservation] = {}
        self._owners: dict[str, dict[Attempt, Placement]] = {}
        self._used_by: dict[Attempt, str] = {}
        self._on_node: dict[str, set[str]] = {}
        self._timers: list[tuple[int, str]] = []

    # ---- reads

    def find(self, name: str) -> Reservation | None:
        """The reservation of that name, also one that ended a while ago."""
        return self._reservations.get(name)

    def rows(self) -> tuple[Reservation, ...]:
        """All reservations by name: with the ledger's placements, all that `load` needs."""
        return tuple(self._reservations[name] for name in sorted(self._reservations))

    def owners(self, name: str) -> tuple[Placement, ...]:
        """The placements that use the reservation now, by replica and attempt."""
        owners = self._owners.get(name, {})
        return tuple(owners[attempt] for attempt in sorted(owners))

    def remainder(self, name: str) -> Remainder | None:
        """What is to be held in the reservation's own name now; None when it holds no place."""
        reservation = self._reservations.get(name)
        if reservation is None or reservation.phase is not Phase.AVAILABLE or reservation.place is None:
            return None
        return remainder_of(reservation.place, self.owners(name))

    def wants(self) -> tuple[str, ...]:
        """The reservations that wait for a place, by name; `want` gives the replica that stands for one."""
        return tuple(name for name in sorted(self._reservations) if self._reservations[name].phase is Phase.PENDING)

    def offers_on(self, node: str, now_ms: int) -> tuple[Offer, ...]:
        """All reservations on a node that hold a place, by name, in numbers."""
        names = sorted(self._on_node.get(node, ()))
        return tuple(self._offer(name) for name in names if not self._is_over(self._reservations[name], now_ms))

    def conflicts_on(self, node: str, spec: ReservationSpec) -> bool:
        """Whether the node holds reservations beside which one of this policy must not stand."""
        others = [self._reservations[name].spec for name in sorted(self._on_node.get(node, ())) if name != spec.name]
        return policies_conflict(spec.policy, [other.policy for other in others])

    def matching(self, claimant: Claimant, now_ms: int) -> tuple[Match, ...]:
        """The places that the claimant may use now, by node and name; whether it fits there is not asked."""
        matches = [
            Match(name=name, node=node, offer=self._offer(name))
            for node in sorted(self._on_node)
            for name in sorted(self._on_node[node])
            if not self._is_over(self._reservations[name], now_ms)
            and mismatch_of(self._reservations[name].spec, claimant) is None
        ]
        return tuple(matches)

    def want(self, name: str) -> ReplicaWant:
        """The replica that stands for a reservation that waits. Raises InvalidInput for any other reservation."""
        reservation = self._demand(name)
        if reservation.phase is not Phase.PENDING:
            raise InvalidInput("reservation", "must wait for a place", f"{name} is {reservation.phase}")
        return want_of(reservation)

    # ---- changes

    def create(self, spec: ReservationSpec, now_ms: int) -> tuple[BookChange, ...]:
        """Take a new reservation. The same again changes nothing; another one under a name that is in use raises InvalidInput."""
        known = self._reservations.get(spec.name)
        if known is not None and not known.phase.is_ended:
            if known.spec == spec:
                return ()
            raise InvalidInput("name", "must not be the name of another reservation", spec.name)
        check_reservation(spec, now_ms)
        if known is None:
            self._make_room(spec.name)
        self._forget(spec.name)
        self._keep(Reservation(spec=spec, created_ms=now_ms))
        return (PhaseChanged(name=spec.name, phase=Phase.PENDING),)

    def bind(self, place: Placement, now_ms: int, over: Sequence[Placement] = ()) -> tuple[BookChange, ...]:
        """The replica that stands for a reservation got this place, `over` the running owners that are inside it.

        For a reservation that ended meanwhile the answer is a HoldChanged without remainder: the place is to be given back.
        """
        name = name_of(place.replica)
        reservation = self._reservations.get(name)
        if reservation is None or reservation.phase.is_ended or self._is_over(reservation, now_ms):
            return (HoldChanged(name=name, node=place.node),)
        if reservation.phase is Phase.AVAILABLE:
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
        self._keep(structs.replace(reservation, phase=Phase(fired.state), place=place))
        for owner in over:
            self._add_owner(name, owner)
        return (
            PhaseChanged(name=name, phase=Phase.AVAILABLE, node=place.node),
            HoldChanged(name=name, node=place.node),
        )

    def use(self, claimant: Claimant, placement: Placement, now_ms: int) -> tuple[BookChange, ...]:
        """An owner's placement, which names the reservation it uses, is committed. The same again changes nothing.

        Raises InvalidInput when the reservation holds no place, is somebody else's, on another node, used up, or too small for a
        claimant that may not go beyond it.
        """
        name, attempt = placement.reservation, (placement.replica, placement.attempt)
        if self._used_by.get(attempt) == name and self._owners.get(name, {}).get(attempt) == placement:
            return ()
        reservation = self._demand(name)
        self._check_use(reservation, claimant, placement, now_ms)
        fired = self._fire(reservation, "used", once=reservation.spec.allocate_once)
        self._add_owner(name, placement)
        hold = HoldChanged(name=name, node=placement.node)
        if fired.state != Phase.SUCCEEDED:
            return (hold,)
        return self._end(reservation, Phase.SUCCEEDED, EndReason.USED, now_ms)

    def leave(self, attempt: Attempt) -> tuple[BookChange, ...]:
        """An attempt holds its place no more: what it took from a reservation falls back to it, while that holds a place."""
        name = self._used_by.pop(attempt, None)
        if name is None:
            return ()
        self._owners[name].pop(attempt, None)
        reservation = self._reservations[name]
        if reservation.phase.is_ended or reservation.place is None:
            return ()
        self._fire(reservation, "left")
        return (HoldChanged(name=name, node=reservation.place.node),)

    def delete(self, name: str) -> tuple[BookChange, ...]:
        """Forget a reservation at once, whatever its phase; its owners keep what they hold. Raises InvalidInput when unknown."""
        reservation = self._demand(name)
        node = reservation.place.node if reservation.phase is Phase.AVAILABLE and reservation.place else ""
        self._forget(name)
        return (HoldChanged(name=name, node=node),) if node else ()

    def node_gone(self, node: str, now_ms: int) -> tuple[BookChange, ...]:
        """A node will not come back: the reservations there end."""
        changes: list[BookChange] = []
        for name in sorted(self._on_node.get(node, ())):
            reservation = self._reservations[name]
            self._fire(reservation, "node_gone")
            changes += self._end(reservation, Phase.FAILED, EndReason.NODE_GONE, now_ms)
        return tuple(changes)

    def workload_gone(self, job: str, now_ms: int) -> tuple[BookChange, ...]:
        """A job is over: the reservations that are for nobody else end, so that they do not keep everybody else away."""
        changes: list[BookChange] = []
        for reservation in self.rows():
            terms = reservation.spec.owners
            is_only_for_it = bool(terms) and all(is_of_job(term, job) for term in terms)
            if is_only_for_it and not reservation.phase.is_ended:
                self._fire(reservation, "owner_gone")
                changes += self._end(reservation, Phase.FAILED, EndReason.OWNER_GONE, now_ms)
        return tuple(changes)

    # ---- time

    def deadline_ms(self) -> int | None:
        """The next moment at which `wake` has something to do, None when there is none."""
        while self._timers and self._timer_of(self._timers[0][1]) != self._timers[0][0]:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def wake(self, now_ms: int) -> tuple[BookChange, ...]:
        """End what is over and forget what ended long ago."""
        changes: list[BookChange] = []
        while (due := self.deadline_ms()) is not None and due <= now_ms:
            name = heapq.heappop(self._timers)[1]
            reservation = self._reservations[name]
            if reservation.phase.is_ended:
                self._forget(name)
                continue
            self._fire(reservation, "expired")
            changes += self._end(reservation, Phase.FAILED, EndReason.EXPIRED, now_ms)
        return tuple(changes)

    def _timer_of(self, name: str) -> int | None:
        reservation = self._reservations.get(name)
        if reservation is None:
            return None
        if reservation.phase.is_ended:
            return reservation.ended_ms + self._keep_ended_ms
        last = last_ms(reservation.created_ms, reservation.spec.ttl_ms, reservation.spec.expires_ms)
        return None if last is None else last + 1

    def _is_over(self, reservation: Reservation, now_ms: int) -> bool:
        spec = reservation.spec
        return is_over(now_ms, reservation.created_ms, spec.ttl_ms, spec.expires_ms)

    # ---- parts

    def _demand(self, name: str) -> Reservation:
        reservation = self._reservations.get(name)
        if reservation is None:
            raise InvalidInput("reservation", "must be the name of a reservation", name)
        return reservation

    def _offer(self, name: str) -> Offer:
        return offer_of(self._reservations[name].spec, self.owners(name))

    def _check_use(self, reservation: Reservation, claimant: Claimant, placement: Placement, now_ms: int) -> None:
        spec, place = reservation.spec, reservation.place
        if reservation.phase is not Phase.AVAILABLE or place is None or self._is_over(reservation, now_ms):
            phase = EndReason.EXPIRED if self._is_over(reservation, now_ms) else reservation.phase
            raise InvalidInput("reservation", "must hold a place", f"{spec.name} is {phase}")
        if place.node != placement.node:
            raise InvalidInput("placement.node", f"must be the reservation's node {place.node}", placement.node)
        if (placement.replica, placement.attempt) in self._used_by:
            raise InvalidInput("placement", "must not change the place of an attempt", placement.replica)
        mismatch = mismatch_of(spec, claimant)
        if mismatch is not None or claimant.ignores_reservations:
            raise InvalidInput("reservation", "must be held for this owner", mismatch or Mismatch.NOT_OWNER)
        if spec.policy.is_bounded:
            self._check_bounds(spec.name, place, placement)

    def _check_bounds(self, name: str, place: Placement, placement: Placement) -> None:
        request = {CPU: placement.cpu_mcpu, MEMORY: placement.memory_bytes}
        for short in fits_reservation(request, self._offer(name)):
            raise InvalidInput("reservation", short.sentence(with_amounts=True), name)
        left = remainder_of(place, self.owners(name))
        if place.cpus and not CpuSet.parse(placement.cpus) <= CpuSet.parse(left.cpus):
            raise InvalidInput(
                "placement.cpus", f"must be among {left.cpus}, which the reservation has left", placement.cpus
            )
        if not are_shares_within(placement.devices, left.devices):
            raise InvalidInput("placement.devices", "must be among what the reservation has left", placement.devices)

    def _add_owner(self, name: str, placement: Placement) -> None:
        attempt = (placement.replica, placement.attempt)
        self._owners[name][attempt] = placement
        self._used_by[attempt] = name

    def _fire(self, reservation: Reservation, event: str, *, once: bool = False) -> Fired:
        outcome = RESERVATION.demand(reservation.phase, event, {"once": once})
        if not isinstance(outcome, Fired):
            raise InvariantBroken("a reservation that ended was moved", reservation=reservation.spec.name, event=event)
        return outcome

    def _end(self, reservation: Reservation, phase: Phase, reason: EndReason, now_ms: int) -> tuple[BookChange, ...]:
        name = reservation.spec.name
        node = reservation.place.node if reservation.place else ""
        self._keep(structs.replace(reservation, phase=phase, reason=reason.value, ended_ms=now_ms))
        changed = PhaseChanged(name=name, phase=phase, reason=reason.value, node=node)
        return (changed, HoldChanged(name=name, node=node)) if node else (changed,)

    def _keep(self, reservation: Reservation) -> None:
        name = reservation.spec.name
        self._reservations[name] = reservation
        self._owners.setdefault(name, {})
        if reservation.place is not None:
            names = self._on_node.setdefault(reservation.place.node, set())
            names.discard(name) if reservation.phase.is_ended else names.add(name)
            if not names:
                del self._on_node[reservation.place.node]
        if len(self._timers) > 2 * len(self._reservations) + _STALE_TIMERS_MOST:
            self._timers = [(at, of) for of in sorted(self._reservations) if (at := self._timer_of(of)) is not None]
            heapq.heapify(self._timers)
        elif (due := self._timer_of(name)) is not None:
            heapq.heappush(self._timers, (due, name))

    def _make_room(self, name: str) -> None:
        if len(self._reservations) < self._most:
            return
        ended = [(row.ended_ms, row.spec.name) for row in self._reservations.values() if row.phase.is_ended]
        if not ended:
            raise InvalidInput("reservation", f"at most {self._most} reservations are kept", name)
        self._forget(min(ended)[1])

    def _forget(self, name: str) -> None:
        reservation = self._reservations.pop(name, None)
        for attempt in self._owners.pop(name, {}):
            self._used_by.pop(attempt, None)
        if reservation is not None and reservation.place is not None:
            names = self._on_node.get(reservation.place.node, set())
            names.discard(name)
            if not names:
                self._on_node.pop(reservation.place.node, None)

    # ---- restart

    def load(self, rows: Iterable[Reservation], placements: Iterable[Placement], now_ms: int) -> tuple[BookChange, ...]:
        """Take rows and the ledger's placements as the truth, and bring rows up to date that the ledger was ahead of.

        A place that was committed is bound, a use that was committed counts. A reservation's place that fits no reservation
        any more is answered with a HoldChanged; a use of one that is gone counts for nothing.
        """
        for row in rows:
            self._forget(row.spec.name)
            self._keep(row)
        changes: list[BookChange] = []
        uses: list[Placement] = []
        for placement in placements:
            if not name_of(placement.replica):
                uses += [placement] if placement.reservation else []
                continue
            try:
                changes += self.bind(placement, now_ms)
            except InvalidInput:
                changes.append(HoldChanged(name=name_of(placement.replica), node=placement.node))
        for placement in uses:
            changes += self._load_use(placement, now_ms)
        return tuple(changes)

    def _load_use(self, placement: Placement, now_ms: int) -> tuple[BookChange, ...]:
        reservation = self._reservations.get(placement.reservation)
        if reservation is None or reservation.phase is not Phase.AVAILABLE or reservation.place is None:
            return ()
        if reservation.place.node != placement.node or (placement.replica, placement.attempt) in self._used_by:
            return ()
        self._add_owner(placement.reservation, placement)
        if reservation.spec.allocate_once:
            return self._end(reservation, Phase.SUCCEEDED, EndReason.USED, now_ms)
        return (HoldChanged(name=placement.reservation, node=placement.node),)

    def check(self) -> None:
        """Raise InvariantBroken unless the indexes agree and every place that is held is named."""
        for name, reservation in self._reservations.items():
            node = reservation.place.node if reservation.place else ""
            is_on_node = name in self._on_node.get(node, ())
            if is_on_node != (reservation.phase is Phase.AVAILABLE):
                raise InvariantBroken(
                    "a reservation is not where it says", reservation=name, phase=reservation.phase.value
                )
            if reservation.phase is Phase.AVAILABLE and reservation.spec.allocate_once and self._owners[name]:
                raise InvariantBroken("a reservation for one use is used and still held", reservation=name)
            if (self._timer_of(name) or 0) and (self._timer_of(name), name) not in self._timers:
                raise InvariantBroken("a reservation has no timer", reservation=name)
        used = {attempt: name for name, owners in self._owners.items() for attempt in owners}
        if used != self._used_by:
            raise InvariantBroken("owners and their reservations disagree", owners=used, used_by=self._used_by)
