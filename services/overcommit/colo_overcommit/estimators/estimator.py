"""The interface of estimators, and the choice of one by its name."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from colo_overcommit.estimators.histogram import HistogramEstimator
from colo_overcommit.estimators.n_sigma import NSigmaEstimator
from colo_overcommit.estimators.peak import PeakEstimator
from colo_overcommit.estimators.periodic import PeriodicEstimator

__all__ = ["ESTIMATORS", "LAST", "Estimator", "estimator_of"]


class Estimator(Protocol):
    """Learns one quantity of one zone, in mcpu or bytes, and says what it may reach before capacity can be taken back."""

    def add(self, at_ms: int, value: int) -> None:
        """Take the newest measured value; times only grow, or the clock was set back and what was learned is dropped."""

    def expected(self) -> int | None:
        """The value to expect, at least 0; None while too little was seen, and the newest value alone counts."""


LAST: Final = "last"
"""The newest value is all that is expected: the margin alone covers what comes."""
ESTIMATORS: Final[Mapping[str, Callable[[], Estimator]]] = {
    "histogram": HistogramEstimator,
    "n-sigma": NSigmaEstimator,
    "peak": PeakEstimator,
    "periodic": PeriodicEstimator,
}


def estimator_of(name: str) -> Estimator | None:
    """A new estimator of this name; None for `last`. Raises KeyError for a name that is none."""
    return None if name == LAST else ESTIMATORS[name]()
