"""The interface of estimators, and the choice of one by its name."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from colo_common.model.invalid import InvalidInput
from colo_common.model.nearest import hint
from colo_overcommit.estimators import dsp
from colo_overcommit.estimators.histogram import HistogramEstimator
from colo_overcommit.estimators.n_sigma import NSigmaEstimator
from colo_overcommit.estimators.peak import PeakEstimator
from colo_overcommit.estimators.periodic import PeriodicEstimator
from colo_overcommit.estimators.pid import PidEstimator
from colo_overcommit.estimators.rc_like import RcLikeEstimator
from colo_overcommit.estimators.states import EstimatorState
from colo_overcommit.estimators.window import OF_CPU, OF_MEMORY, WindowEstimator

__all__ = ["ESTIMATORS", "LAST", "Estimator", "Quantity", "check_estimator", "estimator_of"]


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
    """What an estimator learns: bytes where `of_memory`, else mcpu. `phase`: 0 to 1, another one for each series.

    `own`: the number that the estimator takes, when it is not the usual one.
    """

    of_memory: bool = False
    phase: float = 0.0
    own: tuple[float, ...] = ()


def _dsp(quantity: Quantity) -> Estimator:
    unit = dsp.OF_MEMORY if quantity.of_memory else dsp.OF_CPU
    return dsp.DspEstimator(unit, int(quantity.phase * dsp.FIT_EVERY_MS))


LAST: Final = "last"
"""The newest value is all that is expected: the margin alone covers what comes."""
ESTIMATORS: Final[Mapping[str, Callable[[Quantity], Estimator]]] = {
    "dsp": _dsp,
    "histogram": lambda quantity: HistogramEstimator(*quantity.own),
    "n-sigma": lambda quantity: NSigmaEstimator(*quantity.own),
    "peak": lambda quantity: PeakEstimator(*quantity.own),
    "periodic": lambda _: PeriodicEstimator(),
    "pid": lambda _: PidEstimator(),
    "rc-like": lambda quantity: RcLikeEstimator(*quantity.own),
    "window": lambda quantity: WindowEstimator(OF_MEMORY if quantity.of_memory else OF_CPU),
}


_NUMBERS: Final[Mapping[str, tuple[float, float]]] = {
    "histogram": (0.5, 1),
    "n-sigma": (0, 20),
    "peak": (0, 20),
    "rc-like": (0.5, 1),
}


def check_estimator(text: str) -> None:
    """Raise InvalidInput for what is no name of an estimator, and for a number after its colon that it does not take."""
    name, colon, number = text.partition(":")
    names = (LAST, *ESTIMATORS)
    if name not in names:
        raise InvalidInput("estimator", f"is not one; {hint(name, names, 'estimators')}", text)
    if not colon:
        return
    if name not in _NUMBERS:
        raise InvalidInput("estimator", f"{name} takes no number", text)
    least, most = _NUMBERS[name]
    try:
        is_inside = least <= float(number) <= most
    except ValueError:
        is_inside = False
    if not is_inside:
        raise InvalidInput("estimator", f"the number of {name} must be {least:g} to {most:g}", text)


def estimator_of(name: str, state: EstimatorState | None = None, quantity: Quantity = Quantity()) -> Estimator | None:
    """A new estimator of this name, which goes on from a state of its kind; None for `last`. Raises KeyError for no name of one.

    "n-sigma:2.5" is n-sigma with 2.5 in place of its usual number.
    """
    if name == LAST:
        return None
    kind, _, number = name.partition(":")
    estimator = ESTIMATORS[kind](quantity._replace(own=(float(number),)) if number else quantity)
    if isinstance(state, type(estimator.state())):
        estimator.restore(state)
    return estimator
