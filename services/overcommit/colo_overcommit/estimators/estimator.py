"""The interface of estimators, and the choice of one by its name."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from colo_overcommit.estimators.histogram import HistogramEstimator
from colo_overcommit.estimators.n_sigma import NSigmaEstimator
from colo_overcommit.estimators.peak import PeakEstimator
from colo_overcommit.estimators.periodic import PeriodicEstimator
from colo_overcommit.estimators.pid import PidEstimator
from colo_overcommit.estimators.states import EstimatorState
from colo_overcommit.estimators.window import OF_MEMORY, WindowEstimator

__all__ = ["ESTIMATORS", "LAST", "Estimator", "estimator_of"]


class Estimator(Protocol):
    """Learns one quantity of one zone, in mcpu or bytes, and says what it may reach before capacity can be taken back."""

    def add(self, at_ms: int, value: int) -> None:
        """Take the newest measured value; times only grow, or the clock was set back and what was learned is dropped."""

    def expected(self) -> int | None:
        """The value to expect, at least 0; None while too little was seen, and the newest value alone counts."""

    def state(self) -> EstimatorState:
        """What was learned."""

    def restore(self, state: Any) -> None:
        """Go on from the `state` of an estimator of the same kind."""


LAST: Final = "last"
"""The newest value is all that is expected: the margin alone covers what comes."""
ESTIMATORS: Final[Mapping[str, Callable[[], Estimator]]] = {
    "histogram": HistogramEstimator,
    "n-sigma": NSigmaEstimator,
    "peak": PeakEstimator,
    "periodic": PeriodicEstimator,
    "pid": PidEstimator,
    "window": WindowEstimator,
}
_OF_MEMORY: Final[Mapping[str, Callable[[], Estimator]]] = {"window": lambda: WindowEstimator(OF_MEMORY)}


def estimator_of(name: str, state: EstimatorState | None = None, *, of_memory: bool = False) -> Estimator | None:
    """A new estimator of this name, which goes on from a state of its kind; None for `last`. Raises KeyError for no name of one.

    `of_memory`: for values in bytes, else in mcpu.
    """
    if name == LAST:
        return None
    estimator = (_OF_MEMORY.get(name, ESTIMATORS[name]) if of_memory else ESTIMATORS[name])()
    if isinstance(state, type(estimator.state())):
        estimator.restore(state)
    return estimator
