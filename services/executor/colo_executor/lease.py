"""A batch grant is a lease: unheard for too long, the node takes batch CPU back by itself, step by step."""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from colo_common.model.invalid import InvalidInput

__all__ = ["Lease", "LeasePhase", "LeasePolicy", "expired_at", "limit_mcpu", "next_step_ms", "phase_of", "renewed"]

_LONGEST_LEASE_MS = 600_000


class LeasePolicy(Struct, frozen=True, kw_only=True):
    """`default_ms` holds until the control plane names another, of which at most `most_ms` count.

    When the lease is over nothing grows for `hold_ms`; then the ceiling goes down a step each interval.
    """

    default_ms: int = 15_000
    most_ms: int = _LONGEST_LEASE_MS
    hold_ms: int = 5_000
    step_pct: int = 20
    step_interval_ms: int = 1_000

    def validate(self) -> None:
        """Raise InvalidInput for a number without meaning."""
        for name, low, high in (
            ("default_ms", 1, _LONGEST_LEASE_MS),
            ("most_ms", 1, _LONGEST_LEASE_MS),
            ("hold_ms", 0, _LONGEST_LEASE_MS),
            ("step_pct", 1, 100),
            ("step_interval_ms", 1, _LONGEST_LEASE_MS),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise InvalidInput(name, f"must be from {low} to {high}", value)


class LeasePhase(StrEnum):
    """held: all is well; holding: expired, nothing grows; stepping: the ceiling goes down to the floor and stays there."""

    HELD = "held"
    HOLDING = "holding"
    STEPPING = "stepping"


class Lease(Struct, frozen=True, kw_only=True):
    """When the control plane was last heard and for how long that holds.

    `start_mcpu` is the ceiling that was found when the expiry was noticed; steps count down from it.
    """

    renewed_at_ms: int
    lease_ms: int
    start_mcpu: int | None = None


def renewed(lease: Lease, policy: LeasePolicy, lease_ms: int, now_ms: int) -> Lease:
    """The lease after the control plane was heard; `lease_ms` below 1 keeps the length, above `most_ms` it is cut."""
    length = min(lease.lease_ms if lease_ms < 1 else lease_ms, policy.most_ms)
    return Lease(renewed_at_ms=max(now_ms, lease.renewed_at_ms), lease_ms=length)


def expired_at(lease: Lease) -> int:
    """The first moment at which the lease no longer holds."""
    return lease.renewed_at_ms + lease.lease_ms


def phase_of(lease: Lease, policy: LeasePolicy, now_ms: int) -> LeasePhase:
    """Where the lease stands at `now_ms`."""
    if now_ms < expired_at(lease):
        return LeasePhase.HELD
    if now_ms < expired_at(lease) + policy.hold_ms:
        return LeasePhase.HOLDING
    return LeasePhase.STEPPING


def limit_mcpu(
    lease: Lease, policy: LeasePolicy, *, ceiling_mcpu: int, capacity_mcpu: int, floor_mcpu: int, now_ms: int
) -> tuple[Lease, int | None]:
    """The lease (with its start noted) and the highest ceiling it allows; None while it is held.

    Holding allows what is there. Stepping allows start - n x step, n counting from 1 at the end of the hold and rising by 1
    each interval, step = capacity x step_pct // 100 (at least 1), and never less than the floor.
    """
    phase = phase_of(lease, policy, now_ms)
    if phase is LeasePhase.HELD:
        return lease, None
    start = lease.start_mcpu
    if start is None:
        start = ceiling_mcpu
        lease = replace(lease, start_mcpu=start)
    if phase is LeasePhase.HOLDING:
        return lease, max(floor_mcpu, start)
    steps = 1 + (now_ms - expired_at(lease) - policy.hold_ms) // policy.step_interval_ms
    step = max(1, capacity_mcpu * policy.step_pct // 100)
    return lease, max(floor_mcpu, start - steps * step)


def next_step_ms(lease: Lease, policy: LeasePolicy, now_ms: int) -> int:
    """The next moment, after now, at which the limit may change by itself."""
    phase = phase_of(lease, policy, now_ms)
    if phase is LeasePhase.HELD:
        return expired_at(lease)
    first_step = expired_at(lease) + policy.hold_ms
    if phase is LeasePhase.HOLDING:
        return first_step
    done = (now_ms - first_step) // policy.step_interval_ms
    return first_step + (done + 1) * policy.step_interval_ms
