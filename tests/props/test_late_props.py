"""What a late sample still promises, for any policy of freshness and any node: it only shrinks, and never below what is held."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from colo_common.events.effects import Publish, Wake
from colo_common.events.node import AllocatableChanged, FreshnessChanged
from colo_common.events.placement import NodeRelease, PlacementsReleased
from colo_common.model.freshness import Freshness, FreshnessPolicy
from colo_overcommit.core import OvercommitCore
from colo_overcommit.explain import recompute
from colo_overcommit.late_promise import Shrink
from colo_overcommit.policy import MidMode, OvercommitPolicy
from tests.support.builders import a_node, a_placement, a_sample, decided

freshness = st.tuples(st.integers(1, 100_000), st.integers(1, 500_000)).map(
    lambda pair: FreshnessPolicy(stale_after_ms=pair[0], lost_after_ms=pair[0] + pair[1], warm_samples=1)
)
use = st.tuples(st.integers(0, 18_000), st.integers(0, 64))


@given(freshness, st.integers(0, 1_000_000), st.lists(st.integers(0, 700_000), min_size=2, max_size=8))
def test_what_is_left_falls_from_all_to_nothing_and_stays_below_the_line(
    policy: FreshnessPolicy, window_ms: int, ages: list[int]
) -> None:
    shrink = Shrink(freshness=policy, window_ms=window_ms)
    begin_ms = policy.stale_after_ms
    window_ms = min(window_ms, policy.lost_after_ms - begin_ms)
    left = [shrink.left_pct(age_ms) for age_ms in sorted(ages)]
    assert left == sorted(left, reverse=True)
    for age_ms, pct in zip(sorted(ages), left, strict=True):
        over_ms = age_ms - begin_ms
        assert pct == 100 if over_ms < 0 else 0 <= pct <= 80
        assert over_ms < 0 or pct * window_ms <= 100 * max(window_ms - over_ms, 0)
        next_ms = shrink.next_fall_ms(age_ms)
        if next_ms is not None:
            assert age_ms < next_ms
            assert shrink.left_pct(next_ms) < pct == shrink.left_pct(next_ms - 1)
        else:
            assert pct in (0, 100)
    assert shrink.left_pct(policy.lost_after_ms) == 0


@given(
    freshness,
    st.integers(0, 1_000_000),
    st.lists(st.tuples(use, use), min_size=1, max_size=4),
    st.lists(st.integers(1, 20_000), max_size=3),
    st.sampled_from([MidMode.OFF.value, MidMode.STATIC.value]),
    st.integers(0, 3),
)
def test_a_silent_node_is_promised_less_and_less_down_to_what_it_holds(
    policy: FreshnessPolicy,
    window_ms: int,
    uses: list[tuple[tuple[int, int], ...]],
    held: list[int],
    mid: str,
    releases: int,
) -> None:
    core = OvercommitCore(
        OvercommitPolicy(freshness=policy, stale_shrink_ms=window_ms, mid_mode=mid, mid_static_cpu_pct=20)
    )
    core.handle(a_node(), 0)
    for index, mcpu in enumerate(held):
        core.handle(decided(a_placement(f"j/main/{index}", mcpu=mcpu)), 0)
    for number, zones in enumerate(uses, start=1):
        core.handle(a_sample(seq=number, zones=zones), 0)
    last = core.nodes["n1"].published
    assert last is not None
    while core.nodes["n1"].freshness is not Freshness.LOST:
        due_ms = core.deadline_ms()
        assert due_ms is not None
        facts = [effect.fact for effect in core.handle(Wake(), due_ms) if isinstance(effect, Publish)]
        core.check()
        assert facts, "a wake that was asked for and says nothing"
        for fact in facts:
            if isinstance(fact, FreshnessChanged):
                continue
            assert isinstance(fact, AllocatableChanged)
            assert recompute(fact.explanation) == fact.zones
            for zone, before in zip(fact.zones, last.zones, strict=True):
                share = core.nodes["n1"].held.by_zone().get(zone.zone)
                least = min(share.cpu_mcpu, 16_000) if share else 0
                assert least <= zone.batch_cpu_mcpu <= max(before.batch_cpu_mcpu, least)
                assert zone.batch_memory_bytes <= before.batch_memory_bytes
            assert not fact.mid or all(
                zone.cpu_mcpu <= was.cpu_mcpu for zone, was in zip(fact.mid, last.mid, strict=True)
            )
            last = fact
        if releases:
            # What ends meanwhile is given back, and what is left of the promise is promised to nobody else.
            releases -= 1
            ended = PlacementsReleased(nodes=(NodeRelease(node="n1", attempts=((f"j/main/{releases}", 1),)),))
            assert not core.handle(ended, due_ms)
    assert [zone.batch_cpu_mcpu for zone in last.zones] == [
        min(core.nodes["n1"].held.cpu_mcpu, 16_000) if zone.zone == 0 else 0 for zone in last.zones
    ]
