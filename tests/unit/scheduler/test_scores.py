"""Scores: 0..100, whole, rounded down, and alike for one row and for many."""

from types import SimpleNamespace

import numpy as np
import pytest

from colo_common.events.placement import NodeScore
from colo_scheduler.placement.scoring import most_free, most_free_of_rows, scoring_of, sort_keys
from colo_scheduler.policy import WEIGHT_MAX, SchedulerPolicy, Scorer, ScorerWeights


def weighted(cost: int, free: int, weights: ScorerWeights) -> int:
    """The weighted sum of a node with this cost and this percentage left."""
    return scoring_of(weights).of_one(SimpleNamespace(cost=cost, left_cpu=free, left_memory=free, **OF_A_HUNDRED))


def delivered(cost: int, free: int, weights: ScorerWeights) -> NodeScore:
    fit = SimpleNamespace(cost=cost, left_cpu=free, left_memory=free, **OF_A_HUNDRED)
    return scoring_of(weights).delivered("n", fit)


OF_A_HUNDRED = {"allocatable_cpu": 100, "allocatable_memory": 100}


FREE = {
    "all is left": ((100, 100, 100, 100), 100),
    "nothing is left": ((0, 0, 100, 100), 0),
    "CPU 29 of 100 is 29, not 28": ((29, 100, 100, 100), 64),
    "each percentage is rounded down before the mean": ((199, 199, 200, 200), 99),
    "the mean is rounded down": ((50, 51, 100, 100), 50),
    "no CPU was allocatable": ((0, 100, 0, 100), 50),
    "overcommitted counts as nothing": ((-300, 0, 100, 100), 0),
    "more left than allocatable is at most 100": ((500, 500, 100, 100), 100),
}


@pytest.mark.parametrize(("numbers", "score"), FREE.values(), ids=FREE.keys())
def test_what_stays_free_scores_its_share(numbers: tuple[int, int, int, int], score: int) -> None:
    names = ("left_cpu", "left_memory", "allocatable_cpu", "allocatable_memory")
    assert most_free(SimpleNamespace(cost=1, **dict(zip(names, numbers, strict=True)))) == score
    columns = [np.array([number], dtype=np.int64) for number in numbers]
    assert most_free_of_rows(*columns).tolist() == [score]


def test_the_default_weights_put_one_zone_before_two_whatever_is_free() -> None:
    assert weighted(1, 0, SchedulerPolicy().weights) > weighted(2, 100, SchedulerPolicy().weights)


def test_the_told_total_is_a_whole_number_up_to_100() -> None:
    even = ScorerWeights(fewest_zones=1, most_free=1)
    assert delivered(1, 100, ScorerWeights()).total == 100
    assert delivered(2, 99, even).total == 74
    assert delivered(2, 99, even).scores == {"fewest-zones": 50, "most-free": 99}


def key(weighted: int, left_cpu: int, rank: int) -> int:
    row = [np.array([value], dtype=np.int64) for value in (weighted, left_cpu, rank)]
    return int(sort_keys(*row)[0])


KEYS = {
    "the weighted sum first": (key(6, 0, 9), key(5, 10**6, 0)),
    "then more free CPU": (key(5, 2, 9), key(5, 1, 0)),
    "then the earlier name": (key(5, 1, 3), key(5, 1, 4)),
    "CPU above the limit counts as the limit": (key(5, 1 << 40, 0), key(5, 1 << 30, 1)),
}


@pytest.mark.parametrize(("better", "worse"), KEYS.values(), ids=KEYS.keys())
def test_nodes_are_compared_by_one_number(better: int, worse: int) -> None:
    assert better > worse


def test_the_largest_key_fits_in_64_bits() -> None:
    assert key(100 * WEIGHT_MAX * len(Scorer), 1 << 60, 0) < 2**63
