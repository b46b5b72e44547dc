"""What somebody asks to be reserved, for whom, and for how long."""

from typing import Final

from msgspec import Struct

from colo_common.model.constraints import UNCONSTRAINED, Constraints, Taint
from colo_common.model.invalid import InvalidInput
from colo_common.model.job_rules import LIMITS, check_name
from colo_common.model.qos import PriorityBand, QosClass, check_pair
from colo_common.model.workload import ResourceRequest
from colo_scheduler.reservation.amounts import CPU, MEMORY
from colo_scheduler.reservation.expiry import DEFAULT_TTL_MS
from colo_scheduler.reservation.fit import AllocatePolicy
from colo_scheduler.reservation.owners import OwnerTerm, check_term

__all__ = ["OWNER_TERMS_MAX", "TTL_MOST_MS", "ReservationSpec", "check_reservation"]

OWNER_TERMS_MAX: Final = 100
TTL_MOST_MS: Final = 10 * 365 * DEFAULT_TTL_MS
_RESERVED_NAMES: Final = (CPU, MEMORY)


class ReservationSpec(Struct, frozen=True, kw_only=True):
    """A place to hold: `request` and, in `constraints`, CPUs of one's own, alignment, huge pages, devices, labels and tolerations.

    owners: who may use it; none means nobody.
    allocate_once: the first owner ends it, what it does not need is free again. Otherwise the place is used again and again.
    policy, restricted: whether owners may go beyond what is held, and under RESTRICTED for which of "cpu" and "memory" they may
        not (empty: neither).
    ttl_ms: how long from its creation; None no limit of this kind, 0 for ever. expires_ms: a moment (Unix ms).
    order: a smaller one is used first, 0 says nothing.
    pre_allocates, pre_allocates_several: it may be placed over owners that already run; their places become part of it.
    is_unschedulable: it is held, but no owner gets it now. taints: only owners that tolerate them get it.
    """

    name: str
    request: ResourceRequest
    owners: tuple[OwnerTerm, ...] = ()
    constraints: Constraints = UNCONSTRAINED
    qos: QosClass = QosClass.BE
    band: PriorityBand = PriorityBand.BATCH
    priority: int = 0
    allocate_once: bool = True
    policy: AllocatePolicy = AllocatePolicy.DEFAULT
    restricted: tuple[str, ...] = ()
    ttl_ms: int | None = DEFAULT_TTL_MS
    expires_ms: int | None = None
    order: int = 0
    pre_allocates: bool = False
    pre_allocates_several: bool = False
    is_unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    labels: dict[str, str] = {}


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
        raise InvalidInput("constraints.reservation", "a reservation cannot be placed in another", spec.name)
    _check_time(spec, now_ms)
    _check_policy(spec)


def _check_request(request: ResourceRequest) -> None:
    for name, value, most in (
        ("cpu_mcpu", request.cpu_mcpu, LIMITS.MCPU_MAX),
        ("memory_bytes", request.memory_bytes, LIMITS.MEMORY_MAX_BYTES),
    ):
        if not 1 <= value <= most:
            raise InvalidInput(f"request.{name}", f"must be a whole number from 1 to {most}", value)


def _check_time(spec: ReservationSpec, now_ms: int) -> None:
    if spec.ttl_ms is not None and not 0 <= spec.ttl_ms <= TTL_MOST_MS:
        raise InvalidInput("ttl_ms", f"must be from 0 to {TTL_MOST_MS}", spec.ttl_ms)
    if spec.expires_ms is None:
        return
    if spec.ttl_ms == 0:
        raise InvalidInput("expires_ms", "must be absent when ttl_ms is 0, which means for ever", spec.expires_ms)
    if not now_ms <= spec.expires_ms <= now_ms + TTL_MOST_MS:
        raise InvalidInput("expires_ms", "must not be in the past, nor more than ten years ahead", spec.expires_ms)


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
