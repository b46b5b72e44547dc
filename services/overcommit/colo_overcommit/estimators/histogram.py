"""A percentile of the past in which older values count less: the decaying histogram of the Vertical Pod Autoscaler."""

import math
from typing import Final

from colo_overcommit.estimators.states import HistogramState
from colo_overcommit.estimators.steps import STEP_MS, Steps

__all__ = ["HistogramEstimator"]

_PERCENTILE: Final = 0.98
_HALF_LIFE_STEPS: Final = 24 * 3_600_000 // STEP_MS
#: A bucket is 5 % wider than the one below it, from 10 mcpu (or bytes) on; the last one ends at 14 TB.
_FIRST: Final = 10
_GROWTH: Final = 0.05
_BUCKETS: Final = 512
_STEPS_LEAST: Final = 24
#: Weights grow instead of old ones shrinking; before they are too large for a float all are scaled down.
_SCALE_AT: Final = 2.0**40


class HistogramEstimator:
    """The end of the bucket in which a percentile (0 to 1) of the steps' largest values lies; None before 24 steps.

    A step's weight halves every 24 hours. Buckets grow exponentially, so that the estimate is at most 5 % above the percentile.
    """

    __slots__ = ("_count", "_expected", "_of", "_steps", "_sums", "_total", "_weight")

    def __init__(self, percentile: float = _PERCENTILE) -> None:
        self._of = percentile
        self._sums: dict[int, float] = {}
        self._total = 0.0
        self._weight = 1.0
        self._count = 0
        self._expected: int | None = None
        self._steps = Steps(self._close, self._forget)

    def add(self, at_ms: int, value: int) -> None:
        """Take the newest measured value."""
        self._steps.add(at_ms, value)

    def expected(self) -> int | None:
        """The value to expect."""
        return self._expected

    def state(self) -> HistogramState:
        """The state of the estimator, for `restore`."""
        return HistogramState(
            steps=self._steps.state(),
            buckets=tuple(sorted(self._sums.items())),
            total=self._total,
            weight=self._weight,
            count=self._count,
        )

    def restore(self, state: HistogramState) -> None:
        """Replace the state by one that `state` returned."""
        self._steps.restore(state.steps)
        self._sums, self._total, self._weight = dict(state.buckets), state.total, state.weight
        self._count = state.count
        self._expected = self._percentile() if self._sums and self._count >= _STEPS_LEAST else None

    def _close(self, _step: int, value: int) -> None:
        bucket = _bucket_of(value)
        self._weight *= 2 ** (1 / _HALF_LIFE_STEPS)
        self._sums[bucket] = self._sums.get(bucket, 0.0) + self._weight
        self._total += self._weight
        self._count += 1
        if self._weight > _SCALE_AT:
            self._sums = {each: amount / self._weight for each, amount in self._sums.items()}
            self._total /= self._weight
            self._weight = 1.0
        if self._count >= _STEPS_LEAST:
            self._expected = self._percentile()

    def _percentile(self) -> int:
        reached = 0.0
        ordered = sorted(self._sums)
        for bucket in ordered:
            reached += self._sums[bucket]
            if reached >= self._of * self._total:
                return _end_of(bucket)
        return _end_of(ordered[-1])

    def _forget(self) -> None:
        self._sums.clear()
        self._total, self._weight, self._count, self._expected = 0.0, 1.0, 0, None


def _bucket_of(value: int) -> int:
    """Bucket n begins at first * ((1 + growth)^n - 1) / growth."""
    if value <= 0:
        return 0
    return min(int(math.log(value * _GROWTH / _FIRST + 1, 1 + _GROWTH)), _BUCKETS - 1)


def _end_of(bucket: int) -> int:
    return math.ceil(round(_FIRST * ((1 + _GROWTH) ** (bucket + 1) - 1) / _GROWTH, 6))
