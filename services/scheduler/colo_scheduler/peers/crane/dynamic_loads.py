"""The metrics of all nodes as they are reported, and the recent arrivals of each: placement by averages and maxima (`dynamic`).

It costs nothing unless a limit is set or the score has a weight.
"""

import math
from collections.abc import Callable, Collection, Iterable

import numpy as np

from colo_common.events.node import LoadSummary
from colo_common.model.topology import NodeTopology
from colo_scheduler.ledger.port import Attempt
from colo_scheduler.load.dynamic_rules import METRICS, DynamicRules
from colo_scheduler.load.policy import CPU, MEMORY
from colo_scheduler.load.rows import BoolArray
from colo_scheduler.numa.zones import IntArray
from colo_scheduler.peers.crane.dynamic import (
    DynamicPolicy,
    FloatArray,
    Metric,
    MetricColumn,
    dynamic_score,
    dynamic_scores_of_rows,
    refused_by_of_rows,
)
from colo_scheduler.peers.crane.hot_value import Arrivals

__all__ = ["DynamicLoads"]


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
        """One that changes for itself, as a trial needs it."""
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
        """The rows, of these, whose metrics differ from what writing them anew gives, or whose arrivals are not counted as they
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
