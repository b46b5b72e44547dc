"""How much batch work may use while online work breaks the SLO of its own latency.

The workload's own metric sees what neither CPU use nor waiting shows: a memory bus, a cache, a disk. It is slow (a value every few
seconds, a rate over five minutes), so the limit moves slowly: down by a step while the newest value breaks the SLO, not at all
while only the rate is high, and off once the rate is low. Online work that breaks its SLO as well with batch work at the floor
has another trouble, and batch work gets its CPU back for a while.
"""

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from colo_common.model.invalid import InvalidInput
from colo_common.model.ranges import check_ranges
from colo_common.model.slo import VIOLATION_SOFT_PCT, OnlineViolation

__all__ = ["SloPolicy", "SloState", "noted", "slo_limited"]


class SloPolicy(Struct, frozen=True, kw_only=True):
    """The parameters of the limit; `mark_pct` 0: the rule is off.

    The limit begins when the violation rate is at least `mark_pct`, its newest value breaks the SLO, and batch work uses
    `blamed_pct` of the CPUs; it falls by `step_pct` of the capacity each `step_interval_ms`, and ends below `calm_pct`. A rate that
    was told more than `stale_ms` ago limits nothing. After `excuse_after_ms` at the floor without relief there is no limit for
    `excuse_ms`.
    """

    mark_pct: int = VIOLATION_SOFT_PCT
    calm_pct: int = VIOLATION_SOFT_PCT // 2
    blamed_pct: int = 5
    step_pct: int = 20
    step_interval_ms: int = 10_000
    stale_ms: int = 30_000
    excuse_after_ms: int = 60_000
    excuse_ms: int = 600_000

    def validate(self) -> None:
        """Raise InvalidInput for a number without meaning."""
        check_ranges(
            self,
            ("mark_pct", 0, 100),
            ("calm_pct", 0, 100),
            ("blamed_pct", 0, 100),
            ("step_pct", 1, 100),
            ("step_interval_ms", 1_000, 600_000),
            ("stale_ms", 1_000, 600_000),
            ("excuse_after_ms", 1_000, 3_600_000),
            ("excuse_ms", 0, 86_400_000),
        )
        if self.mark_pct and self.calm_pct >= self.mark_pct:
            raise InvalidInput("calm_pct", f"must be below mark_pct, which is {self.mark_pct}", self.calm_pct)


class SloState(Struct, frozen=True, kw_only=True):
    """The newest rate and when it came; the limit (None: there is none) and when it last fell; since when it is at the floor.

    `ended` says why the last limit ended: the rate fell, nobody told it any more, or the floor did not help.
    """

    violation: OnlineViolation | None = None
    noted_at_ms: int = 0
    limit_mcpu: int | None = None
    stepped_at_ms: int = 0
    floor_since_ms: int | None = None
    excused_until_ms: int = 0
    ended: Literal["kept", "unknown", "otherwise"] = "kept"


def noted(state: SloState, violation: OnlineViolation, now_ms: int) -> SloState:
    """Take what the newest sample says."""
    return replace(state, violation=violation, noted_at_ms=now_ms)


def slo_limited(
    policy: SloPolicy,
    state: SloState,
    *,
    ceiling_mcpu: int,
    capacity_mcpu: int,
    floor_mcpu: int,
    batch_used_mcpu: int,
    now_ms: int,
) -> SloState:
    """The state with the limit that holds now. The limit is never below the floor; a missing or old rate takes it away."""
    violation = state.violation
    if not policy.mark_pct or violation is None or now_ms - state.noted_at_ms > policy.stale_ms:
        return _freed(state, "unknown")
    if violation.violation_pct < policy.calm_pct:
        return _freed(state, "kept")
    if state.limit_mcpu is None:
        is_blamed = batch_used_mcpu * 100 >= capacity_mcpu * policy.blamed_pct
        is_high = violation.violation_pct >= policy.mark_pct and violation.breaks_slo
        if not (is_high and is_blamed) or now_ms < state.excused_until_ms:
            return state
        return _stepped(policy, state, min(ceiling_mcpu, batch_used_mcpu), capacity_mcpu, floor_mcpu, now_ms)
    if not violation.breaks_slo:
        return state if state.floor_since_ms is None else replace(state, floor_since_ms=None)
    if state.limit_mcpu <= floor_mcpu:
        since_ms = now_ms if state.floor_since_ms is None else state.floor_since_ms
        if now_ms - since_ms < policy.excuse_after_ms:
            return replace(state, floor_since_ms=since_ms)
        return replace(_freed(state, "otherwise"), excused_until_ms=now_ms + policy.excuse_ms)
    if violation.violation_pct < policy.mark_pct or now_ms - state.stepped_at_ms < policy.step_interval_ms:
        return state
    return _stepped(policy, state, state.limit_mcpu, capacity_mcpu, floor_mcpu, now_ms)


def _stepped(
    policy: SloPolicy, state: SloState, from_mcpu: int, capacity_mcpu: int, floor_mcpu: int, now_ms: int
) -> SloState:
    limit_mcpu = max(floor_mcpu, from_mcpu - max(1, capacity_mcpu * policy.step_pct // 100))
    return replace(state, limit_mcpu=limit_mcpu, stepped_at_ms=now_ms, floor_since_ms=None)


def _freed(state: SloState, why: Literal["kept", "unknown", "otherwise"]) -> SloState:
    return state if state.limit_mcpu is None else replace(state, limit_mcpu=None, floor_since_ms=None, ended=why)
