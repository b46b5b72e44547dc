"""Placement by published metrics, after crane-scheduler's "dynamic" plugin: averages and maxima as shares of the machine.

A metric that is missing, too old, negative or no number is not used: it refuses no node, and counts 0 in the score while its weight
still counts. All arithmetic is IEEE double in the order of the policy, so one node and all nodes give the same integers.
"""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from colo_common.model.invalid import InvalidInput
from colo_scheduler.load.dynamic_rules import METRICS, DynamicRules
from colo_scheduler.peers.crane.hot_value import HotPolicy

__all__ = [
    "HOT_VALUE_VALID_MS",
    "DynamicPolicy",
    "Metric",
    "MetricColumn",
    "dynamic_score",
    "dynamic_scores_of_rows",
    "is_usable",
    "refused_by_of_rows",
]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_MINUTE_MS: Final = 60_000
_GRACE_MS: Final = 300_000
HOT_VALUE_VALID_MS: Final = 300_000
_HOT_POINTS: Final = 10
#: More points than any score has; a larger hot value changes nothing.
_HOT_MOST: Final = 1_000_000.0
#: Below 0 a score is cut to 0 whatever follows; cutting here keeps it inside an integer.
_POINTS_LEAST: Final = -1e15
_WEIGHT_MOST: Final = 1e6


class Metric(NamedTuple):
    """A share of the machine (0 to 1, more when it is overcommitted) and how long ago it was written."""

    value: float
    age_ms: int


class MetricColumn(NamedTuple):
    """A metric of every node, both of shape (nodes,): `value` float64 (NaN where there is none), `age_ms` int64."""

    value: FloatArray
    age_ms: IntArray


def _defaults(avg_5m: float, max_1h: float, max_1d: float | None) -> dict[str, float]:
    values = {"usage_avg_5m": avg_5m, "usage_max_avg_1h": max_1h}
    if max_1d is not None:
        values["usage_max_avg_1d"] = max_1d
    return {f"{resource}_{name}": value for resource in ("cpu", "mem") for name, value in values.items()}


class DynamicPolicy(Struct, frozen=True, kw_only=True):
    """sync_period_ms: how often a metric is written; it is used until that and five minutes more have passed.

    limits_ratio: a node with more than that is refused, 0 switches a metric off. weights: of the metrics in the score.
    hot: how many arrivals make a node hot. Defaults as crane-scheduler ships them.
    """

    sync_period_ms: Mapping[str, int] = field(
        default_factory=lambda: {name: int(value) for name, value in _defaults(180_000, 900_000, 10_800_000).items()}
    )
    limits_ratio: Mapping[str, float] = field(default_factory=lambda: _defaults(0.65, 0.75, None))
    weights: Mapping[str, float] = field(default_factory=lambda: _defaults(0.2, 0.3, 0.5))
    hot: tuple[HotPolicy, ...] = (HotPolicy(range_ms=300_000, count=5), HotPolicy(range_ms=60_000, count=2))

    @classmethod
    def from_rules(cls, rules: DynamicRules) -> "DynamicPolicy":
        """The operator's rules as a policy; what is set to 0 is left out."""
        hot = ((rules.hot_5m, 5 * _MINUTE_MS), (rules.hot_1m, _MINUTE_MS))
        return cls(
            limits_ratio={name: rules.limits_pct[name] / 100 for name in METRICS if rules.limits_pct.get(name)},
            weights={name: float(rules.weights[name]) for name in METRICS if rules.weights.get(name)},
            hot=tuple(HotPolicy(range_ms=range_ms, count=count) for count, range_ms in hot if count > 0),
        )

    def window_ms(self, name: str) -> int:
        """How old a metric may be; 0, so never used, without a period."""
        period_ms = self.sync_period_ms.get(name, 0)
        return period_ms + _GRACE_MS if period_ms > 0 else 0

    def validate(self) -> None:
        """Raise InvalidInput for the first value that breaks a rule."""
        for name, period_ms in sorted(self.sync_period_ms.items()):
            if period_ms < 0:
                raise InvalidInput(f"sync_period_ms.{name}", "must not be negative", period_ms)
        for section, values in (("limits_ratio", self.limits_ratio), ("weights", self.weights)):
            for name, value in sorted(values.items()):
                if not 0 <= value <= _WEIGHT_MOST:
                    raise InvalidInput(f"{section}.{name}", f"must be a number, 0 to {_WEIGHT_MOST:.0f}", value)
                if name not in self.sync_period_ms:
                    raise InvalidInput(f"{section}.{name}", "needs an entry in sync_period_ms", value)
        for entry in self.hot:
            entry.validate()


def is_usable(metric: Metric | None, window_ms: int) -> bool:
    """Whether a metric can be used: it exists, is younger than its window, and is a number that is not negative."""
    return metric is not None and metric.age_ms < window_ms and math.isfinite(metric.value) and metric.value >= 0


def dynamic_score(metrics: Mapping[str, Metric], hot: Metric | None, policy: DynamicPolicy) -> int:
    """0 to 100: trunc(sum of (1 - usage) x weight x 100 / sum of weights) - trunc(10 x hot value), cut at both ends."""
    score = weight_sum = 0.0
    for name, weight in policy.weights.items():
        metric = metrics.get(name)
        if metric is not None and is_usable(metric, policy.window_ms(name)):
            score += (1.0 - metric.value) * weight * 100.0
        weight_sum += weight
    points = int(max(score / weight_sum, _POINTS_LEAST)) if weight_sum > 0 else 0
    if hot is not None and is_usable(hot, HOT_VALUE_VALID_MS):
        points -= int(min(hot.value, _HOT_MOST) * _HOT_POINTS)
    return min(100, max(0, points))


def _usable_rows(column: MetricColumn, window_ms: int) -> npt.NDArray[np.bool_]:
    usable: npt.NDArray[np.bool_] = (column.age_ms < window_ms) & np.isfinite(column.value) & (column.value >= 0)
    return usable


def refused_by_of_rows(columns: Mapping[str, MetricColumn], count: int, policy: DynamicPolicy) -> IntArray:
    """The first metric above its limit of every row, as its number in `policy.limits_ratio`; -1 for a node that may take work."""
    refused = np.full(count, -1, dtype=np.int64)
    for number, (name, limit) in enumerate(policy.limits_ratio.items()):
        column = columns.get(name)
        if column is None or limit == 0:
            continue
        above = _usable_rows(column, policy.window_ms(name)) & (column.value > limit)
        refused[above & (refused < 0)] = number
    return refused


def dynamic_scores_of_rows(
    columns: Mapping[str, MetricColumn], hot: MetricColumn | None, count: int, policy: DynamicPolicy
) -> IntArray:
    """`dynamic_score` of every row: int64 0 to 100, shape (count,)."""
    score = np.zeros(count, dtype=np.float64)
    weight_sum = 0.0
    for name, weight in policy.weights.items():
        column = columns.get(name)
        if column is not None:
            usable = _usable_rows(column, policy.window_ms(name))
            value = np.where(usable, column.value, 1.0)
            # An absurd value is worth minus infinity, as it is for one node, and says nothing of the others.
            with np.errstate(over="ignore"):
                score = score + np.where(usable, (1.0 - value) * weight * 100.0, 0.0)
        weight_sum += weight
    points = np.trunc(np.maximum(score / weight_sum, _POINTS_LEAST)) if weight_sum > 0 else np.zeros(count)
    if hot is not None:
        heat = np.where(_usable_rows(hot, HOT_VALUE_VALID_MS), hot.value, 0.0)
        points = points - np.trunc(np.minimum(heat, _HOT_MOST) * _HOT_POINTS)
    scores: IntArray = np.clip(points, 0, 100).astype(np.int64)
    return scores
