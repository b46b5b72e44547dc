"""The lease of batch work: when the control plane does not renew it, the node lowers the batch ceiling step by step."""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from colo_common.model.ranges import check_ranges

__all__ = [
    "LONGEST_LEASE_MS",
    "LastLease",
    "Lease",
    "LeasePhase",
    "LeasePolicy",
    "begun",
    "expired_at",
    "limit_mcpu",
    "next_step_ms",
    "phase_of",
    "renewed",
]

LONGEST_LEASE_MS = 600_000


class LeasePolicy(Struct, frozen=True, kw_only=True):
    """The lease is `default_ms` long until the control plane sets another length, which is cut to `most_ms`.

    After the lease expired the ceiling does not grow for `hold_ms`; then it falls by `step_pct` of the capacity each interval.
    """

    default_ms: int = 15_000
    most_ms: int = LONGEST_LEASE_MS
    hold_ms: int = 5_000
    step_pct: int = 20
    step_interval_ms: int = 1_000

    def validate(self) -> None:
        """Raise InvalidInput for a number without meaning."""
        check_ranges(
            self,
            ("default_ms", 1, LONGEST_LEASE_MS),
            ("most_ms", 1, LONGEST_LEASE_MS),
            ("hold_ms", 0, LONGEST_LEASE_MS),
            ("step_pct", 1, 100),
            ("step_interval_ms", 1, LONGEST_LEASE_MS),
        )


class LeasePhase(StrEnum):
    """held: not expired; holding: expired, the ceiling does not grow; stepping: the ceiling falls to the floor and stays there."""

    HELD = "held"
    HOLDING = "holding"
    STEPPING = "stepping"


class Lease(Struct, frozen=True, kw_only=True):
    """The time of the last renewal and the length of the lease.

    `start_mcpu` is the ceiling at which the expiry was noticed; the steps count down from it.
    """

    renewed_at_ms: int
    lease_ms: int
    start_mcpu: int | None = None


class LastLease(Struct, frozen=True, kw_only=True):
    """What a start finds: how long ago the lease was last renewed, and its length; 0: the policy's."""

    age_ms: int
    lease_ms: int = 0


def begun(policy: LeasePolicy, now_ms: int, last_lease: LastLease) -> Lease:
    """The lease of an executor that starts: it goes on as it was, and no start renews it."""
    length = min(last_lease.lease_ms or policy.default_ms, policy.most_ms)
    return Lease(renewed_at_ms=now_ms - last_lease.age_ms, lease_ms=length)


def renewed(lease: Lease, policy: LeasePolicy, lease_ms: int, now_ms: int) -> Lease:
    """The lease after a renewal; `lease_ms` below 1 keeps the length, and a length above `most_ms` is cut."""
    length = min(lease.lease_ms if lease_ms < 1 else lease_ms, policy.most_ms)
    return Lease(renewed_at_ms=max(now_ms, lease.renewed_at_ms), lease_ms=length)


def expired_at(lease: Lease) -> int:
    """The first moment at which the lease no longer holds."""
    return lease.renewed_at_ms + lease.lease_ms


def phase_of(lease: Lease, policy: LeasePolicy, now_ms: int) -> LeasePhase:
    """The phase of the lease at `now_ms`."""
    if now_ms < expired_at(lease):
        return LeasePhase.HELD
    if now_ms < expired_at(lease) + policy.hold_ms:
        return LeasePhase.HOLDING
    return LeasePhase.STEPPING


def limit_mcpu(
    lease: Lease, policy: LeasePolicy, *, ceiling_mcpu: int, capacity_mcpu: int, floor_mcpu: int, now_ms: int
) -> tuple[Lease, int | None]:
    """The lease with its `start_mcpu`, and the highest ceiling that it allows: None while it is held.

    Holding allows the start. Stepping allows start - n x step, n counting from 1 at the end of the hold and rising by 1
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
    """The next time after now at which the limit may change without an event."""
    phase = phase_of(lease, policy, now_ms)
    if phase is LeasePhase.HELD:
        return expired_at(lease)
    first_step = expired_at(lease) + policy.hold_ms
    if phase is LeasePhase.HOLDING:
        return first_step
    done = (now_ms - first_step) // policy.step_interval_ms
    return first_step + (done + 1) * policy.step_interval_ms
