"""Placing a reservation over running owners: their places become part of it, and fall to it when they leave."""

from collections.abc import Sequence

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import Placement
from colo_common.model.reservation import ReservationSpec
from colo_common.model.resource_list import CPU, MEMORY
from colo_scheduler.reservations.fit import fits_reservation
from colo_scheduler.reservations.reservation import offer_of

__all__ = ["check_pre_allocation"]


def check_pre_allocation(spec: ReservationSpec, place: Placement, over: Sequence[Placement]) -> None:
    """Raise InvalidInput unless the reservation may be placed over these owners: on their node, over their CPUs, large enough."""
    if not over:
        return
    if not spec.pre_allocates:
        raise InvalidInput("over", "the reservation is not one that is placed over running owners", len(over))
    if len(over) > 1 and not spec.pre_allocates_several:
        raise InvalidInput("over", "must be one owner without pre_allocates_several", len(over))
    cpus = CpuSet.parse(place.cpus)
    placed: list[Placement] = []
    for owner in over:
        if owner.node != place.node:
            raise InvalidInput("over", f"must run on {place.node}", owner.node)
        if not CpuSet.parse(owner.cpus) <= cpus:
            raise InvalidInput("over", "the reservation must hold all CPUs of the owner", owner.cpus)
        request = {CPU: owner.cpu_mcpu, MEMORY: owner.memory_bytes}
        for short in fits_reservation(request, offer_of(spec, placed)):
            raise InvalidInput("over", short.sentence, owner.replica)
        placed.append(owner)
