"""Whether an owner may use a reservation with a given placement."""

from collections.abc import Sequence

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import Placement
from colo_common.model.reservation import ReservationSpec
from colo_common.model.resource_list import CPU, MEMORY
from colo_scheduler.reservations.fit import fits_reservation
from colo_scheduler.reservations.match import Mismatch, mismatch_of
from colo_scheduler.reservations.owners import Claimant
from colo_scheduler.reservations.remainder import are_shares_within, remainder_of
from colo_scheduler.reservations.reservation import offer_of

__all__ = ["check_use"]


def check_use(
    spec: ReservationSpec, place: Placement, owners: Sequence[Placement], claimant: Claimant, placement: Placement
) -> None:
    """Raise InvalidInput unless the claimant is an owner, on the node of `place`, and inside it where the policy requires that."""
    if place.node != placement.node:
        raise InvalidInput("placement.node", f"must be the reservation's node {place.node}", placement.node)
    mismatch = mismatch_of(spec, claimant)
    if mismatch is not None or claimant.ignores_reservations:
        raise InvalidInput("reservation", "must be held for this owner", mismatch or Mismatch.NOT_OWNER)
    if not spec.policy.is_bounded:
        return
    request = {CPU: placement.cpu_mcpu, MEMORY: placement.memory_bytes}
    for short in fits_reservation(request, offer_of(spec, owners)):
        raise InvalidInput("reservation", short.sentence, spec.name)
    left = remainder_of(place, owners)
    if place.cpus and not CpuSet.parse(placement.cpus) <= CpuSet.parse(left.cpus):
        rule = f"must be among {left.cpus}, which the reservation has left"
        raise InvalidInput("placement.cpus", rule, placement.cpus)
    if not are_shares_within(placement.devices, left.devices):
        raise InvalidInput("placement.devices", "must be among what the reservation has left", placement.devices)
