"""What online work suffers with batch work at the floor, and whether freezing batch work has helped it."""

from msgspec import Struct

from colo_executor.freeze import FreezeCause, FreezeState
from colo_executor.slo import SloPolicy, SloState
from colo_executor.stall import StallPolicy, StallState, accused_of, share_of
from colo_executor.suppress import SuppressPolicy, left_mcpu

__all__ = ["NO_HARM", "FreezeHarm", "harm_of_latency", "harm_of_use", "harm_of_waiting"]


class FreezeHarm(Struct, frozen=True, kw_only=True):
    """The harm there is now, None without one. While batch work is frozen for it: whether that has helped; None: nobody knows."""

    cause: FreezeCause | None = None
    has_helped: bool | None = True


NO_HARM = FreezeHarm()


def harm_of_waiting(
    policy: StallPolicy,
    state: StallState,
    freeze: FreezeState,
    *,
    batch_used_mcpu: int,
    capacity_mcpu: int,
    now_ms: int,
) -> FreezeHarm:
    """The group of online work that waits for a CPU at the mark; while frozen for one, that group until it is below `calm_pct`.

    Batch work that uses less than `blamed_pct` of the node is not why somebody waits. A freeze helps when the share of the group
    falls by `relief_pct` percent of itself.
    """
    before = freeze.cause
    if before is None:
        if batch_used_mcpu * 100 < capacity_mcpu * policy.blamed_pct:
            return NO_HARM
        accused = accused_of(policy, state, now_ms)
        return NO_HARM if accused is None else FreezeHarm(cause=FreezeCause(group=accused[0], pct=accused[1]))
    pct = share_of(state, before.group)
    if pct < policy.calm_pct:
        return NO_HARM
    has_helped = pct * 100 <= before.pct * (100 - policy.relief_pct)
    return FreezeHarm(cause=FreezeCause(group=before.group, pct=pct), has_helped=has_helped)


def harm_of_latency(
    policy: SloPolicy, state: SloState, freeze: FreezeState, *, floor_mcpu: int, least_ms: int
) -> FreezeHarm:
    """The workload that breaks the SLO of its own latency though the limit for it is at the floor, by a value measured there.

    While frozen for one, only its values that were measured since then judge: one that keeps the SLO says that the harm is over,
    one that breaks it after `least_ms` that batch work is not the cause. Without such a value nobody knows whether it helped.
    """
    violation, before = state.violation, freeze.cause
    if violation is None or state.limit_mcpu is None or state.limit_mcpu > floor_mcpu:
        return NO_HARM
    measured_ms = state.noted_at_ms - violation.age_ms
    if before is None:
        is_high = violation.violation_pct >= policy.mark_pct and violation.breaks_slo
        if not is_high or measured_ms <= state.stepped_at_ms:
            return NO_HARM
        return FreezeHarm(cause=FreezeCause(workload=violation.workload, pct=violation.violation_pct))
    since_ms = freeze.frozen_since_ms or 0
    if violation.workload != before.workload or measured_ms < since_ms:
        return FreezeHarm(cause=before, has_helped=None)
    if not violation.breaks_slo:
        return NO_HARM
    return FreezeHarm(cause=before, has_helped=False if measured_ms - since_ms >= least_ms else None)


def harm_of_use(
    policy: SuppressPolicy, freeze: FreezeState, *, capacity_mcpu: int, online_used_mcpu: int, system_used_mcpu: int
) -> FreezeHarm:
    """Online work that leaves nothing below the threshold of the node; while frozen, until it leaves the band."""
    left = left_mcpu(policy, capacity_mcpu, online_used_mcpu, system_used_mcpu)
    least = 0 if freeze.cause is None else capacity_mcpu * policy.band_pct // 100
    if left >= least:
        return NO_HARM
    return FreezeHarm(cause=FreezeCause(pct=(online_used_mcpu + system_used_mcpu) * 100 // capacity_mcpu))
