"""What a want has to be to be decided at all."""

from colo_common.events.job import ReplicaWant
from colo_common.model.constraints import UNCONSTRAINED
from colo_common.model.invalid import InvalidInput
from colo_common.model.place_rules import check_constraints
from colo_scheduler.reservation.held_place import RESERVATION_PREFIX
from colo_scheduler.zones import CPU_MAX_MCPU, MEMORY_MAX_BYTES

__all__ = ["check_want"]


def check_want(want: ReplicaWant, number: int) -> None:
    """Raise InvalidInput unless the want asks for something, and for no more than any machine could ever have."""
    where = f"wants[{number}]"
    if want.attempt < 1:
        raise InvalidInput(f"{where}.attempt", "must be at least 1", want.attempt)
    if not want.replica:
        raise InvalidInput(f"{where}.replica", "must not be empty", want.replica)
    if want.replica.startswith(RESERVATION_PREFIX):
        raise InvalidInput(f"{where}.replica", "must not be the name of what stands for a reservation", want.replica)
    if not 1 <= want.request.cpu_mcpu <= CPU_MAX_MCPU:
        raise InvalidInput(f"{where}.request.cpu_mcpu", f"must be from 1 to {CPU_MAX_MCPU}", want.request.cpu_mcpu)
    if not 1 <= want.request.memory_bytes <= MEMORY_MAX_BYTES:
        raise InvalidInput(
            f"{where}.request.memory_bytes", f"must be from 1 to {MEMORY_MAX_BYTES}", want.request.memory_bytes
        )
    if want.qos.has_own_cpus or want.constraints != UNCONSTRAINED:
        check_constraints(want.constraints, want.qos, want.request, f"{where}.")
