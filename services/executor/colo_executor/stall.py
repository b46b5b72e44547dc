"""The batch tier's CPU ceiling from what online work feels: a shrink is a trial, and stays only where it relieved online work.

The kernel tells for each control group how long some thread of it waited for a CPU (PSI "some"). Online work also waits for
itself, so a high share alone accuses nobody. The rule halves batch work, measures the same group again, and gives the capacity back
when the group waits as before. Where `cpu.idle` is in force the kernel lets online work go first, so this is rarely needed.
"""

from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from colo_common.model.invalid import InvalidInput
from colo_common.model.ranges import check_ranges
from colo_common.model.stall import waited_share

__all__ = [
    "OnlineStalls",
    "StallDecision",
    "StallPolicy",
    "StallState",
    "accused_of",
    "decide_stall",
    "share_of",
    "turns_of",
]

_MINUTE_MS: Final = 60_000

StallChange = Literal["none", "first", "trial", "cores", "given-back", "grow", "lease"]


class StallPolicy(Struct, frozen=True, kw_only=True):
    """The parameters of the rule; shares are percent of the time in which some thread of a group waited for a CPU.

    A trial begins when a group's share of the last `window_ms` is at least `mark_pct` while batch work uses `blamed_pct` of the
    node or more. It halves what batch work uses (never below the floor) and lasts `trial_ms`. The shrink stays when the share fell
    by `relief_pct` percent of itself; otherwise the capacity is given back and the group begins no trial for `excuse_ms`, doubled
    each time up to `excuse_most_ms`. Where batch work may be put on whole cores, that is tried for another `trial_ms` first. After
    a relief batch work stays as it is until every share has been below `calm_pct` for `calm_ms`, or until no group was at the mark
    for `excuse_ms`; then it grows by `grow_step_pct` of the node each `grow_interval_ms`. `calm_ms` doubles, up to `calm_most_ms`,
    each time that a growth is followed by another relief. The ceiling turns from shrinking to growing at most `reversals_most`
    times a minute; a shrink never waits.
    """

    mark_pct: int = 15
    calm_pct: int = 8
    window_ms: int = 1_000
    blamed_pct: int = 2
    trial_ms: int = 1_000
    relief_pct: int = 30
    excuse_ms: int = 30_000
    excuse_most_ms: int = 600_000
    calm_ms: int = 2_000
    calm_most_ms: int = 60_000
    grow_step_pct: int = 10
    grow_interval_ms: int = 1_000
    reversals_most: int = 6

    def validate(self) -> None:
        """Raise InvalidInput for a number without meaning."""
        check_ranges(
            self,
            ("mark_pct", 1, 100),
            ("calm_pct", 0, 100),
            ("window_ms", 100, 60_000),
            ("blamed_pct", 0, 100),
            ("trial_ms", 200, 60_000),
            ("relief_pct", 1, 100),
            ("excuse_ms", 1_000, 3_600_000),
            ("excuse_most_ms", self.excuse_ms, 86_400_000),
            ("calm_ms", 0, 600_000),
            ("calm_most_ms", self.calm_ms, 3_600_000),
            ("grow_step_pct", 1, 100),
            ("grow_interval_ms", 0, 600_000),
            ("reversals_most", 1, 60),
        )
        if self.calm_pct >= self.mark_pct:
            raise InvalidInput("calm_pct", f"must be below mark_pct, which is {self.mark_pct}", self.calm_pct)


class OnlineStalls(Struct, frozen=True, kw_only=True):
    """How long some thread of each online group has waited for a CPU since the group was made, in us, at one moment.

    `throttled_us` is for how long the group's own quota stopped it; a group that is not listed has none. Of the groups `by_threads`
    it is estimated from their threads (`some_wait_ns`). `unseen` are busy groups of which nothing shows it. `zones` has the NUMA
    zone of each group that runs in one zone alone, on a machine with several.
    """

    at_ms: int
    total_us: tuple[tuple[str, int], ...]
    throttled_us: tuple[tuple[str, int], ...] = ()
    by_threads: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    zones: tuple[tuple[str, int], ...] = ()


class Excuse(Struct, frozen=True, kw_only=True):
    """Until when a group that waited without batch work as well begins no trial, and for how long the excuse was given."""

    until_ms: int
    length_ms: int


class StallState(Struct, frozen=True, kw_only=True):
    """The state of the rule. `ceiling_mcpu` None: nothing was decided yet.

    `history` are the readings of the last window, the oldest first. While `trial_group` is set a trial is under way: `before_pct`
    is the group's share at its beginning, and `return_mcpu` the ceiling that it gives back. It is timed from when the kernel has
    its shrink (`is_in_force`), and until then not judged. `on_cores`: it is a trial with batch work on whole cores, because the
    shrink alone relieved too little. `calm_since_ms` None: some group waits. `has_grown`: the ceiling rose since the last relief.
    `reversals_ms` are the turns to growing of the last minute.
    """

    ceiling_mcpu: int | None = None
    history: tuple[OnlineStalls, ...] = ()
    trial_group: str = ""
    trial_since_ms: int = 0
    is_in_force: bool = False
    on_cores: bool = False
    before_pct: int = 0
    return_mcpu: int = 0
    excuses: tuple[tuple[str, Excuse], ...] = ()
    calm_since_ms: int | None = None
    calm_ms: int | None = None
    has_grown: bool = False
    last_grow_ms: int | None = None
    reversals_ms: tuple[int, ...] = ()


class StallDecision(Struct, frozen=True, kw_only=True):
    """The state after a reading; the group that waits most and its share; what changed the ceiling."""

    state: StallState
    group: str
    stall_pct: int
    change: StallChange


def decide_stall(
    policy: StallPolicy,
    state: StallState,
    *,
    capacity_mcpu: int,
    floor_mcpu: int,
    batch_used_mcpu: int,
    stalls: OnlineStalls,
    now_ms: int,
    limit_mcpu: int | None = None,
    other_turns: int = 0,
    may_take_cores: bool = False,
) -> StallDecision:
    """The next ceiling, at most the capacity. `limit_mcpu` (an expired lease) caps it further and forbids growth.

    `may_take_cores`: batch work shares cores with online work and can be put on whole ones, which the change `cores` asks for.
    `other_turns` are the turns of the last minute of other ceilings of the same node, with which it shares `reversals_most`.
    """
    floor = min(floor_mcpu, capacity_mcpu)
    state = _remembered(policy, state, stalls)
    shares = _shares(state.history)
    group, pct = max(shares, key=lambda share: (share[1], share[0]), default=("", 0))
    ceiling = state.ceiling_mcpu
    if ceiling is None:
        first = capacity_mcpu if limit_mcpu is None else max(floor, min(capacity_mcpu, limit_mcpu))
        return _decided(replace(state, ceiling_mcpu=first), group, pct, "first")
    if ceiling > capacity_mcpu:
        state, ceiling = replace(state, ceiling_mcpu=capacity_mcpu), capacity_mcpu
    if limit_mcpu is not None and max(floor, limit_mcpu) < ceiling:
        state = replace(state, ceiling_mcpu=max(floor, limit_mcpu), trial_group="", on_cores=False, return_mcpu=0)
        return _decided(state, group, pct, "lease")
    if state.trial_group:
        return _tried(
            policy, state, shares, group, pct, now_ms, may_grow=limit_mcpu is None, may_take_cores=may_take_cores
        )
    accused = _accused(policy, state, shares, now_ms)
    if accused and ceiling > floor and batch_used_mcpu * 100 >= capacity_mcpu * policy.blamed_pct:
        return _begun(policy, state, accused, floor, batch_used_mcpu, now_ms)
    state = _calmed(policy, state, shares, now_ms)
    if limit_mcpu is None and ceiling < capacity_mcpu and _may_grow(policy, state, now_ms, other_turns):
        step = max(1, capacity_mcpu * policy.grow_step_pct // 100)
        turned = state if state.has_grown else _turned(state, now_ms)
        state = replace(turned, ceiling_mcpu=min(capacity_mcpu, ceiling + step), last_grow_ms=now_ms, has_grown=True)
        return _decided(state, group, pct, "grow")
    return _decided(state, group, pct, "none")


def in_force(state: StallState, now_ms: int) -> StallState:
    """The state once the kernel has its ceiling: a trial begins with that, and the last reading is the first of it."""
    if not state.trial_group or state.is_in_force:
        return state
    return replace(state, is_in_force=True, trial_since_ms=now_ms, history=state.history[-1:])


def accused_of(policy: StallPolicy, state: StallState, now_ms: int) -> tuple[str, int] | None:
    """The group without an excuse that waits most, at the mark or above, and its share; None also while a trial is under way."""
    return None if state.trial_group else _accused(policy, state, _shares(state.history), now_ms)


def share_of(state: StallState, group: str) -> int:
    """The share of a group in the last window; 0 for one that is gone."""
    return dict(_shares(state.history)).get(group, 0)


def _remembered(policy: StallPolicy, state: StallState, stalls: OnlineStalls) -> StallState:
    """Add a reading, unless it is known, and forget those before the window but the newest of them."""
    history = state.history
    if history and stalls.at_ms <= history[-1].at_ms:
        return state
    history = (*history, stalls)
    while len(history) > 2 and stalls.at_ms - history[1].at_ms >= policy.window_ms:
        history = history[1:]
    return replace(state, history=history)


def _shares(history: tuple[OnlineStalls, ...]) -> list[tuple[str, int]]:
    """Each group's share of the time between the first and the last reading, in percent rounded down, at most 100.

    The rule is `waited_share` of colo_common.model.stall: a group that its own quota stopped blames nobody and is left out. So is
    one that is not in both readings, and a counter that fell.
    """
    if len(history) < 2:
        return []
    span_ms = history[-1].at_ms - history[0].at_ms
    first, throttled = dict(history[0].total_us), dict(history[-1].throttled_us)
    throttled_before = dict(history[0].throttled_us)
    found = []
    for name, total_us in history[-1].total_us:
        waited_us = total_us - first.get(name, total_us)
        stopped_us = max(throttled.get(name, 0) - throttled_before.get(name, 0), 0)
        share = waited_share(waited_us, stopped_us, span_ms * 1_000)
        if name in first and waited_us >= 0 and not share.gate:
            found.append((name, share.stall_pct))
    return found


def _accused(
    policy: StallPolicy, state: StallState, shares: list[tuple[str, int]], now_ms: int
) -> tuple[str, int] | None:
    """The group that waits most among those at the mark that have no excuse; half a window must have been seen."""
    history = state.history
    if len(history) < 2 or history[-1].at_ms - history[0].at_ms < policy.window_ms // 2:
        return None
    excused = {name for name, excuse in state.excuses if now_ms < excuse.until_ms}
    found = [share for share in shares if share[1] >= policy.mark_pct and share[0] not in excused]
    return max(found, key=lambda share: (share[1], share[0]), default=None)


def _begun(
    policy: StallPolicy, state: StallState, accused: tuple[str, int], floor: int, batch_used_mcpu: int, now_ms: int
) -> StallDecision:
    name, pct = accused
    ceiling = state.ceiling_mcpu or 0
    state = replace(
        state,
        ceiling_mcpu=max(floor, min(ceiling, batch_used_mcpu) // 2),
        history=state.history[-1:],
        trial_group=name,
        trial_since_ms=now_ms,
        is_in_force=False,
        before_pct=pct,
        return_mcpu=ceiling,
        calm_since_ms=None,
    )
    return _decided(state, name, pct, "trial")


def _tried(
    policy: StallPolicy,
    state: StallState,
    shares: list[tuple[str, int]],
    worst: str,
    worst_pct: int,
    now_ms: int,
    *,
    may_grow: bool,
    may_take_cores: bool,
) -> StallDecision:
    """Wait for the end of the trial, then judge it. A group that is gone was relieved of nothing.

    What another thread of its core costs a group no quota takes away: before batch work is acquitted it is tried on whole cores.
    """
    if not state.is_in_force or now_ms - state.trial_since_ms < policy.trial_ms:
        return _decided(state, worst, worst_pct, "none")
    name = state.trial_group
    after_pct = dict(shares).get(name, state.before_pct)
    known = dict(state.excuses)
    if after_pct * 100 <= state.before_pct * (100 - policy.relief_pct):
        known.pop(name, None)
        calm_ms = policy.calm_ms if state.calm_ms is None else state.calm_ms
        if state.has_grown:
            calm_ms = min(policy.calm_most_ms, max(1, calm_ms) * 2)
        state = replace(
            state,
            trial_group="",
            on_cores=False,
            excuses=tuple(sorted(known.items())),
            calm_ms=calm_ms,
            calm_since_ms=None,
            has_grown=False,
            # The readings of the trial say what batch work does at its new ceiling; another trial needs a window of its own.
            history=state.history[-1:],
        )
        return _decided(state, name, after_pct, "none")
    if may_take_cores and not state.on_cores and name in dict(shares):
        state = replace(state, on_cores=True, trial_since_ms=now_ms, is_in_force=False, history=state.history[-1:])
        return _decided(state, name, after_pct, "cores")
    last = known.get(name)
    length_ms = policy.excuse_ms if last is None else min(policy.excuse_most_ms, last.length_ms * 2)
    known[name] = Excuse(until_ms=now_ms + length_ms, length_ms=length_ms)
    # Excuses that are long over are forgotten with their groups.
    kept = {key: excuse for key, excuse in known.items() if now_ms < excuse.until_ms + policy.excuse_most_ms}
    state = replace(state, trial_group="", on_cores=False, excuses=tuple(sorted(kept.items())))
    if may_grow:
        # A mistake is undone at once, whatever the budget of turns says; it counts all the same.
        state = replace(_turned(state, now_ms), ceiling_mcpu=state.return_mcpu)
    return _decided(state, name, after_pct, "given-back" if may_grow else "none")


def _calmed(policy: StallPolicy, state: StallState, shares: list[tuple[str, int]], now_ms: int) -> StallState:
    """Note since when no group without an excuse has waited more than `calm_pct`."""
    excused = {name for name, excuse in state.excuses if now_ms < excuse.until_ms}
    if any(pct >= policy.calm_pct for name, pct in shares if name not in excused):
        return state if state.calm_since_ms is None else replace(state, calm_since_ms=None)
    if state.calm_since_ms is None:
        return replace(state, calm_since_ms=now_ms)
    if state.calm_ms is not None and now_ms - state.calm_since_ms >= 2 * policy.calm_most_ms:
        return replace(state, calm_ms=None)
    return state


def _turned(state: StallState, now_ms: int) -> StallState:
    """Count a turn from shrinking to growing."""
    recent = tuple(at_ms for at_ms in state.reversals_ms if now_ms - at_ms < _MINUTE_MS)
    return replace(state, reversals_ms=(*recent, now_ms))


def turns_of(state: StallState, now_ms: int) -> int:
    """How often the ceiling turned from shrinking to growing in the last minute."""
    return sum(now_ms - at_ms < _MINUTE_MS for at_ms in state.reversals_ms)


def _may_grow(policy: StallPolicy, state: StallState, now_ms: int, other_turns: int) -> bool:
    calm_ms = policy.calm_ms if state.calm_ms is None else state.calm_ms
    is_calm = state.calm_since_ms is not None and now_ms - state.calm_since_ms >= calm_ms
    # Online work that waits a little for ever is not relieved by batch work that stays small for ever.
    if not is_calm and now_ms - state.trial_since_ms < policy.excuse_ms:
        return False
    if not state.has_grown and turns_of(state, now_ms) + other_turns >= policy.reversals_most:
        return False
    return state.last_grow_ms is None or now_ms - state.last_grow_ms >= policy.grow_interval_ms


def _decided(state: StallState, group: str, stall_pct: int, change: StallChange) -> StallDecision:
    return StallDecision(state=state, group=group, stall_pct=stall_pct, change=change)
