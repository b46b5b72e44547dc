"""Stall time from two pressure readings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_collector.parse_psi import Pressure, PressureLine, parse_pressure
from colo_collector.stall import stalls_between

MS = 1_000_000


def pressure(some_us: int, full_us: int | None = None) -> Pressure:
    """A reading with these totals; without `full_us` the kernel prints no full line."""
    return Pressure(
        some=PressureLine(1234, 0, 0, some_us), full=None if full_us is None else PressureLine(56, 0, 0, full_us)
    )


def test_stalls_are_the_growth_of_the_totals() -> None:
    (found,) = stalls_between((("memory", pressure(100, 10)),), (("memory", pressure(2600, 30)),), 5 * MS)
    assert (found.some_us, found.full_us) == (2500, 20)
    assert (found.some_avg10_centipct, found.full_avg10_centipct) == (1234, 56)


@pytest.mark.parametrize(
    ("before", "now", "interval_ns", "some_us", "full_us"),
    [
        (None, pressure(5, 5), MS, None, None),
        (pressure(0, 0), pressure(5, 5), 0, None, None),
        (pressure(9, 0), pressure(5, 5), MS, None, 5),
        (pressure(0), pressure(5), MS, 5, 0),
        (pressure(0), pressure(5, 5), MS, 5, None),
        (pressure(0, 0), pressure(1009, 1001), MS, 1000, 1000),
    ],
)
def test_what_cannot_be_compared_is_unknown_and_nothing_exceeds_the_interval(
    before: Pressure | None, now: Pressure, interval_ns: int, some_us: int | None, full_us: int | None
) -> None:
    (found,) = stalls_between((("cpu", before),) if before else (), (("cpu", now),), interval_ns)
    assert (found.some_us, found.full_us) == (some_us, full_us)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 10**12))
def test_a_stall_is_unknown_or_within_the_interval(before_us: int, now_us: int, interval_ns: int) -> None:
    text = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\n"
    before, now = (parse_pressure(text.format(number)) for number in (before_us, now_us))
    (found,) = stalls_between((("io", before),), (("io", now),), interval_ns)
    assert found.some_us is None or 0 <= found.some_us <= interval_ns // 1000
