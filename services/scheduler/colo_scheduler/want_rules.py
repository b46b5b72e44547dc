"""What a want has to be to be decided at all."""

from collections.abc import Sequence
from typing import Final

import msgspec

from colo_common.events.effects import Effect, Publish
from colo_common.events.job import ReplicaWant
from colo_common.events.service import DeadLettered
from colo_common.model.constraints import UNCONSTRAINED
from colo_common.model.invalid import InvalidInput
from colo_common.model.place_rules import check_constraints
from colo_scheduler.reservation.held_place import RESERVATION_PREFIX
from colo_scheduler.zones import CPU_MAX_MCPU, MEMORY_MAX_BYTES

__all__ = ["check_want", "good_wants"]

_TOLD_MAX: Final = 10
"""So many bad wants of one message are told one by one; the others are only counted."""
_PAYLOAD_CHARACTERS: Final = 2048


def good_wants(wants: Sequence[ReplicaWant], now_ms: int) -> tuple[list[ReplicaWant], list[Effect]]:
    """The wants that can be decided, and a dead letter for each of the others that names its field and the rule.

    Raises InvalidInput when every want is bad: then the whole message is.
    """
    good: list[ReplicaWant] = []
    bad: list[tuple[ReplicaWant, InvalidInput]] = []
    for number, want in enumerate(wants):
        try:
            check_want(want, number)
        except InvalidInput as error:
            bad.append((want, error))
        else:
            good.append(want)
    if bad and not good:
        raise bad[0][1]
    return good, [_dead_letter(want, error, now_ms) for want, error in bad[:_TOLD_MAX]]


def _dead_letter(want: ReplicaWant, error: InvalidInput, now_ms: int) -> Publish:
    payload = msgspec.json.encode(want)
    letter = DeadLettered(
        at_ms=now_ms,
        service="scheduler",
        subject="evt.replica.wanted",
        reason=str(error),
        payload=payload.decode()[:_PAYLOAD_CHARACTERS],
        size_bytes=len(payload),
    )
    return Publish(fact=letter, traceparent=want.traceparent)


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
