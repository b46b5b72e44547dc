"""The margin tracks its target whatever happens, and what is said of it is what a reader may rely on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_overcommit.risk import Margin, RiskPolicy, broken_most_ratio
from tests.evidence.curve import curve
from tests.evidence.promises import kept

_POLICY = RiskPolicy(target_ratio=0.01, take_back_ms=90_000, least_margin_pct=0, most_margin_pct=100)
_STEP = 20_000


@given(st.lists(st.booleans(), max_size=40))
def test_within_its_bounds_the_margin_moves_by_the_broken_promises_beyond_the_target(broken: list[bool]) -> None:
    margin = Margin(millionths=100_000)
    for is_broken in broken:
        margin.judged(is_broken, 100, _POLICY)
    moved = _STEP * (sum(broken) - 0.01 * len(broken))
    assert margin.millionths == pytest.approx(min(100_000 + moved, 1_000_000), abs=len(broken))


@given(st.integers(0, 100), st.lists(st.tuples(st.booleans(), st.integers(0, 100)), max_size=200))
def test_the_margin_never_leaves_its_bounds(start_pct: int, judged: list[tuple[bool, int]]) -> None:
    policy = RiskPolicy(target_ratio=0.05, least_margin_pct=10, most_margin_pct=40)
    margin = Margin(millionths=min(max(start_pct, 10), 40) * 10_000)
    for is_broken, weight_pct in judged:
        margin.judged(is_broken, weight_pct, policy)
        assert 10 <= margin.pct <= 40


@pytest.mark.parametrize(
    ("broken", "judged", "most"),
    [
        (0, 0, 1.0),
        (0, 7, 1.0),  # seven overlap: not one that stands for itself
        (0, 8 * 100, 0.0263),  # z^2 / (n + z^2)
        (80, 8 * 100, 0.1602),  # 10 of 100
        (8, 8, 1.0),
    ],
)
def test_the_confidence_is_wilsons_upper_bound(broken: int, judged: int, most: float) -> None:
    assert broken_most_ratio(broken, judged) == pytest.approx(most, abs=5e-4)


def test_on_a_load_that_jumps_the_margin_keeps_the_target_that_a_fixed_one_breaks() -> None:
    # Every twentieth minute the load jumps by 40 % of the machine for a minute: a fixed margin of 25 % breaks each time.
    series = [(60 * at, 70_000 if at % 20 == 19 else 30_000) for at in range(2_400)]
    fixed, controlled = (kept([series], risk, (90,)) for risk in (RiskPolicy(), _POLICY))
    assert fixed.broken_pct[90] > 4
    assert controlled.broken_pct[90] <= 1.5
    # The calm machine is promised more than by the fixed margin, and nothing breaks.
    calm = [(60 * at, 30_000 + 500 * (at % 2)) for at in range(2_400)]
    fixed, controlled = (kept([calm], risk, (90,)) for risk in (RiskPolicy(), _POLICY))
    assert controlled.promised_pct > fixed.promised_pct + 5
    assert controlled.broken_pct[90] <= 1.5


def test_the_curve_is_a_drawing_with_its_values() -> None:
    drawn = curve({"one": [(90, 44.0), (3_600, 12.5)], "two": [(90, 50.0)]}, "a < b", "promised")
    assert drawn.startswith("<svg ")
    assert all(f">{text}<" in drawn for text in ("44.0", "12.5", "90", "3600", "a &lt; b"))
