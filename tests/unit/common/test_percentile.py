"""Percentiles by nearest rank."""

from __future__ import annotations

import pytest

from colo_common.model.invalid import InvalidInput
from colo_common.model.percentile import percentile


@pytest.mark.parametrize(
    ("values", "pct", "expected"),
    [
        pytest.param([15, 20, 35, 40, 50], 30, 20, id="the second of five"),
        pytest.param([15, 20, 35, 40, 50], 40, 20, id="exactly the second"),
        pytest.param([50, 15, 40, 20, 35], 50, 35, id="unordered"),
        pytest.param([15, 20, 35, 40, 50], 100, 50, id="the largest"),
        pytest.param([7], 1, 7, id="one value"),
        pytest.param(list(range(1, 101)), 99, 99, id="p99 of a hundred"),
    ],
)
def test_a_percentile_is_the_percentile(values: list[int], pct: int, expected: int) -> None:
    assert percentile(values, pct) == expected


@pytest.mark.parametrize(
    ("values", "pct", "field"), [([1], 0, "pct"), ([1], 101, "pct"), ([1], -1, "pct"), ([], 50, "values")]
)
def test_a_percentile_of_nothing_or_outside_1_to_100_is_refused(values: list[int], pct: int, field: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        percentile(values, pct)
