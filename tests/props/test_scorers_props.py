"""Scorers: all rows at once give the integers that each node gives alone, and exact arithmetic agrees."""

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from colo_scheduler.scorers.allocation import (
    AMOUNT_MAX,
    balanced_allocation,
    balanced_allocation_of_rows,
    binpack,
    binpack_of_rows,
    least_allocated,
    least_allocated_of_rows,
    most_allocated,
    most_allocated_of_rows,
)
from colo_scheduler.scorers.placement import (
    fewest_zones,
    fewest_zones_of_rows,
    soft_taints,
    spread,
)
from colo_scheduler.scorers.recent_eviction import (
    PENALTY_FULL,
    decayed,
    decayed_of_rows,
    recent_eviction,
)
from tests.support.profiles import examples

amounts = st.one_of(st.integers(0, 12), st.integers(0, 1 << 40), st.integers(AMOUNT_MAX - 2, AMOUNT_MAX))
weights = st.integers(0, 1000)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Newcomer (resources,), used and capacity (nodes, resources), weights (resources,)."""
    width, nodes = draw(st.integers(1, 4)), draw(st.integers(1, 4))

    def of(count: int, values: st.SearchStrategy[int]) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=count, max_size=count)), dtype=np.int64)

    table = (nodes, width)
    used, capacity = of(nodes * width, amounts).reshape(table), of(nodes * width, amounts).reshape(table)
    return of(width, amounts), used, capacity, of(width, weights)


@examples(3)
@given(clusters())
def test_allocation_scores_of_all_nodes_are_those_of_each(
    cluster: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    newcomer, used, capacity, weight = cluster
    pairs = list(zip(used.tolist(), capacity.tolist(), strict=True))
    by = weight.tolist()
    assert least_allocated_of_rows(used, capacity, weight).tolist() == [least_allocated(a, c, by) for a, c in pairs]
    assert most_allocated_of_rows(used, capacity, weight).tolist() == [most_allocated(a, c, by) for a, c in pairs]
    assert balanced_allocation_of_rows(used, capacity).tolist() == [balanced_allocation(a, c) for a, c in pairs]
    packed = [binpack(newcomer.tolist(), a, c, by) for a, c in pairs]
    assert binpack_of_rows(newcomer, used, capacity, weight).tolist() == packed
    every = packed + [score(a, c, by) for a, c in pairs for score in (least_allocated, most_allocated)]
    assert all(0 <= score <= 100 for score in every)
    assert all(50 <= balanced_allocation(a, c) <= 100 for a, c in pairs)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=2, max_size=2))
def test_the_balance_of_two_resources_is_half_their_distance(pairs: list[tuple[int, int]]) -> None:
    first, second = (1000 * min(amount, whole) // whole for amount, whole in pairs)
    exact = 100 - math.ceil(Fraction(abs(first - second), 20))
    assert balanced_allocation([amount for amount, _ in pairs], [whole for _, whole in pairs]) == exact


@given(
    st.lists(
        st.tuples(st.integers(1, 50), st.integers(0, 50), st.integers(1, 200), st.integers(1, 20)),
        min_size=1,
        max_size=4,
    )
)
def test_binpack_is_within_a_point_of_the_exact_share(resources: list[tuple[int, int, int, int]]) -> None:
    requested, used, capacity, weight = (list(column) for column in zip(*resources, strict=True))
    score = binpack(requested, used, capacity, weight)
    if any(r + u > c for r, u, c, _ in resources):
        assert score == 0
        return
    exact = 100 * sum(w * Fraction(r + u, c) for r, u, c, w in resources) / sum(weight)
    assert math.floor(exact - Fraction(1, 1000)) <= score <= exact


@given(st.lists(st.integers(0, 200), min_size=1))
def test_placement_scores_of_all_nodes_are_those_of_each(counts: list[int]) -> None:
    rows = np.array(counts, dtype=np.int64)
    assert fewest_zones_of_rows(rows).tolist() == [fewest_zones(count) for count in counts]
    assert spread(rows).tolist() == [spread(count) for count in counts]
    assert soft_taints(rows).tolist() == [soft_taints(count) for count in counts]


elapsed = st.integers(-10, 5000) | st.integers(0, 1 << 50)


@given(st.lists(st.tuples(st.integers(0, PENALTY_FULL), elapsed), min_size=1), st.integers(1, 1000))
def test_penalties_of_all_nodes_decay_as_those_of_each(nodes: list[tuple[int, int]], half_life_ms: int) -> None:
    penalty, passed = (np.array(column, dtype=np.int64) for column in zip(*nodes, strict=True))
    left = decayed_of_rows(penalty, passed, half_life_ms)
    assert left.tolist() == [decayed(points, ms, half_life_ms) for points, ms in nodes]
    assert recent_eviction(left).tolist() == [(PENALTY_FULL - points) // 1000 for points in left.tolist()]


@given(st.integers(0, PENALTY_FULL), st.integers(0, 5000), st.integers(0, 5000), st.integers(1, 1000))
def test_a_penalty_never_grows_by_waiting_and_follows_the_curve(
    penalty: int, first_ms: int, more_ms: int, half_life_ms: int
) -> None:
    left = decayed(penalty, first_ms, half_life_ms)
    assert decayed(penalty, first_ms + more_ms, half_life_ms) <= left <= penalty
    exact = penalty * 2 ** (-first_ms / half_life_ms)
    # A step of the table is 1.1 % wide and the last digits are cut.
    assert exact - 2 <= left <= exact * 1.0112 + 1
