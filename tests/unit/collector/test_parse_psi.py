"""Pressure files: what is read and what is refused."""

from __future__ import annotations

import pytest

from colo_collector.parse_psi import PressureLine, parse_pressure
from colo_common.model.invalid import InvalidInput

_SOME = "some avg10=1.23 avg60=0.05 avg300=100.00 total=42\n"
_FULL = "full avg10=0.00 avg60=0.00 avg300=0.00 total=18446744073709551615\n"


def test_both_lines_are_read_in_hundredths_of_a_percent() -> None:
    pressure = parse_pressure(_SOME + _FULL)
    assert pressure.some == PressureLine(123, 5, 10_000, 42)
    assert pressure.full == PressureLine(0, 0, 0, 2**64 - 1)


def test_a_line_the_kernel_does_not_print_is_none() -> None:
    assert parse_pressure(_SOME).full is None
    assert parse_pressure(_FULL).some is None


def test_fields_of_a_later_kernel_are_skipped() -> None:
    assert parse_pressure(_SOME.replace("\n", " avg900=0.10\n")).some == PressureLine(123, 5, 10_000, 42)


@pytest.mark.parametrize(
    ("text", "field", "rule"),
    [
        ("", "p", "must have a some or a full line"),
        ("some avg10=0.00 avg60=0.00\n", "p.some", "must have the field avg300"),
        (_SOME + _SOME, "p.some", "must occur once"),
        (_SOME.replace("1.23", "abc"), "p.some.avg10", "percentage"),
        (_SOME.replace("1.23", "-1.23"), "p.some.avg10", "percentage"),
        (_SOME.replace("1.23", "nan"), "p.some.avg10", "percentage"),
        (_SOME.replace("1.23", "100.01"), "p.some.avg10", "at most 100.00"),
        (_FULL.replace("615", "616"), "p.full.total", "64 bits"),
        (_SOME.replace("=42", "="), "p.some.total", "64 bits"),
        (_SOME.replace("avg60=", "avg10="), "p.some", "occur once"),
        (_SOME.replace("some", "none"), "p", "must start with some or full"),
        ("some 0.00 0.00 0.00\n", "p.some", "name=value"),
        (_SOME * 100, "p", "at most 4096 characters"),
    ],
)
def test_a_broken_file_is_refused_with_field_and_rule(text: str, field: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_pressure(text, "p")
    assert refused.value.field == field
    assert rule in refused.value.rule
