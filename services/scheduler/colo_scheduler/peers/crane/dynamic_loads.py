"""The metrics of all nodes as they are reported, and the recent arrivals of each: placement by averages and maxima.

It follows crane-scheduler's "dynamic" plugin, and costs nothing unless a limit is set or the score has a weight. A metric that is
missing, too old, negative or no number is not used: it refuses no node, and counts 0 in the score while its weight still counts.
All arithmetic is IEEE double in the order of the policy, so one node and all nodes give the same integers.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from colo_common.events.node import LoadSummary
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import Attempt
from colo_common.model.resource_list import CPU, MEMORY
from colo_common.model.topology import NodeTopology
from colo_scheduler.load.dynamic_rules import METRICS, DynamicRules
from colo_scheduler.numa.zones import IntArray
from colo_scheduler.peers.crane.hot_value import Arrivals, HotPolicy
from colo_scheduler.scorers.allocation import BoolArray

__all__ = [
    "DynamicLoads",
    "DynamicPolicy",
    "Metric",
    "MetricColumn",
    "dynamic_score",
    "dynamic_scores_of_rows",
    "is_usable",
    "refused_by_of_rows",
]

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


class DynamicLoads:
    """`judges`: a limit is set. `is_followed`: reports must be passed in. `is_received`: a report with usage was received."""

    def __init__(self, rules: DynamicRules, *, is_scored: bool) -> None:
        self._rules = rules
        self._is_scored = is_scored
        self.policy = DynamicPolicy.from_rules(rules)
        self.judges = bool(self.policy.limits_ratio)
        self.is_followed = self.judges or is_scored
        self.is_received = False
        named = {*self.policy.limits_ratio, *(self.policy.weights if is_scored else ())}
        self._names = tuple(name for name in METRICS if name in named)
        self._arrivals = Arrivals(self.policy.hot)
        self._reports: dict[int, LoadSummary] = {}
        self._capacity: dict[int, dict[str, int]] = {}
        self._value: dict[str, FloatArray] = {}
        self._at_ms: IntArray = np.zeros(0, dtype=np.int64)

    def fork(self) -> "DynamicLoads":
        """An independent copy, for a trial."""
        other = DynamicLoads(self._rules, is_scored=self._is_scored)
        other.is_received = self.is_received
        if self.is_followed:
            other._arrivals = self._arrivals.fork()
            other._reports, other._capacity = self._reports, self._capacity
            other._value = {name: value.copy() for name, value in self._value.items()}
            other._at_ms = self._at_ms.copy()
        return other

    # ---- changes

    def hear(self, row: int, load: LoadSummary, at_ms: int) -> None:
        """Take the usage of a node, received at that moment."""
        if not self.is_followed:
            return
        self.is_received = True
        self._grow(row)
        self._reports[row] = load
        self._at_ms[row] = at_ms
        self._write(row)

    def know(self, row: int, topology: NodeTopology) -> None:
        """Take how large a machine is."""
        if self.is_followed:
            self._capacity[row] = {CPU: topology.cpu_capacity_mcpu, MEMORY: topology.memory_capacity_bytes}
            self._write(row)

    def hold(self, row: int, attempt: Attempt, at_ms: int) -> None:
        """An attempt came to a node."""
        if self._is_scored:
            self._arrivals.add(row, attempt, at_ms)

    def drop(self, row: int, attempt: Attempt) -> None:
        """Forget an attempt that exited or never arrived."""
        if self._is_scored:
            self._arrivals.drop(row, attempt)

    def clear_row(self, row: int) -> None:
        """The node of the row is gone, and with it all that came there."""
        if not self.is_followed:
            return
        self._grow(row)
        self._reports.pop(row, None)
        self._capacity.pop(row, None)
        self._at_ms[row] = 0
        for value in self._value.values():
            value[row] = math.nan

    def _grow(self, row: int) -> None:
        size = len(self._at_ms)
        if row < size:
            return
        more = max(row + 1, 2 * size, 64) - size
        self._at_ms = np.concatenate([self._at_ms, np.zeros(more, dtype=np.int64)])
        nothing = np.full(size, math.nan)
        for name in self._names:
            self._value[name] = np.concatenate([self._value.get(name, nothing), np.full(more, math.nan)])

    def _write(self, row: int) -> None:
        load, capacity = self._reports.get(row), self._capacity.get(row)
        if load is None or capacity is None:
            return
        for name in self._names:
            source = METRICS[name]
            amount, whole = source.amount(load), capacity[source.resource]
            self._value[name][row] = math.nan if amount is None or whole <= 0 else amount / whole

    def check_rows(self, held: Iterable[tuple[int, Collection[Attempt]]]) -> list[int]:
        """The rows, of these, whose metrics differ from what writing them again gives, or whose arrivals are not counted as they
        came. The metrics are right afterwards. `held`: each row with the attempts that its node holds.
        """
        wrong = []
        for row, attempts in held:
            before = [float(self._value[name][row]) for name in self._names if row in self._reports]
            self._write(row)
            after = [float(self._value[name][row]) for name in self._names if row in self._reports]
            is_same = all(
                old == new or (math.isnan(old) and math.isnan(new)) for old, new in zip(before, after, strict=True)
            )
            if not is_same or not self._arrivals.is_right(row, attempts):
                wrong.append(row)
        return wrong

    # ---- reads

    def _columns(self, count: int, now_ms: int) -> dict[str, MetricColumn]:
        self._grow(count - 1)
        age_ms = now_ms - self._at_ms[:count]
        return {name: MetricColumn(self._value[name][:count], age_ms) for name in self._names}

    def passing(self, count: int, now_ms: int) -> BoolArray:
        """Which of the first `count` rows have no metric above its limit: bool, shape (count,)."""
        passes: BoolArray = refused_by_of_rows(self._columns(count, now_ms), count, self.policy) < 0
        return passes

    def overloads(self, count: int, now_ms: int) -> list[tuple[str, int, int] | None]:
        """For each of the first `count` rows the metric above its limit, its percent (rounded up), and the limit, or None."""
        refused = refused_by_of_rows(self._columns(count, now_ms), count, self.policy).tolist()
        names = list(self.policy.limits_ratio)
        return [None if number < 0 else self._overload(names[number], row) for row, number in enumerate(refused)]

    def _overload(self, name: str, row: int) -> tuple[str, int, int]:
        return name, math.ceil(100 * float(self._value[name][row])), self._rules.limits_pct[name]

    def score(self, row: int, now_ms: int, more: int = 0) -> int:
        """0 to 100, the less used and the fewer came of late the more; `more` come now and are not held yet."""
        hot = Metric(float(self._arrivals.hot_value_of(row, now_ms, more)), 0)
        return dynamic_score(self._metrics(row, now_ms), hot, self.policy)

    def kept(self, row: int, now_ms: int) -> Callable[[int], int]:
        """`score` of a row by `more`, as it is now whenever it is asked for."""
        metrics, policy = self._metrics(row, now_ms), self.policy
        heat = self._arrivals.kept(row, now_ms)
        return lambda more: dynamic_score(metrics, Metric(float(heat(more)), 0), policy)

    def _metrics(self, row: int, now_ms: int) -> dict[str, Metric]:
        if row >= len(self._at_ms):
            return {}
        age_ms = now_ms - int(self._at_ms[row])
        return {name: Metric(float(self._value[name][row]), age_ms) for name in self._names}

    def scores(self, count: int, now_ms: int) -> IntArray:
        """`score` of the first `count` rows: int64, shape (count,)."""
        heat = self._arrivals.hot_values(count, now_ms).astype(np.float64)
        hot = MetricColumn(heat, np.zeros(count, dtype=np.int64))
        return dynamic_scores_of_rows(self._columns(count, now_ms), hot, count, self.policy)
