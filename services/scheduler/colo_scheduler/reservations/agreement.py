"""Checks that the indexes of the book agree with a reservation."""

from collections.abc import Iterable, Mapping

from colo_common.model.invalid import InvariantBroken
from colo_common.model.placement import Attempt
from colo_scheduler.reservations.lifecycle import ReservationPhase
from colo_scheduler.reservations.reservation import Reservation

__all__ = ["check_agreement"]


def check_agreement(
    reservation: Reservation,
    owners: Iterable[Attempt],
    used_by: Mapping[Attempt, str],
    *,
    is_on_node: bool,
    has_timer: bool,
) -> None:
    """Raise InvariantBroken unless its place is indexed by node exactly while held, its timer set, its owners' uses known."""
    name, owners = reservation.spec.name, tuple(owners)
    is_held = reservation.phase is ReservationPhase.AVAILABLE
    if is_on_node != is_held:
        raise InvariantBroken("a reservation is not where it says", reservation=name, phase=reservation.phase.value)
    if is_held and reservation.spec.allocate_once and owners:
        raise InvariantBroken("a reservation for one use is used and still held", reservation=name)
    if not has_timer:
        raise InvariantBroken("a reservation has no timer", reservation=name)
    if any(used_by.get(attempt) != name for attempt in owners):
        raise InvariantBroken("owners and their reservations disagree", reservation=name)
