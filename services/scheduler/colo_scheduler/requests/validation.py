"""What a want has to be to be decided at all."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from colo_common.events.effects import Effect, Publish
from colo_common.events.job import ReplicaWant
from colo_common.events.service import DeadLettered
from colo_common.model.constraints import UNCONSTRAINED
from colo_common.model.invalid import InvalidInput
from colo_common.model.place_rules import check_constraints
from colo_scheduler.numa.zones import CPU_MAX_MCPU, MEMORY_MAX_BYTES
from colo_scheduler.reservations.reservation import RESERVATION_PREFIX

__all__ = ["BadWant", "check_want", "letters_of", "sorted_out"]

_TOLD_MAX: Final = 10
"""So many bad wants of one message are told one by one; the others are only counted."""
_PAYLOAD_CHARACTERS: Final = 2048
_PLACE_IN_MESSAGE: Final = re.compile(r"^wants\[\d+\]\.")


class BadWant(NamedTuple):
    """A want that breaks a rule, and which."""

    want: ReplicaWant
    error: InvalidInput

    @property
    def is_addressed(self) -> bool:
        """Whether it says whose it is, so that its job can be told."""
        want = self.want
        is_replica = bool(want.job) and want.replica.startswith(f"{want.job}/")
        return want.attempt >= 1 and is_replica and not want.replica.startswith(RESERVATION_PREFIX)

    @property
    def rule(self) -> str:
        """What is wrong with it, without its place in the message."""
        return _PLACE_IN_MESSAGE.sub("", str(self.error))


def sorted_out(wants: Sequence[ReplicaWant]) -> tuple[list[ReplicaWant], list[BadWant]]:
    """The wants that can be decided, and the others. Raises InvalidInput when all are bad and nobody can be told of any."""
    good: list[ReplicaWant] = []
    bad: list[BadWant] = []
    plain: ReplicaWant | None = None
    for number, want in enumerate(wants):
        # Replicas of a job mostly ask for the same: then only who they are is still to be looked at.
        if plain is not None and _asks_the_same(want, plain) and _is_named(want):
            good.append(want)
            continue
        if _is_plain(want):
            plain = want
            good.append(want)
            continue
        try:
            check_want(want, number)
        except InvalidInput as error:
            bad.append(BadWant(want, error))
        else:
            good.append(want)
    if bad and not good and not any(each.is_addressed for each in bad):
        raise bad[0].error
    return good, bad


def letters_of(bad: Sequence[BadWant], now_ms: int) -> list[Effect]:
    """A dead letter for each, up to a limit, that names its field and the rule."""
    return [_dead_letter(want, error, now_ms) for want, error in bad[:_TOLD_MAX]]


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


def _is_named(want: ReplicaWant) -> bool:
    """Whether the want says who it is as it has to."""
    return want.attempt >= 1 and want.replica != "" and not want.replica.startswith(RESERVATION_PREFIX)


def _asks_the_same(want: ReplicaWant, other: ReplicaWant) -> bool:
    """Whether the rules about what is asked for answer both alike."""
    return want.request == other.request and want.qos is other.qos and want.constraints == other.constraints


def _is_plain(want: ReplicaWant) -> bool:
    """Whether the want keeps all rules and has nothing that more rules are about, as most do."""
    return (
        _is_named(want)
        and 1 <= want.request.cpu_mcpu <= CPU_MAX_MCPU
        and 1 <= want.request.memory_bytes <= MEMORY_MAX_BYTES
        and not want.qos.has_own_cpus
        and want.constraints == UNCONSTRAINED
    )


def check_want(want: ReplicaWant, number: int) -> None:
    """Raise InvalidInput unless the want asks for something, and for no more than any machine could ever have."""
    if _is_plain(want):
        return
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
