"""A request class: placement requests that every node answers alike, and that are therefore decided together.

A placement request has to keep rules to have a class; a request that breaks a rule gets a dead letter.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from colo_common.events.effects import Effect, Publish
from colo_common.events.job import PlacementRequest
from colo_common.events.service import DeadLettered
from colo_common.model.constraints import UNCONSTRAINED, Constraints, CpuPolicy, NumaPolicy
from colo_common.model.invalid import InvalidInput
from colo_common.model.place_rules import check_constraints
from colo_common.model.qos import PriorityBand, QosClass, is_legal_pair
from colo_common.model.reasons import Reason
from colo_scheduler.ledger.port import RESERVATION_PREFIX, name_of
from colo_scheduler.numa.zones import CPU_MAX_MCPU, MEMORY_MAX_BYTES

__all__ = [
    "InvalidRequest",
    "RequestClass",
    "avoided_here",
    "check_request",
    "class_of",
    "dead_letters_of",
    "sorted_out",
]


_CPU_MCPU: Final = 1_000


class RequestClass(NamedTuple):
    """Everything of a placement request that a filter, a scorer or the order of classes looks at.

    `avoid`: node, until (Unix ms), sorted.
    `has_command`: a real machine can run it; `has_work`: a simulated machine can. `constraints` None: any place with room will do.
    `reserves`: the reservation that the request stands for; it runs nothing and is a class of its own.
    `job`: the job of a request that asks to be spread over nodes and is scored by where the job's replicas are; else empty.
    """

    priority: int
    cpu_mcpu: int
    memory_bytes: int
    qos: QosClass
    band: PriorityBand
    avoid: tuple[tuple[str, int], ...]
    has_command: bool
    has_work: bool
    constraints: Constraints | None = None
    reserves: str = ""
    job: str = ""

    @property
    def refusal(self) -> Reason | None:
        """The reason why no node is tried at all; None where nodes are tried.

        Work of class SYSTEM is not placed, and a QoS class goes only with its bands. A request that names a reservation is placed
        in that reservation or not at all.
        """
        if self.qos is QosClass.SYSTEM or not is_legal_pair(self.qos, self.band):
            return Reason.QOS_NOT_ADMITTED
        if self.constraints is not None and self.constraints.reservation:
            return Reason.RESERVATION_UNKNOWN
        return None

    @property
    def is_admitted(self) -> bool:
        """Whether nodes are tried."""
        return self.refusal is None

    @property
    def is_prod(self) -> bool:
        """Whether this is online work, which takes capacity of the machine itself and not of overcommit's allocatable."""
        return self.band is PriorityBand.PROD

    @property
    def is_mid(self) -> bool:
        """Whether this is work of the tier between online and batch work, which takes capacity of the mid tier alone."""
        return self.band is PriorityBand.MID

    @property
    def place(self) -> Constraints:
        """The constraints; UNCONSTRAINED where the request has none."""
        return UNCONSTRAINED if self.constraints is None else self.constraints

    @property
    def own_cpus(self) -> int:
        """The number of CPUs it needs by number: for LSE, LSR and CPU policies exclusive and immovable. 0 for the shared pool."""
        if self.qos.has_own_cpus or (self.constraints is not None and self.constraints.cpu_policy in _FIXED):
            return self.cpu_mcpu // _CPU_MCPU
        return 0

    @property
    def is_in_one_zone(self) -> bool:
        """Whether one zone has to hold the whole request."""
        place = self.place
        return place.numa_policy is NumaPolicy.SINGLE_NUMA_NODE or place.cpu_policy is CpuPolicy.NUMA

    @property
    def is_detailed(self) -> bool:
        """Whether the fit on a node depends on more than amounts of CPU and memory by zone."""
        if self.qos.has_own_cpus:
            return True
        place = self.constraints
        return place is not None and (
            place.numa_policy is not NumaPolicy.NONE
            or place.cpu_policy in _PLACED
            or bool(place.devices)
            or bool(place.huge_pages)
        )


_FIXED: Final = (CpuPolicy.EXCLUSIVE, CpuPolicy.IMMOVABLE)
_PLACED: Final = (*_FIXED, CpuPolicy.NUMA)


def class_of(placement_request: PlacementRequest) -> RequestClass:
    """The class that a placement request belongs to."""
    reserves = name_of(placement_request.replica)
    asked, run, constraints = placement_request.request, placement_request.run, placement_request.constraints
    return RequestClass(
        placement_request.priority,
        asked.cpu_mcpu,
        asked.memory_bytes,
        placement_request.qos,
        placement_request.band,
        tuple(sorted(placement_request.avoid)) if placement_request.avoid else (),
        bool(run.command or run.attach or reserves),
        run.work_mcpu_ms >= 1 or bool(reserves),
        None if constraints == UNCONSTRAINED else constraints,
        reserves,
        placement_request.job if constraints.spread else "",
    )


def avoided_here(
    placement_requests: tuple[PlacementRequest, ...], asked_ms: int, now_ms: int
) -> tuple[PlacementRequest, ...]:
    """The requests, which were made at `asked_ms` by the clock of their sender and came now, with `avoid` by this clock.

    A node is left out for as long from now on as was left of its time when the request was made, however the two clocks differ;
    what was over by then is left away. A message that does not tell its time (0) is taken at its word, for an hour at most.
    """
    if not any(each.avoid for each in placement_requests):
        return placement_requests
    return tuple([_avoided(each, asked_ms, now_ms) if each.avoid else each for each in placement_requests])


def _avoided(request: PlacementRequest, asked_ms: int, now_ms: int) -> PlacementRequest:
    if asked_ms:
        avoid = tuple((node, now_ms + until_ms - asked_ms) for node, until_ms in request.avoid if until_ms > asked_ms)
    else:
        avoid = tuple((node, min(until_ms, now_ms + _AVOID_MOST_MS)) for node, until_ms in request.avoid)
    return msgspec.structs.replace(request, avoid=avoid)


_PUBLISHED_MAX: Final = 10
"""The most invalid requests of one message that get a dead letter each; the others are only counted."""
_PAYLOAD_CHARACTERS: Final = 2048
_AVOID_MOST_MS: Final = 3_600_000
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
