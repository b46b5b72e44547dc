"""The batch tier's CPU ceiling from one fast reading: shrink at once, give back slowly, do not swing."""

from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from colo_common.model.ranges import check_ranges

__all__ = [
    "Suppress",
    "SuppressDecision",
    "SuppressPolicy",
    "bounds_mcpu",
    "decide",
    "left_mcpu",
    "may_turn",
    "target_mcpu",
    "turned",
    "turns_of",
]


_MINUTE_MS: Final = 60_000


class SuppressPolicy(Struct, frozen=True, kw_only=True):
    """The parameters of suppression; percentages are of the node's CPU capacity.

    Batch and online work together may use `threshold_pct`; it must be above the `cpu_reclaim_pct` of the overcommit service (75
    by default), or promised work is suppressed on a quiet node too. Batch work always keeps `floor_mcpu`, and `floor_pct` of the
    node if that is more. Changes smaller than `band_pct` are ignored. The ceiling grows by at most `grow_step_pct` each
    `grow_interval_ms`, no earlier than `grow_hold_ms` after a shrink, and turns from shrinking to growing at most `reversals_most`
    times a minute: what is safe to give back is given back soon, and only load that swings for long is answered with a ceiling
    that rests.
    """

    threshold_pct: int = 80
    floor_mcpu: int = 200
    floor_pct: int = 0
    band_pct: int = 1
    grow_step_pct: int = 10
    grow_interval_ms: int = 1_000
    grow_hold_ms: int = 2_000
    reversals_most: int = 6

    def validate(self) -> None:
        """Raise InvalidInput for a number without meaning."""
        check_ranges(
            self,
            ("threshold_pct", 1, 100),
            ("floor_mcpu", 10, 1_000_000_000),
            ("floor_pct", 0, 100),
            ("band_pct", 0, 50),
            ("grow_step_pct", 1, 100),
            ("grow_interval_ms", 0, 600_000),
            ("grow_hold_ms", 0, 600_000),
            ("reversals_most", 1, 1_000_000),
        )


class Suppress(Struct, frozen=True, kw_only=True):
    """The state of the rule. `ceiling_mcpu` None: nothing was decided yet.

    `moved` is the direction of the last change that load caused. `lowest_*` are rolling minima of the target over the last one to
    two hold times, so that the ceiling grows no higher than was safe in all of that time. `turns_ms` are the turns from shrinking
    to growing of the last minute, at most `reversals_most`.
    """

    ceiling_mcpu: int | None = None
    moved: Literal["none", "shrink", "grow"] = "none"
    last_shrink_ms: int | None = None
    last_grow_ms: int | None = None
    turns_ms: tuple[int, ...] = ()
    bucket_ms: int = 0
    lowest_now_mcpu: int | None = None
    lowest_before_mcpu: int | None = None


class SuppressDecision(Struct, frozen=True, kw_only=True):
    """The state after a reading. `change` is the kind of change of the ceiling; the lease alone causes a "lease" shrink."""

    state: Suppress
    ceiling_mcpu: int
    target_mcpu: int
    change: Literal["none", "first", "shrink", "grow", "lease"]


def bounds_mcpu(policy: SuppressPolicy, capacity_mcpu: int) -> tuple[int, int]:
    """The lowest and the highest ceiling of a node; percentages round down, and a floor above the cap is the cap."""
    cap = capacity_mcpu * policy.threshold_pct // 100
    return min(max(policy.floor_mcpu, capacity_mcpu * policy.floor_pct // 100), cap), cap


def left_mcpu(policy: SuppressPolicy, capacity_mcpu: int, online_used_mcpu: int, system_used_mcpu: int) -> int:
    """What online work leaves to batch work: capacity x threshold_pct // 100 - online used - system used; negative when it is over.

    The larger of what the system uses (interrupts, stolen time, the CPUs that the node withholds) and what the node reserves for
    it is the system's use here, and none of it is online work's (suppress(BE) = node.total x SLO % - LS.used - max(system.used,
    reserved)).
    """
    return bounds_mcpu(policy, capacity_mcpu)[1] - online_used_mcpu - system_used_mcpu


def target_mcpu(policy: SuppressPolicy, capacity_mcpu: int, online_used_mcpu: int, system_used_mcpu: int) -> int:
    """The CPU that batch work may use now: what online work leaves, within floor and cap."""
    floor, cap = bounds_mcpu(policy, capacity_mcpu)
    return max(floor, min(cap, left_mcpu(policy, capacity_mcpu, online_used_mcpu, system_used_mcpu)))


def decide(
    policy: SuppressPolicy,
    state: Suppress,
    *,
    capacity_mcpu: int,
    online_used_mcpu: int,
    system_used_mcpu: int,
    now_ms: int,
    limit_mcpu: int | None = None,
    most_mcpu: int | None = None,
    other_turns: int = 0,
) -> SuppressDecision:
    """The next ceiling. `limit_mcpu` (an expired lease) caps it further and forbids growth; the target is at most `most_mcpu`.

    Shrink: whenever the target is at least the band below the ceiling (or is the floor): at once, by any amount, always.
    Grow: when the target is at least the band above (or is the cap), `grow_hold_ms` after the last shrink and
    `grow_interval_ms` after the last growth, by one step; and, where the last move was a shrink, only when fewer than
    `reversals_most` turns to growing are younger than a minute, with those of other ceilings of the node (`other_turns`).
    A shrink that the limit causes is not a move of load: it neither starts the hold nor counts as a change of direction.
    """
    floor, cap = bounds_mcpu(policy, capacity_mcpu)
    target = target_mcpu(policy, capacity_mcpu, online_used_mcpu, system_used_mcpu)
    if most_mcpu is not None:
        target = max(floor, min(target, most_mcpu))
    state = _rolled(policy, state, target, now_ms)
    ceiling = state.ceiling_mcpu
    if ceiling is None:
        first = target if limit_mcpu is None else max(floor, min(target, limit_mcpu))
        return _decided(replace(state, ceiling_mcpu=first), target, "first")
    band = capacity_mcpu * policy.band_pct // 100
    if target < ceiling and (ceiling - target >= band or target == floor):
        return _shrunk(state, target, target, limit_mcpu, floor, now_ms)
    limit = cap if limit_mcpu is None else max(floor, min(cap, limit_mcpu))
    if limit < ceiling:
        return _decided(replace(state, ceiling_mcpu=limit), target, "lease" if limit_mcpu is not None else "shrink")
    if limit_mcpu is not None:
        return _decided(state, target, "none")
    return _grown(policy, state, capacity_mcpu, target, band, now_ms, other_turns)


def _shrunk(state: Suppress, ceiling: int, target: int, limit: int | None, floor: int, now_ms: int) -> SuppressDecision:
    if limit is not None:
        ceiling = max(floor, min(ceiling, limit))
    state = replace(state, ceiling_mcpu=ceiling, moved="shrink", last_shrink_ms=now_ms)
    return _decided(state, target, "shrink")


def _grown(
    policy: SuppressPolicy, state: Suppress, capacity: int, target: int, band: int, now_ms: int, other_turns: int
) -> SuppressDecision:
    ceiling = state.ceiling_mcpu or 0
    _, cap = bounds_mcpu(policy, capacity)
    safe = min(known for known in (target, state.lowest_now_mcpu, state.lowest_before_mcpu) if known is not None)
    may_rise = safe > ceiling and (safe - ceiling >= band or safe == cap)
    if not may_rise or not _may_grow(policy, state, now_ms, other_turns):
        return _decided(state, target, "none")
    step = max(1, capacity * policy.grow_step_pct // 100)
    return _decided(replace(turned(state, now_ms), ceiling_mcpu=min(safe, ceiling + step)), target, "grow")


def may_turn(policy: SuppressPolicy, state: Suppress, now_ms: int, other_turns: int) -> bool:
    """Whether the ceiling may grow as far as the number of its turns goes: always where it grew last."""
    return state.moved != "shrink" or other_turns + turns_of(state, now_ms) < policy.reversals_most


def turned(state: Suppress, now_ms: int) -> Suppress:
    """The state of a ceiling that grows now: a turn where it shrank before."""
    turns_ms = state.turns_ms
    if state.moved == "shrink":
        turns_ms = (*(at_ms for at_ms in turns_ms if now_ms - at_ms < _MINUTE_MS), now_ms)
    return replace(state, moved="grow", last_grow_ms=now_ms, turns_ms=turns_ms)


def turns_of(state: Suppress, now_ms: int) -> int:
    """How many turns from shrinking to growing are younger than a minute."""
    return sum(now_ms - at_ms < _MINUTE_MS for at_ms in state.turns_ms)


def _may_grow(policy: SuppressPolicy, state: Suppress, now_ms: int, other_turns: int) -> bool:
    if state.last_shrink_ms is not None and now_ms - state.last_shrink_ms < policy.grow_hold_ms:
        return False
    if state.last_grow_ms is not None and now_ms - state.last_grow_ms < policy.grow_interval_ms:
        return False
    return may_turn(policy, state, now_ms, other_turns)


def _rolled(policy: SuppressPolicy, state: Suppress, target: int, now_ms: int) -> Suppress:
    """Fold a target into the two rolling minima; a bucket is as long as the hold."""
    age = now_ms - state.bucket_ms
    if state.lowest_now_mcpu is None or age >= 2 * policy.grow_hold_ms:
        return replace(state, bucket_ms=now_ms, lowest_now_mcpu=target, lowest_before_mcpu=None)
    if age >= policy.grow_hold_ms:
        return replace(state, bucket_ms=now_ms, lowest_now_mcpu=target, lowest_before_mcpu=state.lowest_now_mcpu)
    return replace(state, lowest_now_mcpu=min(state.lowest_now_mcpu, target))


def _decided(
    state: Suppress, target: int, change: Literal["none", "first", "shrink", "grow", "lease"]
) -> SuppressDecision:
    return SuppressDecision(state=state, ceiling_mcpu=state.ceiling_mcpu or 0, target_mcpu=target, change=change)
