"""Spans of time as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_common.model.duration import format_duration, parse_duration_ms
from colo_common.model.invalid import InvalidInput

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("text", "span_ms"),
    [
        ("500ms", 500),
        ("10s", 10_000),
        ("1h30m", 5_400_000),
        ("1.5s", 1_500),
        (" 2m ", 120_000),
        ("30", 30_000),
        (0.25, 250),
        (7, 7_000),
    ],
)
def test_a_span_is_read_in_milliseconds(text: object, span_ms: int) -> None:
    assert parse_duration_ms(text, "grace", max_ms=DAY_MS) == span_ms


@pytest.mark.parametrize(
    "text", ["", "s", "10x", "1h 30m", "-5s", "1e3", True, None, float("inf"), "0.0001s", "25h", 10**30]
)
def test_what_is_no_span_or_too_long_is_refused(text: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_duration_ms(text, "grace", max_ms=DAY_MS)
    assert caught.value.field == "grace"


@given(st.integers(0, 10**12))
def test_what_is_written_is_read_back(span_ms: int) -> None:
    assert parse_duration_ms(format_duration(span_ms), "span", max_ms=10**12) == span_ms
