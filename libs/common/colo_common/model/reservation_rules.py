"""The rules for a reservation. The same check runs for a reservation file and for a request."""

from typing import Final

import msgspec

from colo_common.model.constraints import CpuPolicy, NumaPolicy
from colo_common.model.invalid import InvalidInput
from colo_common.model.job_rules import LIMITS, check_name
from colo_common.model.moment import moment_text
from colo_common.model.place_rules import check_constraints
from colo_common.model.qos import check_pair
from colo_common.model.reservation import (
    OWNER_TERMS_MAX,
    TTL_MOST_MS,
    AllocatePolicy,
    OwnerTerm,
    ReservationSpec,
)
from colo_common.model.workload import ResourceRequest

__all__ = ["check_reservation", "check_term"]

_RESERVED_NAMES: Final = ("cpu", "memory")
_SIZE_MAX_BYTES: Final = 64 << 10
_ORDER_MOST: Final = 1 << 53


def check_reservation(spec: ReservationSpec, now_ms: int) -> None:
    """Raise InvalidInput for the first field that breaks a rule or contradicts another."""
    check_name(spec.name, "name")
    _check_request(spec.request)
    check_pair(spec.qos, spec.band, "band")
    if not -LIMITS.PRIORITY_MAX <= spec.priority <= LIMITS.PRIORITY_MAX:
        raise InvalidInput("priority", f"must be from {-LIMITS.PRIORITY_MAX} to {LIMITS.PRIORITY_MAX}", spec.priority)
    if len(spec.owners) > OWNER_TERMS_MAX:
        raise InvalidInput("owners", f"must be at most {OWNER_TERMS_MAX} terms", len(spec.owners))
    for index, term in enumerate(spec.owners):
        check_term(term, f"owners[{index}]")
    if spec.constraints.reservation:
        raise InvalidInput("place.reservation", "a reservation cannot be placed in another", spec.name)
    check_constraints(spec.constraints, spec.qos, spec.request)
    if not -_ORDER_MOST <= spec.order <= _ORDER_MOST:
        raise InvalidInput("order", f"must be from {-_ORDER_MOST} to {_ORDER_MOST}", spec.order)
    size_bytes = len(msgspec.json.encode(spec))
    if size_bytes > _SIZE_MAX_BYTES:
        raise InvalidInput("reservation", f"must have at most {_SIZE_MAX_BYTES} bytes as JSON", size_bytes)
    _check_time(spec, now_ms)
    _check_policy(spec)


def _check_request(request: ResourceRequest) -> None:
    for name, value, most in (
        ("cpu", request.cpu_mcpu, LIMITS.MCPU_MAX),
        ("memory", request.memory_bytes, LIMITS.MEMORY_MAX_BYTES),
    ):
        if not 1 <= value <= most:
            raise InvalidInput(name, f"must be a whole number from 1 to {most}", value)


def _check_time(spec: ReservationSpec, now_ms: int) -> None:
    if spec.ttl_ms is not None and not 0 <= spec.ttl_ms <= TTL_MOST_MS:
        raise InvalidInput("ttl", f"must be from 0 to {TTL_MOST_MS} ms", spec.ttl_ms)
    if spec.expires_ms is None:
        return
    if spec.ttl_ms == 0:
        raise InvalidInput(
            "expires", "must be absent when ttl is 0, which means for ever", moment_text(spec.expires_ms)
        )
    if not now_ms <= spec.expires_ms <= now_ms + TTL_MOST_MS:
        rule = "must not be in the past, nor more than ten years ahead"
        raise InvalidInput("expires", rule, moment_text(spec.expires_ms))


def _check_policy(spec: ReservationSpec) -> None:
    if spec.restricted and spec.policy is not AllocatePolicy.RESTRICTED:
        raise InvalidInput("restricted", "needs policy restricted", spec.policy.value)
    for name in spec.restricted:
        if name not in _RESERVED_NAMES:
            raise InvalidInput("restricted", f"must be among {', '.join(_RESERVED_NAMES)}", name)
    if spec.pre_allocates_several and not spec.pre_allocates:
        raise InvalidInput("pre_allocates_several", "needs pre_allocates", spec.pre_allocates_several)
    if spec.pre_allocates and spec.policy is not AllocatePolicy.RESTRICTED:
        raise InvalidInput("pre_allocates", "needs policy restricted", spec.policy.value)
    if spec.pre_allocates and spec.allocate_once:
        raise InvalidInput("pre_allocates", "needs allocate_once false: its owners are there from the start", True)
    if spec.pre_allocates:
        _check_over(spec)


def _check_over(spec: ReservationSpec) -> None:
    """Refuse devices, huge pages and NUMA policies for a reservation over running owners: their places are fixed already."""
    place = spec.constraints
    for name in ("devices", "huge_pages"):
        if getattr(place, name):
            rule = "must be absent with pre_allocates, which is for CPU and memory"
            raise InvalidInput(f"place.{name}", rule, len(getattr(place, name)))
    if place.numa_policy is not NumaPolicy.NONE or place.cpu_policy is CpuPolicy.NUMA:
        rule = "must be absent with pre_allocates: the owners have their zones already"
        raise InvalidInput("place.numa_policy", rule, place.numa_policy.value)


def check_term(term: OwnerTerm, field: str) -> None:
    """Raise InvalidInput for a term whose label rules contradict themselves."""
    for index, rule in enumerate(term.labels):
        where = f"{field}.labels[{index}]"
        if not rule.key:
            raise InvalidInput(f"{where}.key", "must not be empty", rule.key)
        if rule.operator in ("In", "NotIn") and not rule.values:
            raise InvalidInput(f"{where}.values", f"{rule.operator} needs at least one value", rule.values)
        if rule.operator in ("Exists", "DoesNotExist") and rule.values:
            raise InvalidInput(f"{where}.values", f"{rule.operator} takes no values", rule.values)
