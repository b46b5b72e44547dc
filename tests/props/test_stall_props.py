"""What holds of the stall rule whatever online work feels and batch work does."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import event, given
from hypothesis import strategies as st

from colo_executor.stall import OnlineStalls, StallPolicy, StallState, decide_stall, in_force

CAPACITY_MCPU = 8_000
FLOOR_MCPU = 200
POLICY = StallPolicy()

#: For each reading: ms since the last one, share of it that each group waited, use of batch work, the lease's limit.
READINGS = st.lists(
    st.tuples(
        st.integers(20, 400),
        st.tuples(st.integers(0, 100), st.integers(0, 100)),
        st.integers(0, CAPACITY_MCPU),
        st.none() | st.integers(0, CAPACITY_MCPU),
    ),
    min_size=20,
    max_size=200,
)


@given(readings=READINGS)
def test_the_ceiling_stays_within_its_bounds_and_turns_seldom(readings) -> None:
    state, now_ms, totals_us = StallState(), 0, [0, 0]
    turns: list[int] = []
    for after_ms, shares, used_mcpu, limit_mcpu in readings:
        now_ms += after_ms
        totals_us = [total + share * after_ms * 10 for total, share in zip(totals_us, shares, strict=True)]
        stalls = OnlineStalls(at_ms=now_ms, total_us=(("db", totals_us[0]), ("web", totals_us[1])))
        before = state
        decision = decide_stall(
            POLICY,
            state,
            capacity_mcpu=CAPACITY_MCPU,
            floor_mcpu=FLOOR_MCPU,
            batch_used_mcpu=used_mcpu,
            stalls=stalls,
            now_ms=now_ms,
            limit_mcpu=limit_mcpu,
        )
        state = in_force(decision.state, now_ms)
        ceiling, was = state.ceiling_mcpu, before.ceiling_mcpu
        assert ceiling is not None
        assert FLOOR_MCPU <= ceiling <= CAPACITY_MCPU
        assert len(state.history) <= POLICY.window_ms // 20 + 2
        assert len(state.excuses) <= 2
        event(decision.change)
        if was is None:
            continue
        if limit_mcpu is not None:
            assert ceiling <= max(was, FLOOR_MCPU)
            assert ceiling <= max(FLOOR_MCPU, limit_mcpu)
        match decision.change:
            case "none":
                assert ceiling == was
            case "trial":
                assert ceiling < was
                assert decision.stall_pct >= POLICY.mark_pct
            case "lease":
                assert ceiling < was
            case "grow":
                assert was < ceiling <= was + CAPACITY_MCPU * POLICY.grow_step_pct // 100
                if not before.has_grown:
                    turns.append(now_ms)
            case "given-back":
                assert ceiling == before.return_mcpu
                assert now_ms - before.trial_since_ms >= POLICY.trial_ms
    for first, later in pairwise(turns[:: POLICY.reversals_most]):
        assert later - first >= 60_000


@given(shares=st.lists(st.integers(0, 100), min_size=200, max_size=200))
def test_online_work_that_waits_for_itself_costs_batch_work_little(shares) -> None:
    """A group whose waiting has nothing to do with batch work gets a trial of a second, and then an excuse of thirty."""
    state, total_us, shrunk_ms = StallState(), 0, 0
    for index in range(600):
        # As much in every second, whatever batch work has: nothing relieves it.
        total_us += 10 * 100 * (40 + shares[index % 200] % 5)
        stalls = OnlineStalls(at_ms=index * 100, total_us=(("web", total_us),))
        decision = decide_stall(
            POLICY,
            state,
            capacity_mcpu=CAPACITY_MCPU,
            floor_mcpu=FLOOR_MCPU,
            batch_used_mcpu=CAPACITY_MCPU // 2,
            stalls=stalls,
            now_ms=index * 100,
        )
        state = in_force(decision.state, index * 100)
        shrunk_ms += 100 * (state.ceiling_mcpu != CAPACITY_MCPU)
    assert shrunk_ms <= 3_000
    assert state.excuses
