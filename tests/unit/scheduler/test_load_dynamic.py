"""Placement by published metrics: what is used of them, how hot a node is, and aggregates over time."""

import math

import numpy as np
import pytest

from colo_common.model.invalid import InvalidInput
from colo_scheduler.peers.crane.dynamic_loads import (
    DynamicPolicy,
    Metric,
    MetricColumn,
    dynamic_score,
    is_usable,
    refused_by_of_rows,
)
from colo_scheduler.peers.crane.hot_value import Arrivals, HotPolicy

ONE = DynamicPolicy(sync_period_ms={"cpu": 180_000}, limits_ratio={"cpu": 0.65}, weights={"cpu": 1.0})


@pytest.mark.parametrize(
    ("metric", "window_ms", "expected"),
    [
        (Metric(0.5, 479_999), 480_000, True),
        (Metric(0.5, 480_000), 480_000, False),
        (Metric(0.5, -1), 480_000, True),
        (Metric(0.5, 0), 0, False),
        (Metric(-0.1, 0), 480_000, False),
        (Metric(math.nan, 0), 480_000, False),
        (Metric(math.inf, 0), 480_000, False),
        (None, 480_000, False),
    ],
)
def test_a_metric_is_used_while_it_is_young_and_a_number(metric: Metric | None, window_ms: int, expected: bool) -> None:
    assert is_usable(metric, window_ms) is expected


def test_a_metric_lives_five_minutes_longer_than_its_period_and_never_without_one() -> None:
    assert ONE.window_ms("cpu") == 480_000
    assert ONE.window_ms("mem") == 0


def test_a_node_is_refused_above_its_limit_only_by_metrics_that_are_used() -> None:
    column = MetricColumn(np.array([0.65, 0.66, 0.66]), np.array([0, 0, 480_000]))
    assert refused_by_of_rows({"cpu": column}, 3, ONE).tolist() == [-1, list(ONE.limits_ratio).index("cpu"), -1]
    assert refused_by_of_rows({}, 1, ONE).tolist() == [-1]


def test_a_metric_that_is_not_used_scores_nothing_and_keeps_its_weight() -> None:
    two = DynamicPolicy(sync_period_ms={"a": 1, "b": 1}, weights={"a": 0.5, "b": 0.5}, limits_ratio={})
    assert dynamic_score({"a": Metric(0.0, 0), "b": Metric(0.0, 0)}, None, two) == 100
    assert dynamic_score({"a": Metric(0.0, 0)}, None, two) == 50
    assert dynamic_score({}, None, two) == 0
    assert dynamic_score({"a": Metric(0.0, 0)}, None, DynamicPolicy(weights={})) == 0


@pytest.mark.parametrize(("hot", "expected"), [(0.0, 100), (0.19, 99), (1.0, 90), (11.0, 0), (1e300, 0)])
def test_each_degree_of_heat_takes_ten_points_and_the_rest_is_cut(hot: float, expected: int) -> None:
    assert dynamic_score({"cpu": Metric(0.0, 0)}, Metric(hot, 0), ONE) == expected
    assert dynamic_score({"cpu": Metric(0.0, 0)}, Metric(hot, 300_000), ONE) == 100


def test_an_absurd_usage_scores_nothing() -> None:
    assert dynamic_score({"cpu": Metric(1e308, 0)}, None, ONE) == 0


def test_arrivals_are_counted_a_node_within_each_range() -> None:
    policies = [HotPolicy(range_ms=300, count=2), HotPolicy(range_ms=60, count=1)]
    arrivals = Arrivals(policies, size=4)
    for number, (row, at_ms) in enumerate(((0, 0), (0, 701), (1, 700), (2, 941), (0, 960))):
        arrivals.add(row, ("job/t/0", number), at_ms)
    assert arrivals.hot_values(3, 1000).tolist() == [2, 0, 1]
    assert arrivals.hot_value_of(0, 1000, more=1) == 3
    assert arrivals.hot_values(3, 1301).tolist() == [0, 0, 0]


def test_the_oldest_arrival_is_forgotten_when_there_are_too_many() -> None:
    arrivals = Arrivals([HotPolicy(range_ms=10, count=1)], size=2)
    for number, row in enumerate((0, 1, 1)):
        arrivals.add(row, ("job/t/0", number), 0)
    assert arrivals.hot_values(2, 0).tolist() == [0, 2]


def test_what_left_again_counts_no_longer_and_what_is_told_twice_came_once() -> None:
    arrivals = Arrivals([HotPolicy(range_ms=10, count=1)])
    for _ in range(3):
        arrivals.add(0, ("a/t/0", 1), 0)
    arrivals.add(70, ("b/t/0", 1), 1)
    trial = arrivals.fork()
    arrivals.drop(0, ("a/t/0", 1))
    assert arrivals.hot_values(71, 5).sum() == arrivals.hot_value_of(70, 5) == 1
    arrivals.add(0, ("a/t/0", 1), 0)
    assert [arrivals.hot_value_of(0, now_ms) for now_ms in (9, 10, 11)] == [1, 0, 0]
    # Where a trial takes somebody away and puts it back it came when it came.
    trial.drop(0, ("a/t/0", 1))
    trial.add(0, ("a/t/0", 1), 9)
    assert [trial.hot_value_of(0, now_ms) for now_ms in (9, 10)] == [1, 0]


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        (DynamicPolicy(sync_period_ms={"a": -1}, limits_ratio={}, weights={}), "sync_period_ms.a"),
        (DynamicPolicy(limits_ratio={"cpu_usage_avg_5m": math.nan}), "limits_ratio.cpu_usage_avg_5m"),
        (DynamicPolicy(weights={"cpu_usage_avg_5m": -1.0}), "weights.cpu_usage_avg_5m"),
        (DynamicPolicy(weights={"gpu": 1.0}), "weights.gpu"),
        (DynamicPolicy(hot=(HotPolicy(range_ms=1, count=0),)), "hot.count"),
    ],
)
def test_a_policy_that_breaks_a_rule_is_named(policy: DynamicPolicy, field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        policy.validate()
    assert refusal.value.field == field


def test_the_policy_as_shipped_is_valid() -> None:
    policy = DynamicPolicy()
    policy.validate()
    assert set(policy.limits_ratio) < set(policy.weights)
