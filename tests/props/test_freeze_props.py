"""Freezing under any load, refusals and ends: rare, short, at the floor only, and never while a replica is being ended."""

from hypothesis import given
from hypothesis import strategies as st

from colo_common.events.effects import Wake
from colo_executor.freeze import FreezePolicy
from colo_executor.local import (
    CeilingWritten,
    FastReading,
    FreezeRefused,
    FreezeWritten,
    FrozenFound,
    SetCeiling,
    SetFrozen,
)
from colo_executor.reflex import Reflex
from colo_executor.reflex_policy import ReflexPolicy
from colo_executor.suppress import SuppressPolicy

CAPACITY_MCPU = 8_000
FLOOR_MCPU = 400
BLIND_MS = 1_000
RETRY_MS = ReflexPolicy().retry_ms
POLICIES = st.builds(
    FreezePolicy,
    by=st.sampled_from(["any", "any", "felt", "stall", "off"]),
    dwell_ms=st.integers(500, 4_000),
    least_ms=st.integers(1_000, 2_000),
    most_ms=st.integers(2_000, 8_000),
    times_most=st.integers(1, 4),
)
# Milliseconds since the last turn (a long pause is a blind spell), online load in percent, whether a replica is being ended, what
# the kernel makes of a freeze, and whether somebody else flips it.
TURNS = st.lists(
    st.tuples(
        st.integers(20, 900) | st.integers(1_500, 4_000),
        st.sampled_from([10, 95, 100, 105]),
        st.sampled_from([False, False, False, True]),
        st.sampled_from([True, True, True, False]),
        st.sampled_from([False] * 9 + [True]),
    ),
    max_size=120,
)


class Kernel:
    """What the kernel freezes, by the effects of a reflex, and each freeze with its end."""

    def __init__(self, policy: FreezePolicy) -> None:
        reflex = ReflexPolicy(
            rule="usage",
            suppress=SuppressPolicy(floor_mcpu=FLOOR_MCPU, reversals_most=1_000),
            freeze=policy,
            blind_ms=BLIND_MS,
        )
        self.reflex = Reflex(reflex, capacity_mcpu=CAPACITY_MCPU, now_ms=0)
        self.is_frozen, self.accepts = False, True
        self.froze_ms: list[int] = []
        self.asked_ms: list[int] = []
        self.refused_ms = -RETRY_MS

    def handle(self, event: object, now_ms: int) -> None:
        effects = self.reflex.handle(event, now_ms)
        self.reflex.check()
        for effect in effects:
            if isinstance(effect, SetCeiling):
                self.handle(CeilingWritten(ceiling_mcpu=effect.ceiling_mcpu), now_ms)
            elif isinstance(effect, SetFrozen):
                if effect.is_frozen:
                    assert self.reflex.ceiling_mcpu == FLOOR_MCPU
                    self.asked_ms.append(now_ms)
                if not self.accepts:
                    self.refused_ms = now_ms
                    self.handle(FreezeRefused(is_frozen=effect.is_frozen, detail="EBUSY"), now_ms)
                    continue
                if effect.is_frozen:
                    self.froze_ms.append(now_ms)
                self.is_frozen = effect.is_frozen
                self.handle(FreezeWritten(is_frozen=effect.is_frozen), now_ms)

    def sleep_until(self, at_ms: int) -> None:
        """Wake the reflex whenever it asks for it, as the shell does."""
        while (due_ms := self.reflex.deadline_ms()) is not None and due_ms < at_ms:
            self.handle(Wake(), due_ms)
            later_ms = self.reflex.deadline_ms()
            assert later_ms is None or later_ms > due_ms


@given(POLICIES, TURNS)
def test_a_freeze_is_rare_short_at_the_floor_and_over_when_a_replica_must_hear_its_end(policy, turns):
    kernel, now_ms = Kernel(policy), 0
    for wait_ms, load_pct, is_ending, accepts, is_flipped in turns:
        before_ms, now_ms = now_ms, now_ms + wait_ms
        kernel.sleep_until(now_ms)
        if wait_ms > BLIND_MS and kernel.accepts and before_ms + BLIND_MS - kernel.refused_ms >= RETRY_MS:
            assert not kernel.is_frozen, "nobody looks"
        kernel.accepts = accepts
        if is_flipped:
            kernel.is_frozen = not kernel.is_frozen
            kernel.handle(FrozenFound(is_frozen=kernel.is_frozen), now_ms)
        used = CAPACITY_MCPU * load_pct // 100
        reading = FastReading(
            at_ms=now_ms, capacity_mcpu=CAPACITY_MCPU, online_used_mcpu=used, may_freeze=not is_ending
        )
        kernel.handle(reading, now_ms)
        # A thaw that the kernel refused is tried again after a second.
        accepts = accepts and now_ms - kernel.refused_ms >= RETRY_MS
        if accepts and (is_ending or load_pct < 80) and not is_flipped:
            began_ms = kernel.froze_ms[-1] if kernel.froze_ms else 0
            assert not kernel.is_frozen or (not is_ending and now_ms - began_ms < policy.least_ms)
        if kernel.is_frozen and accepts and kernel.froze_ms and not is_flipped:
            assert now_ms - kernel.froze_ms[-1] < policy.most_ms
        assert now_ms > before_ms
    for index, asked_ms in enumerate(kernel.asked_ms):
        within = [at_ms for at_ms in kernel.asked_ms[: index + 1] if asked_ms - at_ms < 60_000]
        assert len(within) <= policy.times_most
    assert all(
        later - earlier >= policy.dwell_ms for earlier, later in zip(kernel.asked_ms, kernel.asked_ms[1:], strict=False)
    )
    assert policy.by == "any" or not kernel.asked_ms
