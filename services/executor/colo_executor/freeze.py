"""The last rung of the reflex's ladder: batch work that is at the floor and still hurts online work is frozen for a while.

A frozen group gets no CPU at all and touches no cache, memory bus, lock or hyper-thread, which a ceiling cannot promise. It also
answers nobody: its connections may time out. So a freeze is short and rare, comes after a dwell, and ends when the harm is over.
"""

from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from colo_common.model.ranges import check_ranges

__all__ = ["FreezeChange", "FreezePolicy", "FreezeState", "FreezeCause", "decide_freeze", "thawed"]

_MINUTE_MS: Final = 60_000

FreezeChange = Literal["none", "freeze", "calm", "otherwise", "limit", "stop"]


class FreezePolicy(Struct, frozen=True, kw_only=True):
    """The parameters of freezing batch work, and the rules of the reflex that may.

    `by` `felt`: only what online work feels, where a freeze that relieves nobody ends as soon as that is known: it waits for a CPU,
    or breaks the SLO of its own latency; `stall`: only that it waits; `any`: also online work that uses more than the threshold of
    the node, which proves no harm and takes the floor from batch work; `off`: never.
    Batch work is frozen when it has been at the floor, and the harm has lasted, for `dwell_ms`; it stays frozen for `least_ms` and
    at most `most_ms`, and no more than `times_most` times a minute. A freeze that relieved nobody, or of which nobody could tell
    until its end, is excused for `excuse_ms`.
    """

    by: Literal["off", "stall", "felt", "any"] = "felt"
    dwell_ms: int = 3_000
    least_ms: int = 2_000
    most_ms: int = 10_000
    excuse_ms: int = 60_000
    times_most: int = 3

    def validate(self) -> None:
        """Raise InvalidInput for a number without meaning."""
        check_ranges(
            self,
            ("dwell_ms", 500, 600_000),
            ("least_ms", 1_000, 60_000),
            ("most_ms", self.least_ms, 60_000),
            ("excuse_ms", 1_000, 3_600_000),
            ("times_most", 1, 20),
        )


class FreezeCause(Struct, frozen=True, kw_only=True):
    """What online work suffers: `group` waited for a CPU in `pct` percent of the time, or `workload` broke the SLO of its latency
    in `pct` percent of its values; without either `pct` is its use of the node.
    """

    group: str = ""
    workload: str = ""
    pct: int


class FreezeState(Struct, frozen=True, kw_only=True):
    """`harm_since_ms` is since when there is harm at the floor; `frozen_since_ms` is set while batch work is to be frozen, because
    of `cause`. `froze_ms` are the freezes of the last minute.
    """

    harm_since_ms: int | None = None
    frozen_since_ms: int | None = None
    cause: FreezeCause | None = None
    froze_ms: tuple[int, ...] = ()
    excused_until_ms: int = 0


def decide_freeze(
    policy: FreezePolicy,
    state: FreezeState,
    *,
    harm: FreezeCause | None,
    is_at_floor: bool,
    may_freeze: bool,
    now_ms: int,
    has_helped: bool | None = True,
) -> tuple[FreezeState, FreezeChange]:
    """Freeze or thaw, and why. `may_freeze` False thaws at once: a frozen process hears no signal.

    While batch work is frozen, a harm that this has not helped (`has_helped` False) after `least_ms` has another cause. None:
    nobody knows yet; a freeze that ends so is excused as well.
    """
    if state.frozen_since_ms is not None:
        why = _thaws(
            policy, state, harm, is_at_floor=is_at_floor, may_freeze=may_freeze, now_ms=now_ms, has_helped=has_helped
        )
        if why == "none":
            return state, why
        is_excused = why == "otherwise" or (why == "limit" and has_helped is None)
        return thawed(policy, state, now_ms, is_excused=is_excused), why
    if harm is None or not is_at_floor or not may_freeze or now_ms < state.excused_until_ms:
        return (state if state.harm_since_ms is None else replace(state, harm_since_ms=None)), "none"
    since_ms = now_ms if state.harm_since_ms is None else state.harm_since_ms
    recent = tuple(at_ms for at_ms in state.froze_ms if now_ms - at_ms < _MINUTE_MS)
    if now_ms - since_ms < policy.dwell_ms or len(recent) >= policy.times_most:
        return replace(state, harm_since_ms=since_ms, froze_ms=recent), "none"
    return FreezeState(frozen_since_ms=now_ms, cause=harm, froze_ms=(*recent, now_ms)), "freeze"


def thawed(policy: FreezePolicy, state: FreezeState, now_ms: int, *, is_excused: bool = False) -> FreezeState:
    """The state after a thaw; the next freeze needs a dwell of its own, and the end of the excuse."""
    return FreezeState(froze_ms=state.froze_ms, excused_until_ms=now_ms + policy.excuse_ms if is_excused else 0)


def _thaws(
    policy: FreezePolicy,
    state: FreezeState,
    harm: FreezeCause | None,
    *,
    is_at_floor: bool,
    may_freeze: bool,
    now_ms: int,
    has_helped: bool | None,
) -> FreezeChange:
    held_ms = now_ms - (state.frozen_since_ms or 0)
    if not may_freeze:
        return "stop"
    if not is_at_floor:
        return "calm"
    if held_ms >= policy.most_ms:
        return "limit"
    if held_ms < policy.least_ms:
        return "none"
    if harm is None:
        return "calm"
    return "otherwise" if has_helped is False else "none"
