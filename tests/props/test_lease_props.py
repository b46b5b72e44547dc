"""A lease that is not renewed takes batch CPU down to the floor, monotonically, and not before its time."""

from hypothesis import given
from hypothesis import strategies as st

from colo_executor.lease import Lease, LeasePhase, LeasePolicy, expired_at, limit_mcpu, next_step_ms, phase_of, renewed

POLICIES = st.builds(
    LeasePolicy,
    default_ms=st.integers(1, 30_000),
    hold_ms=st.integers(0, 10_000),
    step_pct=st.integers(1, 100),
    step_interval_ms=st.integers(1, 5_000),
)
TIMES = st.lists(st.integers(0, 5_000), min_size=1, max_size=40)


@given(POLICIES, TIMES, st.integers(0, 64_000))
def test_the_limit_falls_to_the_floor_and_never_rises_without_a_renewal(policy, waits, ceiling):
    lease, now_ms, last = Lease(renewed_at_ms=0, lease_ms=policy.default_ms), 0, None
    for wait_ms in waits:
        now_ms += wait_ms
        lease, limit = limit_mcpu(
            lease, policy, ceiling_mcpu=ceiling, capacity_mcpu=64_000, floor_mcpu=200, now_ms=now_ms
        )
        assert (limit is None) == (now_ms < policy.default_ms)
        if limit is None:
            continue
        assert limit >= 200
        assert last is None or limit <= last
        if phase_of(lease, policy, now_ms) is LeasePhase.HOLDING:
            assert limit == max(200, ceiling)
        last = limit


@given(POLICIES, st.integers(0, 1_000_000))
def test_after_enough_steps_only_the_floor_is_left(policy, ceiling):
    lease = Lease(renewed_at_ms=0, lease_ms=policy.default_ms)
    long_after_ms = policy.default_ms + policy.hold_ms + policy.step_interval_ms * 200
    _, limit = limit_mcpu(
        lease, policy, ceiling_mcpu=min(ceiling, 64_000), capacity_mcpu=64_000, floor_mcpu=200, now_ms=long_after_ms
    )
    assert limit == 200


@given(POLICIES, st.integers(0, 100_000), st.integers(-5, 1_000_000))
def test_a_renewal_restores_the_lease_at_once(policy, now_ms, lease_ms):
    lease = Lease(renewed_at_ms=0, lease_ms=policy.default_ms, start_mcpu=5_000)
    lease = renewed(lease, policy, lease_ms, now_ms)
    assert phase_of(lease, policy, now_ms) is LeasePhase.HELD
    assert lease.lease_ms <= policy.most_ms
    assert limit_mcpu(lease, policy, ceiling_mcpu=1, capacity_mcpu=64_000, floor_mcpu=200, now_ms=now_ms) == (
        lease,
        None,
    )


@given(POLICIES, TIMES)
def test_the_next_step_is_always_later_and_nothing_changes_before_it(policy, waits):
    lease, now_ms = Lease(renewed_at_ms=0, lease_ms=policy.default_ms), 0
    for wait_ms in waits:
        now_ms += wait_ms
        due_ms = next_step_ms(lease, policy, now_ms)
        assert due_ms > now_ms
        before = _limit(lease, policy, now_ms)
        assert _limit(lease, policy, due_ms - 1) == before
        assert expired_at(lease) == policy.default_ms


def _limit(lease: Lease, policy: LeasePolicy, now_ms: int) -> int | None:
    return limit_mcpu(lease, policy, ceiling_mcpu=60_000, capacity_mcpu=64_000, floor_mcpu=200, now_ms=now_ms)[1]
