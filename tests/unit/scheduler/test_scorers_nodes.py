"""Scores of one node in numbers that can be checked by hand."""

import numpy as np
import pytest

from colo_common.model.invalid import InvalidInput
from colo_scheduler.scorers.allocation import balanced_allocation, binpack, least_allocated, most_allocated
from colo_scheduler.scorers.placement import fewest_zones, soft_taints, spread
from colo_scheduler.scorers.recent_eviction import (
    PENALTY_FULL,
    EvictionPenalties,
    EvictionPenaltyPolicy,
    decayed,
    penalty_after,
    recent_eviction,
)


@pytest.mark.parametrize(
    ("allocated", "capacity", "weights", "least", "most"),
    [
        ((0, 0), (10, 10), (1, 1), 100, 0),
        ((10, 10), (10, 10), (1, 1), 0, 100),
        ((1, 2), (3, 3), (1, 1), 49, 49),  # floor((66 + 33) / 2) and floor((33 + 66) / 2)
        ((5, 0), (10, 10), (3, 1), 62, 37),
        ((11, 0), (10, 10), (1, 1), 50, 50),
        ((5, 5), (10, 0), (1, 9), 50, 50),
        ((5, 5), (0, 0), (1, 1), 0, 0),
        ((5, 5), (10, 10), (0, 0), 0, 0),
    ],
)
def test_what_is_free_and_what_is_full_are_weighed_by_resource(
    allocated: tuple[int, ...], capacity: tuple[int, ...], weights: tuple[int, ...], least: int, most: int
) -> None:
    assert least_allocated(allocated, capacity, weights) == least
    assert most_allocated(allocated, capacity, weights) == most


@pytest.mark.parametrize(
    ("allocated", "capacity", "expected"),
    [
        ((5, 5), (10, 10), 100),
        ((10, 0), (10, 10), 50),  # shares 1 and 0: standard deviation a half
        ((30, 0), (10, 10), 50),  # a share is cut to 1
        ((6, 5), (10, 10), 95),
        ((601, 500), (1000, 1000), 94),  # 5.05 rounded up to 6
        ((5, 9), (10, 0), 100),  # one resource alone is in balance
        ((10, 0, 0), (10, 10, 10), 52),  # root of 2/9 is 47.14 %
    ],
)
def test_a_node_is_in_balance_when_its_resources_are_used_alike(
    allocated: tuple[int, ...], capacity: tuple[int, ...], expected: int
) -> None:
    assert balanced_allocation(allocated, capacity) == expected


@pytest.mark.parametrize(
    ("requested", "used", "capacity", "weights", "expected"),
    [
        ((2, 2), (2, 4), (10, 10), (1, 1), 50),  # (0.4 + 0.6) / 2
        ((2, 2), (2, 4), (10, 10), (3, 1), 45),
        ((2, 0), (2, 9), (10, 10), (1, 9), 40),  # only what is requested counts
        ((2, 2), (9, 0), (10, 10), (1, 1), 0),  # would not fit
        ((2, 2), (9, 0), (10, 10), (0, 1), 20),  # without a weight it may
        ((2, 2), (2, 0), (10, 0), (1, 1), 20),  # no capacity: nothing, and its weight counts
        ((0, 0), (2, 2), (10, 10), (1, 1), 0),
        ((1, 0), (0, 0), (3, 3), (1, 1), 33),
        ((3, 0), (0, 0), (3, 3), (1, 1), 100),
    ],
)
def test_binpack_prefers_the_node_that_is_filled_up(
    requested: tuple[int, ...],
    used: tuple[int, ...],
    capacity: tuple[int, ...],
    weights: tuple[int, ...],
    expected: int,
) -> None:
    assert binpack(requested, used, capacity, weights) == expected


@pytest.mark.parametrize(("count", "expected"), [(0, 100), (1, 50), (2, 33), (99, 1), (100, 0)])
def test_each_further_replica_of_a_job_and_each_soft_taint_is_worth_less(count: int, expected: int) -> None:
    assert spread(count) == expected
    assert soft_taints(count) == expected


@pytest.mark.parametrize(("cost", "expected"), [(0, 0), (1, 100), (2, 50), (3, 33), (101, 0)])
def test_fewer_zones_are_better_and_none_is_nothing(cost: int, expected: int) -> None:
    assert fewest_zones(cost) == expected


def test_a_penalty_halves_with_every_half_life() -> None:
    assert decayed(PENALTY_FULL, 0, 1000) == PENALTY_FULL
    assert decayed(PENALTY_FULL, 1000, 1000) == PENALTY_FULL // 2
    assert decayed(PENALTY_FULL, 3000, 1000) == PENALTY_FULL // 8
    assert decayed(PENALTY_FULL, 500, 1000) == 70_710
    assert decayed(PENALTY_FULL, 1 << 50, 1000) == 0
    assert decayed(PENALTY_FULL, -5, 1000) == PENALTY_FULL


def test_evictions_add_up_to_the_whole_score_and_not_beyond() -> None:
    penalties = [0, penalty_after(0, 50), penalty_after(penalty_after(70_000, 50), 50), 1]
    assert recent_eviction(np.array(penalties, dtype=np.int64)).tolist() == [100, 50, 0, 99]


def test_a_node_that_evicted_a_class_is_avoided_by_that_class_alone_and_forgiven() -> None:
    penalties = EvictionPenalties(EvictionPenaltyPolicy(half_life_ms=1000, points=40), size=1)
    penalties.evicted("batch", 3, 10_000)
    assert penalties.scores("batch", 5, 10_000).tolist() == [100, 100, 100, 60, 100]
    assert penalties.scores("batch", 5, 12_000).tolist() == [100, 100, 100, 90, 100]
    assert penalties.scores("other", 2, 10_000).tolist() == [100, 100]
    penalties.evicted("batch", 3, 11_000)
    assert penalties.scores("batch", 9, 11_000).tolist() == [100, 100, 100, 40, 100, 100, 100, 100, 100]


def test_the_class_evicted_longest_ago_is_forgotten_at_the_limit() -> None:
    penalties = EvictionPenalties(EvictionPenaltyPolicy(classes_max=2, points=100), size=1)
    for name in ("a", "b", "a", "c"):
        penalties.evicted(name, 0, 0)
    assert [penalties.scores(name, 1, 0).tolist() for name in "abc"] == [[0], [100], [0]]


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        (EvictionPenaltyPolicy(half_life_ms=0), "half_life_ms"),
        (EvictionPenaltyPolicy(points=101), "points"),
        (EvictionPenaltyPolicy(classes_max=0), "classes_max"),
    ],
)
def test_a_penalty_policy_that_breaks_a_rule_is_named(policy: EvictionPenaltyPolicy, field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        policy.validate()
    assert refusal.value.field == field
