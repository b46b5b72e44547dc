"""A line is flat when the one that fits it best rises within its bound; what came before it was warm does not count."""

from __future__ import annotations

import pytest

from tests.soak.flat import Bound, flatness, what_stays

BOUND = Bound(share_pct=10, floor=1)


@pytest.mark.parametrize(
    ("values", "is_flat"),
    [
        ([100.0] * 10, True),
        ([100.0, 104.0, 99.0, 103.0, 100.0, 104.0, 99.0, 103.0], True),
        ([100.0, 98.0, 96.0, 94.0, 92.0, 90.0], True),
        ([100.0 + 3 * at for at in range(10)], False),
        ([0.0, 0.1, 0.2, 0.3, 0.4], True),
        ([0.0, 1.0, 2.0, 3.0, 4.0], False),
    ],
    ids=["constant", "noise", "falling", "rising", "below the floor", "above the floor"],
)
def test_a_line_that_rises_above_its_bound_is_not_flat(values: list[float], is_flat: bool) -> None:
    found = flatness([(float(at), value) for at, value in enumerate(values)], 0.0, BOUND)
    assert found is not None
    assert found.is_flat is is_flat


def test_the_rise_is_that_of_the_fitted_line_after_the_warm_up() -> None:
    series = [(0.0, 0.0), (1.0, 500.0), *[(float(at), 1_000.0 + 2 * at) for at in range(2, 12)]]
    found = flatness(series, 2.0, BOUND)
    assert found is not None
    assert found.rise == pytest.approx(2.0 * 9)


def test_two_values_are_no_line() -> None:
    assert flatness([(0.0, 1.0), (5.0, 1.0), (6.0, 1.0)], 4.0, BOUND) is None


def test_of_a_queue_what_nobody_takes_out_is_judged() -> None:
    """One that fills by chance towards the end and empties again is flat; one that keeps some of each filling is not."""
    bursts = [0.0, 2.0, 0.0, 4.0, 0.0, 80.0, 0.0, 160.0, 0.0, 320.0]
    kept = [value + 3.0 * at for at, value in enumerate(bursts)]
    for values, is_flat in ((bursts, True), (kept, False)):
        found = flatness(what_stays([(float(at), value) for at, value in enumerate(values)], 2.0), 0.0, BOUND)
        assert found is not None
        assert found.is_flat is is_flat
