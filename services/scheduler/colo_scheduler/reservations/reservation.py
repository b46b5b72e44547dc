"""One reservation as the book keeps it, and the changes that the book returns."""

from collections.abc import Sequence

from msgspec import Struct

from colo_common.events.job import PlacementRequest
from colo_common.model.placement import Attempt, Placement
from colo_common.model.reservation import AllocatePolicy, ReservationSpec
from colo_common.model.resource_list import CPU, MEMORY
from colo_common.model.workload import RunSpec
from colo_scheduler.ledger.port import job_of_reservation, replica_of_reservation
from colo_scheduler.reservations.amounts import total_of
from colo_scheduler.reservations.fit import ReservationCapacity, restricted_names
from colo_scheduler.reservations.lifecycle import ReservationPhase
from colo_scheduler.reservations.match import reserved_amounts

__all__ = [
    "BookChange",
    "HoldChanged",
    "Match",
    "PhaseChanged",
    "Reservation",
    "attempt_of",
    "offer_of",
    "placement_request_of",
]


class Reservation(Struct, frozen=True, kw_only=True):
    """A reservation and its state. `place` is its last place, `over` the attempts that ran there before it and are inside it.
    `ended_ms` is 0 while it lives. `attempt` distinguishes it from earlier reservations of its name.
    """

    spec: ReservationSpec
    created_ms: int
    attempt: int = 1
    phase: ReservationPhase = ReservationPhase.PENDING
    place: Placement | None = None
    over: tuple[Attempt, ...] = ()
    reason: str = ""
    ended_ms: int = 0


class PhaseChanged(Struct, frozen=True, kw_only=True):
    """The reservation is in this phase now; `reason` is the reason of its end."""

    name: str
    phase: ReservationPhase
    reason: str = ""
    node: str = ""


class HoldChanged(Struct, frozen=True, kw_only=True):
    """The hold on the node of this attempt, which stands for the reservation, changed.

    The book's `held` returns the new hold.
    """

    name: str
    node: str
    attempt: Attempt


BookChange = PhaseChanged | HoldChanged


class Match(Struct, frozen=True, kw_only=True):
    """A place that a claimant may use."""

    name: str
    node: str
    context: ReservationCapacity


def attempt_of(reservation: Reservation) -> Attempt:
    """The attempt under which a reservation stands in the ledger."""
    return (replica_of_reservation(reservation.spec.name), reservation.attempt)


def placement_request_of(reservation: Reservation) -> PlacementRequest:
    """The replica that stands for the reservation while it waits for a place. It has nothing to run."""
    spec = reservation.spec
    replica, attempt = attempt_of(reservation)
    return PlacementRequest(
        replica=replica,
        job=job_of_reservation(spec.name),
        queue="",
        attempt=attempt,
        request=spec.request,
        run=RunSpec(),
        qos=spec.qos,
        band=spec.band,
        priority=spec.priority,
        queued_at_ms=reservation.created_ms,
        constraints=spec.constraints,
        labels=tuple(sorted(spec.labels.items())),
    )


def offer_of(spec: ReservationSpec, owners: Sequence[Placement]) -> ReservationCapacity:
    """The reservation's amounts. Owners count with all their holds, whichever resources the policy restricts."""
    reserved = reserved_amounts(spec)
    names = tuple(reserved)
    is_restricted = spec.policy is AllocatePolicy.RESTRICTED
    return ReservationCapacity(
        name=spec.name,
        policy=spec.policy,
        names=restricted_names(names, spec.restricted) if is_restricted else names,
        allocatable=reserved,
        allocated=total_of({CPU: owner.cpu_mcpu, MEMORY: owner.memory_bytes} for owner in owners),
        owners=len(owners),
        allocate_once=spec.allocate_once,
        order=spec.order,
    )
