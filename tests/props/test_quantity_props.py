"""Quantities survive writing and reading, and agree with exact decimal arithmetic."""

from __future__ import annotations

from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_common.model.invalid import InvalidInput
from colo_common.model.quantity import (
    MAX_BYTES,
    MAX_MCPU,
    ceil_div,
    format_bytes,
    format_mcpu,
    parse_batch_mcpu,
    parse_bytes,
    parse_mcpu,
)

_SUFFIXES = {"": Decimal(1), "m": Decimal("0.001"), "k": Decimal(1000), "M": Decimal(10**6), "Ki": Decimal(1024)}


@given(st.integers(0, MAX_MCPU))
def test_cpu_text_reads_back_exactly(mcpu: int) -> None:
    assert parse_mcpu(format_mcpu(mcpu), "cpu") == mcpu


@given(st.integers(0, MAX_BYTES))
def test_size_text_reads_back_exactly(size_bytes: int) -> None:
    assert parse_bytes(format_bytes(size_bytes), "memory") == size_bytes


@given(st.integers(0, 10**12), st.integers(0, 10**6), st.sampled_from(sorted(_SUFFIXES)))
def test_a_size_agrees_with_decimal_arithmetic(whole: int, part: int, suffix: str) -> None:
    with localcontext() as context:
        context.prec = 60
        exact = Decimal(f"{whole}.{part}") * _SUFFIXES[suffix]
    text = f"{whole}.{part}{suffix}"
    if exact == exact.to_integral_value():
        assert parse_bytes(text, "memory") == int(exact)
    else:
        with pytest.raises(InvalidInput, match="must be a whole number of bytes"):
            parse_bytes(text, "memory")


@given(st.one_of(st.text(max_size=70), st.floats(), st.integers(), st.booleans(), st.none()))
def test_anything_is_read_or_refused(value: object) -> None:
    for parse in (parse_mcpu, parse_bytes, parse_batch_mcpu):
        answer: int | InvalidInput
        try:
            answer = parse(value, "field")  # type: ignore[arg-type]
        except InvalidInput as refused:
            answer = refused
        assert answer.field == "field" if isinstance(answer, InvalidInput) else answer >= 0


@given(st.integers(), st.integers(1, 10**9))
def test_ceil_is_the_least_that_covers_the_quotient(numerator: int, denominator: int) -> None:
    high = ceil_div(numerator, denominator)
    assert (high - 1) * denominator < numerator <= high * denominator
