"""Quantities: what is read, what is refused and why."""

from __future__ import annotations

import pytest

from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_common.model.quantity import (
    bytes_text,
    ceil_div,
    cpu_text,
    format_bytes,
    format_mcpu,
    parse_batch_mcpu,
    parse_bytes,
    parse_mcpu,
)


@pytest.mark.parametrize(
    ("value", "mcpu"),
    [
        ("500m", 500),
        ("2", 2000),
        (2, 2000),
        (1.5, 1500),
        (0.1, 100),
        ("0.5", 500),
        (".5", 500),
        ("5.", 5000),
        ("8c", 8000),
        ("1e2", 100_000),
        ("1k", 1_000_000),
        ("1000u", 1),
        ("0", 0),
        ("+1", 1000),
    ],
)
def test_a_cpu_quantity_is_read_exactly(value: str | int | float, mcpu: int) -> None:
    assert parse_mcpu(value, "cpu") == mcpu


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("", "must be a CPU quantity"),
        (".", "must be a CPU quantity"),
        ("m", "must be a CPU quantity"),
        ("5 m", "must be a CPU quantity"),
        ("٣", "must be a CPU quantity"),
        ("1Ki", "known units: n u m k c"),
        ("100u", "whole number of milli-CPU"),
        (0.0001, "whole number of milli-CPU"),
        (-1, "must not be negative"),
        ("-0.5", "must not be negative"),
        (float("nan"), "finite"),
        (float("-inf"), "finite"),
        (True, "must be a CPU quantity"),
        (None, "must be a CPU quantity"),
        ("1e99", "exponent"),
        ("1e40", "must be at most"),
        ("9" * 65, "at most 64 characters"),
    ],
)
def test_what_is_no_cpu_quantity_is_refused_with_its_rule(value: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_mcpu(value, "tasks[0].cpu")
    assert refused.value.field == "tasks[0].cpu"
    assert rule in refused.value.rule


def test_a_negative_quantity_passes_where_it_is_allowed() -> None:
    assert parse_mcpu("-500m", "headroom", allow_negative=True) == -500
    assert parse_bytes("-1Ki", "headroom", allow_negative=True) == -1024


@pytest.mark.parametrize(
    ("value", "size_bytes"),
    [
        ("2Gi", 2 * 2**30),
        ("500M", 500_000_000),
        ("1e9", 10**9),
        (1e9, 10**9),
        ("128974848", 128_974_848),
        ("128974848000m", 128_974_848),
        ("1.5Gi", 3 * 2**29),
        ("1E", 10**18),
        ("4Ei", 2**62),
        (2**62, 2**62),
        (0, 0),
    ],
)
def test_a_size_is_read_exactly(value: str | int | float, size_bytes: int) -> None:
    assert parse_bytes(value, "memory") == size_bytes


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("0.5", "whole number of bytes"),
        ("1.1Ki", "whole number of bytes"),
        ("1m", "whole number of bytes"),
        ("-1", "must not be negative"),
        (2**62 + 1, "must be at most 4611686018427387904 bytes"),
        ("1gb", "known units"),
        ("2gi", "known units"),
        ("8c", "known units"),
        ("inf", "must be a size"),
    ],
)
def test_what_is_no_size_is_refused_with_its_rule(value: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_bytes(value, "memory")
    assert rule in refused.value.rule


@pytest.mark.parametrize(
    ("value", "mcpu"),
    [(4000, 4000), ("4000", 4000), (10, 10), ("8c", 8000), ("200m", 200), ("2k", 2000), ("0.5k", 500)],
)
def test_a_batch_number_is_milli_cpu_unless_it_has_a_unit(value: str | int, mcpu: int) -> None:
    assert parse_batch_mcpu(value, "batch-cpu") == mcpu


@pytest.mark.parametrize(("value", "got"), [(8, "8"), ("8", '"8"')])
def test_a_bare_batch_number_below_10_is_refused_with_a_hint(value: str | int, got: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_batch_mcpu(value, "batch-cpu")
    assert str(refused.value) == (
        "batch-cpu: a bare number here is milli-CPU and must be at least 10; "
        f'write "8c" or 8000 if you mean 8 CPUs (got {got})'
    )


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (0, "at least 10"),
        ("5m", "at least 10"),
        (-8, "must not be negative"),
        ("10.5", "whole number of milli-CPU"),
        ("ten", "must be whole milli-CPU"),
    ],
)
def test_other_bad_batch_numbers_name_their_rule(value: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_batch_mcpu(value, "batch-cpu")
    assert rule in refused.value.rule


def test_quantities_are_written_in_the_shortest_exact_form() -> None:
    assert [format_mcpu(mcpu) for mcpu in (0, 1, 999, 1000, 1500, -500)] == ["0", "1m", "999m", "1", "1500m", "-500m"]
    sizes = [0, 1, 1023, 1024, 1536, 2**30, 3 * 2**29, 2**62, 10**9, -1024]
    shown = ["0", "1", "1023", "1Ki", "1536", "1Gi", "1536Mi", "4Ei", "1000000000", "-1Ki"]
    assert [format_bytes(size) for size in sizes] == shown


def test_ceil_div_rounds_up() -> None:
    assert (ceil_div(7, 2), ceil_div(-7, 2), ceil_div(6, 2)) == (4, -3, 3)


@pytest.mark.parametrize("denominator", [0, -1])
def test_a_denominator_that_is_not_positive_is_a_defect(denominator: int) -> None:
    with pytest.raises(InvariantBroken, match="positive denominator"):
        ceil_div(1, denominator)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (512 << 10, "512Ki"),
        (64 << 20, "64Mi"),
        (3 << 29, "1.5Gi"),
        ((1 << 30) - 1, "1023.99Mi"),
        (100 << 30, "100Gi"),
        (-(3 << 29), "-1.5Gi"),
        (2 << 60, "2Ei"),
    ],
)
def test_a_size_is_formatted_in_its_largest_unit_and_never_rounded_up(size_bytes: int, text: str) -> None:
    assert bytes_text(size_bytes) == text


@pytest.mark.parametrize(
    ("mcpu", "text"), [(0, "0"), (1, "0.001"), (50, "0.05"), (1500, "1.5"), (64_000, "64"), (-3_700, "-3.7")]
)
def test_cpus_are_formatted_exactly(mcpu: int, text: str) -> None:
    assert cpu_text(mcpu) == text
