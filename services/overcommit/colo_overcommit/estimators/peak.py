"""The larger of two estimates: of the last two hours, and of the past in which older values count less."""

from colo_overcommit.estimators.histogram import HistogramEstimator
from colo_overcommit.estimators.n_sigma import NSigmaEstimator

__all__ = ["PeakEstimator"]


class PeakEstimator:
    """max(n-sigma, histogram), as "Take it to the limit" combines its predictors; None before one of them has an estimate."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts = (NSigmaEstimator(), HistogramEstimator())

    def add(self, at_ms: int, value: int) -> None:
        """Take the newest measured value."""
        for part in self._parts:
            part.add(at_ms, value)

    def expected(self) -> int | None:
        """The value to expect."""
        return max((each for part in self._parts if (each := part.expected()) is not None), default=None)
