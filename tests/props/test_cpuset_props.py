"""CpuSet behaves like a set of small integers, and its notation is canonical."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from colo_common.model.cpuset import MAX_CPUS, CpuSet

_IDS = st.frozensets(st.one_of(st.integers(0, 40), st.integers(0, MAX_CPUS - 1)), max_size=60)
_LIST_TEXT = st.text(alphabet="0123456789-,:/N \n al", max_size=20)


@given(_IDS)
def test_a_set_survives_its_notation_and_iterates_upward(ids: frozenset[int]) -> None:
    cpus = CpuSet.from_iterable(ids)
    assert CpuSet.parse(cpus.format()) == cpus
    assert list(cpus) == sorted(ids)
    assert len(cpus) == len(ids)
    assert bool(cpus) == bool(ids)


@given(_IDS, _IDS)
def test_algebra_agrees_with_builtin_sets(one: frozenset[int], other: frozenset[int]) -> None:
    a, b = CpuSet.from_iterable(one), CpuSet.from_iterable(other)
    assert set(a | b) == one | other
    assert set(a & b) == one & other
    assert set(a - b) == one - other
    assert set(a ^ b) == one ^ other
    assert (a <= b, a < b, a >= b, a > b, a == b) == (
        one <= other,
        one < other,
        one >= other,
        one > other,
        one == other,
    )
    assert a.is_disjoint(b) == one.isdisjoint(other)


@given(_IDS, st.integers(0, 70))
def test_first_takes_the_lowest_ids(ids: frozenset[int], count: int) -> None:
    assert list(CpuSet.from_iterable(ids).first(count)) == sorted(ids)[:count]
