"""The reflex: sets the batch tier's ceiling from fast local readings, without the network.

It is a core of its own, because it must go on while the rest of the service waits for a server.
"""

from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from colo_common.events.effects import Wake
from colo_common.model.invalid import InvariantBroken
from colo_common.model.reasons import Reason
from colo_executor.lease import Lease, LeasePhase, LeasePolicy, expired_at, limit_mcpu, next_step_ms, phase_of, renewed
from colo_executor.local import CeilingMoved, CeilingRefused, CeilingWritten, FastReading, RenewLease, SetCeiling
from colo_executor.suppress import Suppress, SuppressDecision, SuppressPolicy, bounds_mcpu, decide

__all__ = ["Reflex", "ReflexEffect", "ReflexEvent", "ReflexPolicy"]

ReflexEvent = FastReading | RenewLease | CeilingWritten | CeilingRefused | Wake
ReflexEffect = SetCeiling | CeilingMoved


class ReflexPolicy(Struct, frozen=True, kw_only=True):
    """The policies of suppression and lease, and the limits of the reflex itself.

    After `blind_ms` without a reading the node's load is unknown and the ceiling goes to the floor. A ceiling that the kernel
    refused is tried again after `retry_ms`, doubled at each refusal up to `retry_most_ms`.
    """

    suppress: SuppressPolicy = SuppressPolicy()
    lease: LeasePolicy = LeasePolicy()
    blind_ms: int = 1_000
    retry_ms: int = 1_000
    retry_most_ms: int = 30_000

    def validate(self) -> None:
        """Raise InvalidInput for a number without meaning."""
        self.suppress.validate()
        self.lease.validate()


class Reflex:
    """Owns the ceiling. `capacity_mcpu` is the node's capacity until the first reading brings another one."""

    def __init__(
        self, policy: ReflexPolicy, *, capacity_mcpu: int, now_ms: int, ceiling_mcpu: int | None = None
    ) -> None:
        self.policy = policy
        self.lease = Lease(renewed_at_ms=now_ms, lease_ms=min(policy.lease.default_ms, policy.lease.most_ms))
        self.refusals = 0
        self._capacity_mcpu = capacity_mcpu
        self._suppress = Suppress(ceiling_mcpu=ceiling_mcpu)
        self._written_mcpu = ceiling_mcpu
        self._reading: FastReading | None = None
        self._read_at_ms = now_ms
        self._seen_ms = now_ms
        # Why the ceiling last fell, and why it last rose: the direction that the kernel shows in the end picks one of them.
        self._fell = Reason.ONLINE_LOAD
        self._rose = Reason.ONLINE_LOAD_FELL
        self._target_mcpu = 0
        self._restoring = False
        self._blind = False
        self._retry_at_ms: int | None = None

    @property
    def ceiling_mcpu(self) -> int | None:
        """The ceiling in the kernel, as it was last read back."""
        return self._written_mcpu

    def phase(self, now_ms: int) -> LeasePhase:
        """The phase of the lease."""
        return phase_of(self.lease, self.policy.lease, now_ms)

    def handle(self, event: ReflexEvent, now_ms: int) -> list[ReflexEffect]:
        """The only way in. Same state, event and time give the same effects."""
        self._seen_ms = now_ms
        match event:
            case FastReading():
                return self._read(event, now_ms)
            case RenewLease():
                self._restoring = self._restoring or self.phase(now_ms) is LeasePhase.STEPPING
                self.lease = renewed(self.lease, self.policy.lease, event.lease_ms, now_ms)
                return []
            case CeilingWritten():
                return self._written(event, now_ms)
            case CeilingRefused():
                return self._refused(now_ms)
            case Wake():
                return self._wake(now_ms)
            case _:
                assert_never(event)

    def deadline_ms(self) -> int | None:
        """When to send Wake: the end of `blind_ms`, the next step of the lease, or the next try of a refused ceiling."""
        if self._suppress.ceiling_mcpu is None:
            return None
        due = [self._retry_at_ms] if self._retry_at_ms is not None else []
        if not self._blind:
            due.append(self._read_at_ms + self.policy.blind_ms)
            due.append(next_step_ms(self.lease, self.policy.lease, self._seen_ms))
        return min(due, default=None)

    def check(self) -> None:
        """Raise InvariantBroken when the ceiling is above what the node's capacity allows."""
        _, cap = bounds_mcpu(self.policy.suppress, self._capacity_mcpu)
        ceiling = self._suppress.ceiling_mcpu
        if ceiling is not None and self._reading is not None and ceiling > cap:
            raise InvariantBroken("batch ceiling above the cap", ceiling_mcpu=ceiling, cap_mcpu=cap)

    def _read(self, reading: FastReading, now_ms: int) -> list[ReflexEffect]:
        if reading.capacity_mcpu < 1:
            return []
        self._capacity_mcpu = reading.capacity_mcpu
        self._reading = reading
        self._read_at_ms = now_ms
        self._blind = False
        ceiling = self._suppress.ceiling_mcpu
        limit = self._limit(reading.capacity_mcpu if ceiling is None else ceiling, now_ms)
        decision = decide(
            self.policy.suppress,
            self._suppress,
            capacity_mcpu=reading.capacity_mcpu,
            online_used_mcpu=reading.online_used_mcpu,
            system_used_mcpu=reading.system_used_mcpu,
            now_ms=now_ms,
            limit_mcpu=limit,
        )
        self._suppress = decision.state
        self._target_mcpu = decision.target_mcpu
        self._note_reason(decision)
        return self._write(now_ms)

    def _note_reason(self, decision: SuppressDecision) -> None:
        match decision.change:
            case "none":
                return
            case "lease":
                self._fell = Reason.LEASE_EXPIRED
            case "shrink":
                self._fell = Reason.ONLINE_LOAD
                self._restoring = False
            case "first":
                self._fell = Reason.ONLINE_LOAD
            case "grow":
                self._rose = Reason.LEASE_RENEWED if self._restoring else Reason.ONLINE_LOAD_FELL
                self._restoring = self._restoring and decision.ceiling_mcpu < decision.target_mcpu

    def _wake(self, now_ms: int) -> list[ReflexEffect]:
        ceiling = self._suppress.ceiling_mcpu
        if ceiling is None:
            return []
        floor, _ = bounds_mcpu(self.policy.suppress, self._capacity_mcpu)
        if not self._blind and now_ms - self._read_at_ms >= self.policy.blind_ms:
            self._blind = True
            self._fell, ceiling = Reason.LOAD_UNREADABLE, min(ceiling, floor)
        elif not self._blind:
            limit = self._limit(ceiling, now_ms)
            if limit is not None and limit < ceiling:
                self._fell, ceiling = Reason.LEASE_EXPIRED, limit
        self._suppress = replace(self._suppress, ceiling_mcpu=ceiling)
        return self._write(now_ms)

    def _limit(self, ceiling: int, now_ms: int) -> int | None:
        if now_ms < expired_at(self.lease):
            return None
        floor, _ = bounds_mcpu(self.policy.suppress, self._capacity_mcpu)
        self.lease, limit = limit_mcpu(
            self.lease,
            self.policy.lease,
            ceiling_mcpu=ceiling,
            capacity_mcpu=self._capacity_mcpu,
            floor_mcpu=floor,
            now_ms=now_ms,
        )
        return limit

    def _write(self, now_ms: int) -> list[ReflexEffect]:
        ceiling = self._suppress.ceiling_mcpu
        if self._retry_at_ms is not None and now_ms < self._retry_at_ms:
            return []
        self._retry_at_ms = None
        if ceiling is None or ceiling == self._written_mcpu:
            return []
        return [SetCeiling(ceiling_mcpu=ceiling)]

    def _written(self, event: CeilingWritten, now_ms: int) -> list[ReflexEffect]:
        before, self._written_mcpu = self._written_mcpu, event.ceiling_mcpu
        self._retry_at_ms, self.refusals = None, 0
        if before == event.ceiling_mcpu:
            return []
        before_mcpu = self._capacity_mcpu if before is None else before
        moved = CeilingMoved(
            at_ms=now_ms,
            reason=self._rose if event.ceiling_mcpu > before_mcpu else self._fell,
            ceiling_mcpu=event.ceiling_mcpu,
            before_mcpu=before_mcpu,
            online_used_mcpu=0 if self._reading is None else self._reading.online_used_mcpu,
            target_mcpu=self._target_mcpu,
            capacity_mcpu=self._capacity_mcpu,
            knobs=event.knobs,
        )
        return [moved]

    def _refused(self, now_ms: int) -> list[ReflexEffect]:
        wait_ms = min(self.policy.retry_ms << min(self.refusals, 16), self.policy.retry_most_ms)
        self.refusals += 1
        self._retry_at_ms = now_ms + wait_ms
        return []
