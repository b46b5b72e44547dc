"""The interface of estimators, and the choice of one by its name."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from colo_overcommit.estimators import dsp
from colo_overcommit.estimators.histogram import HistogramEstimator
from colo_overcommit.estimators.n_sigma import NSigmaEstimator
from colo_overcommit.estimators.peak import PeakEstimator
from colo_overcommit.estimators.periodic import PeriodicEstimator
from colo_overcommit.estimators.pid import PidEstimator
from colo_overcommit.estimators.rc_like import RcLikeEstimator
from colo_overcommit.estimators.states import EstimatorState
from colo_overcommit.estimators.window import OF_CPU, OF_MEMORY, WindowEstimator

__all__ = ["ESTIMATORS", "LAST", "Estimator", "Quantity", "estimator_of"]


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


class Quantity(NamedTuple):
    """What an estimator learns: bytes where `of_memory`, else mcpu. `phase`: 0 to 1, another one for each series."""

    of_memory: bool = False
    phase: float = 0.0


def _dsp(quantity: Quantity) -> Estimator:
    unit = dsp.OF_MEMORY if quantity.of_memory else dsp.OF_CPU
    return dsp.DspEstimator(unit, int(quantity.phase * dsp.FIT_EVERY_MS))


LAST: Final = "last"
"""The newest value is all that is expected: the margin alone covers what comes."""
ESTIMATORS: Final[Mapping[str, Callable[[Quantity], Estimator]]] = {
    "dsp": _dsp,
    "histogram": lambda _: HistogramEstimator(),
    "n-sigma": lambda _: NSigmaEstimator(),
    "peak": lambda _: PeakEstimator(),
    "periodic": lambda _: PeriodicEstimator(),
    "pid": lambda _: PidEstimator(),
    "rc-like": lambda _: RcLikeEstimator(),
    "window": lambda quantity: WindowEstimator(OF_MEMORY if quantity.of_memory else OF_CPU),
}


def estimator_of(name: str, state: EstimatorState | None = None, quantity: Quantity = Quantity()) -> Estimator | None:
    """A new estimator of this name, which goes on from a state of its kind; None for `last`. Raises KeyError for no name of one."""
    if name == LAST:
        return None
    estimator = ESTIMATORS[name](quantity)
    if isinstance(state, type(estimator.state())):
        estimator.restore(state)
    return estimator
