"""The rules that a placement request has to keep to be decided, and the dead letter of a request that breaks a rule."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from colo_common.events.effects import Effect, Publish
from colo_common.events.job import PlacementRequest
from colo_common.events.service import DeadLettered
from colo_common.model.constraints import UNCONSTRAINED
from colo_common.model.invalid import InvalidInput
from colo_common.model.place_rules import check_constraints
from colo_scheduler.ledger.port import RESERVATION_PREFIX
from colo_scheduler.numa.zones import CPU_MAX_MCPU, MEMORY_MAX_BYTES

__all__ = ["InvalidRequest", "check_request", "dead_letters_of", "sorted_out"]

_PUBLISHED_MAX: Final = 10
"""The most invalid requests of one message that get a dead letter each; the others are only counted."""
_PAYLOAD_CHARACTERS: Final = 2048
_PLACE_IN_MESSAGE: Final = re.compile(r"^wants\[\d+\]\.")


class InvalidRequest(NamedTuple):
    """A placement request that breaks a rule, and the error that names the rule."""

    placement_request: PlacementRequest
    error: InvalidInput

    @property
    def is_addressed(self) -> bool:
        """Whether the request names its job and replica, so that a rejection can be addressed to the job."""
        placement_request = self.placement_request
        is_replica = bool(placement_request.job) and placement_request.replica.startswith(f"{placement_request.job}/")
        return (
            placement_request.attempt >= 1
            and is_replica
            and not placement_request.replica.startswith(RESERVATION_PREFIX)
        )

    @property
    def rule(self) -> str:
        """The rule that is broken, without the position of the request in its message."""
        return _PLACE_IN_MESSAGE.sub("", str(self.error))


def sorted_out(placement_requests: Sequence[PlacementRequest]) -> tuple[list[PlacementRequest], list[InvalidRequest]]:
    """The requests that can be decided, and the invalid ones.

    Raises InvalidInput when all requests are invalid and none is addressed: no rejection could reach a job.
    """
    good: list[PlacementRequest] = []
    bad: list[InvalidRequest] = []
    for number, placement_request in enumerate(placement_requests):
        try:
            check_request(placement_request, number)
        except InvalidInput as error:
            bad.append(InvalidRequest(placement_request, error))
        else:
            good.append(placement_request)
    if bad and not good and not any(each.is_addressed for each in bad):
        raise bad[0].error
    return good, bad


def dead_letters_of(bad: Sequence[InvalidRequest], now_ms: int) -> list[Effect]:
    """A dead letter for each of the first 10 invalid requests; it names the field and the rule."""
    return [_dead_letter(placement_request, error, now_ms) for placement_request, error in bad[:_PUBLISHED_MAX]]


def _dead_letter(placement_request: PlacementRequest, error: InvalidInput, now_ms: int) -> Publish:
    payload = msgspec.json.encode(placement_request)
    dead_letter = DeadLettered(
        at_ms=now_ms,
        service="scheduler",
        subject="evt.replica.requested",
        reason=str(error),
        payload=payload.decode()[:_PAYLOAD_CHARACTERS],
        size_bytes=len(payload),
    )
    return Publish(fact=dead_letter, traceparent=placement_request.traceparent)


def check_request(placement_request: PlacementRequest, number: int) -> None:
    """Raise InvalidInput unless the request asks for at least 1 mCPU and 1 byte, and for no more than any machine could have."""
    where = f"wants[{number}]"
    if placement_request.attempt < 1:
        raise InvalidInput(f"{where}.attempt", "must be at least 1", placement_request.attempt)
    if not placement_request.replica:
        raise InvalidInput(f"{where}.replica", "must not be empty", placement_request.replica)
    if placement_request.replica.startswith(RESERVATION_PREFIX):
        raise InvalidInput(
            f"{where}.replica", "must not be the name of what stands for a reservation", placement_request.replica
        )
    if not 1 <= placement_request.request.cpu_mcpu <= CPU_MAX_MCPU:
        raise InvalidInput(
            f"{where}.request.cpu_mcpu", f"must be from 1 to {CPU_MAX_MCPU}", placement_request.request.cpu_mcpu
        )
    if not 1 <= placement_request.request.memory_bytes <= MEMORY_MAX_BYTES:
        raise InvalidInput(
            f"{where}.request.memory_bytes",
            f"must be from 1 to {MEMORY_MAX_BYTES}",
            placement_request.request.memory_bytes,
        )
    if placement_request.qos.has_own_cpus or placement_request.constraints != UNCONSTRAINED:
        check_constraints(placement_request.constraints, placement_request.qos, placement_request.request, f"{where}.")
