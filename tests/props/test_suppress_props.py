"""The reflex's ceiling under any load: within its bounds, quick to shrink, slow to swing."""

from hypothesis import given
from hypothesis import strategies as st

from colo_executor.suppress import Suppress, SuppressPolicy, bounds_mcpu, decide, target_mcpu

CAPACITIES = st.sampled_from([1_000, 2_000, 64_000, 192_000])
POLICIES = st.builds(
    SuppressPolicy,
    threshold_pct=st.integers(1, 100),
    floor_mcpu=st.integers(10, 4_000),
    band_pct=st.integers(0, 5),
    grow_step_pct=st.integers(1, 50),
    grow_interval_ms=st.integers(0, 3_000),
    grow_hold_ms=st.integers(0, 5_000),
    reversals_most=st.integers(1, 8),
)
# Pairs of milliseconds since the last reading and online load in percent of the capacity.
LOADS = st.lists(st.tuples(st.integers(1, 4_000), st.integers(0, 110)), min_size=1, max_size=80)


def _follow(policy, capacity, loads, limits=None):
    """Feed the loads; yield (now, target, ceiling before, decision)."""
    state, now_ms = Suppress(), 0
    for index, (wait_ms, load_pct) in enumerate(loads):
        now_ms += wait_ms
        online = capacity * load_pct // 100
        before = state.ceiling_mcpu
        decision = decide(
            policy,
            state,
            capacity_mcpu=capacity,
            online_used_mcpu=online,
            system_used_mcpu=0,
            now_ms=now_ms,
            limit_mcpu=None if limits is None else limits[index % len(limits)],
        )
        state = decision.state
        yield now_ms, target_mcpu(policy, capacity, online, 0), before, decision


@given(POLICIES, CAPACITIES, LOADS)
def test_the_ceiling_stays_between_floor_and_cap(policy, capacity, loads):
    floor, cap = bounds_mcpu(policy, capacity)
    for _, _, _, decision in _follow(policy, capacity, loads):
        assert floor <= decision.ceiling_mcpu <= cap


@given(POLICIES, CAPACITIES, LOADS)
def test_a_shrink_beyond_the_band_happens_at_once_and_in_full(policy, capacity, loads):
    band = capacity * policy.band_pct // 100
    for _, target, before, decision in _follow(policy, capacity, loads):
        if before is not None and before - target >= max(1, band):
            assert decision.ceiling_mcpu == target
        assert decision.ceiling_mcpu < target + max(1, band)


@given(POLICIES, CAPACITIES, LOADS)
def test_growth_goes_one_step_an_interval_and_never_above_the_target(policy, capacity, loads):
    step = max(1, capacity * policy.grow_step_pct // 100)
    grown_at_ms = None
    for now_ms, target, before, decision in _follow(policy, capacity, loads):
        if before is None or decision.ceiling_mcpu <= before:
            continue
        assert decision.ceiling_mcpu - before <= step
        assert decision.ceiling_mcpu <= target
        assert grown_at_ms is None or now_ms - grown_at_ms >= policy.grow_interval_ms
        grown_at_ms = now_ms


@given(POLICIES, CAPACITIES, LOADS)
def test_growth_after_a_shrink_waits_for_the_hold_and_turns_so_often_a_minute_at_most(policy, capacity, loads):
    moves: list[tuple[int, str]] = []
    turned_up: list[int] = []
    for now_ms, _, before, decision in _follow(policy, capacity, loads):
        if before is None or decision.ceiling_mcpu == before:
            continue
        move = "grow" if decision.ceiling_mcpu > before else "shrink"
        shrinks = [at for at, what in moves if what == "shrink"]
        if move == "grow" and shrinks:
            assert now_ms - shrinks[-1] >= policy.grow_hold_ms
        if move == "grow" and moves and moves[-1][1] == "shrink":
            turned_up.append(now_ms)
            assert sum(now_ms - at_ms < 60_000 for at_ms in turned_up) <= policy.reversals_most
        moves.append((now_ms, move))


@given(CAPACITIES, LOADS)
def test_the_shipped_numbers_turn_upwards_at_most_six_times_a_minute(capacity, loads):
    turned_up: list[int] = []
    last = "none"
    for now_ms, _, before, decision in _follow(SuppressPolicy(), capacity, loads):
        if before is None or decision.ceiling_mcpu == before:
            continue
        move = "grow" if decision.ceiling_mcpu > before else "shrink"
        if move == "grow" and last == "shrink":
            turned_up.append(now_ms)
        last = move
    assert all(later - earlier >= 60_000 for earlier, later in zip(turned_up, turned_up[6:], strict=False))


@given(POLICIES, CAPACITIES, LOADS, st.lists(st.integers(0, 200_000), min_size=1, max_size=5))
def test_an_expired_lease_only_ever_shrinks(policy, capacity, loads, limits):
    floor, cap = bounds_mcpu(policy, capacity)
    for index, (_, _, before, decision) in enumerate(_follow(policy, capacity, loads, limits)):
        assert floor <= decision.ceiling_mcpu <= max(floor, min(cap, limits[index % len(limits)]))
        assert before is None or decision.ceiling_mcpu <= before


@given(POLICIES, CAPACITIES, st.integers(0, 60))
def test_under_steady_load_the_ceiling_settles_and_then_never_moves(policy, capacity, load_pct):
    loads = [(1_000, load_pct)] * 400
    ceilings = [decision.ceiling_mcpu for _, _, _, decision in _follow(policy, capacity, loads)]
    assert len(set(ceilings[-100:])) == 1
