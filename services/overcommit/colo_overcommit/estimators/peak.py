"""The larger of two estimates: of the last two hours, and of the past in which older values count less."""

from colo_overcommit.estimators.histogram import HistogramEstimator
from colo_overcommit.estimators.n_sigma import NSigmaEstimator
from colo_overcommit.estimators.states import PeakState

__all__ = ["PeakEstimator"]


class PeakEstimator:
    """max(n-sigma, histogram), as "Take it to the limit" combines its predictors; None before one of them has an estimate."""

    __slots__ = ("_histogram", "_n_sigma")

    def __init__(self, *sigmas: float) -> None:
        """`sigmas`: the number of n-sigma, when it is not its usual one."""
        self._n_sigma, self._histogram = NSigmaEstimator(*sigmas), HistogramEstimator()

    def add(self, at_ms: int, value: int) -> None:
        """Take the newest measured value."""
        self._n_sigma.add(at_ms, value)
        self._histogram.add(at_ms, value)

    def expected(self) -> int | None:
        """The value to expect."""
        parts = (self._n_sigma.expected(), self._histogram.expected())
        return max((each for each in parts if each is not None), default=None)

    def state(self) -> PeakState:
        """The state of the estimator, for `restore`."""
        return PeakState(n_sigma=self._n_sigma.state(), histogram=self._histogram.state())

    def restore(self, state: PeakState) -> None:
        """Replace the state by one that `state` returned."""
        self._n_sigma.restore(state.n_sigma)
        self._histogram.restore(state.histogram)
