"""The interface of estimators, and the choice of one by its name."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from colo_common.model.duration import format_duration
from colo_common.model.estimator_rules import HISTORY_MS, HORIZON_MS, LAST, LOOKING_AHEAD
from colo_overcommit.estimators.histogram import HistogramEstimator
from colo_overcommit.estimators.n_sigma import NSigmaEstimator
from colo_overcommit.estimators.outlook import Outlook, outlook_of
from colo_overcommit.estimators.peak import PeakEstimator
from colo_overcommit.estimators.periodic import PeriodicEstimator
from colo_overcommit.estimators.pid import PidEstimator
from colo_overcommit.estimators.rc_like import RcLikeEstimator
from colo_overcommit.estimators.states import EstimatorState
from colo_overcommit.estimators.steps import STEP_MS
from colo_overcommit.estimators.window import OF_CPU, OF_MEMORY, WindowEstimator

__all__ = ["ESTIMATORS", "Estimator", "EstimatorChoice", "Forecaster", "Quantity", "estimator_of"]


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


@runtime_checkable
class Forecaster(Estimator, Protocol):
    """An estimator that looks ahead as far as it is told."""

    def look(self, outlook: Outlook) -> None:
        """Look as far as this from now on; what was learned stays."""

    def foretold(self, outlook: Outlook) -> int | None:
        """The value to expect if it looked as far as this; None while too little was seen."""


class Quantity(NamedTuple):
    """What an estimator learns: bytes where `of_memory`, else mcpu. `phase`: 0 to 1, another one for each series.

    `own`: the number that the estimator takes, when it is not the usual one. `outlook`: how far it looks, if it looks ahead.
    """

    of_memory: bool = False
    phase: float = 0.0
    own: tuple[float, ...] = ()
    outlook: Outlook = Outlook()


class EstimatorChoice(NamedTuple):
    """The estimator of a node: its name, with a number of its own if it has one, and how far it looks, in ms."""

    name: str = LAST
    horizon_ms: int = HORIZON_MS
    history_ms: int = HISTORY_MS

    @property
    def kind(self) -> str:
        """The name without the number."""
        return self.name.partition(":")[0]

    @property
    def outlook(self) -> Outlook:
        """How far it looks, in steps rounded up and days rounded down."""
        return outlook_of(self.horizon_ms, self.history_ms)

    @property
    def text(self) -> str:
        """For people: "periodic (the largest of the next 15m, by the last 7d)", or the name of one that does not look ahead."""
        if self.kind not in LOOKING_AHEAD:
            return self.name
        ahead = format_duration(self.outlook.ahead_steps * STEP_MS)
        return f"{self.name} (the largest of the next {ahead}, by the last {self.outlook.days}d)"


def _dsp(quantity: Quantity) -> Estimator:
    # It alone needs NumPy, which is an eighth of the CPU time in which the service starts.
    from colo_overcommit.estimators import dsp

    unit = dsp.OF_MEMORY if quantity.of_memory else dsp.OF_CPU
    return dsp.DspEstimator(unit, int(quantity.phase * dsp.FIT_EVERY_MS), quantity.outlook)


ESTIMATORS: Final[Mapping[str, Callable[[Quantity], Estimator]]] = {
    "dsp": _dsp,
    "histogram": lambda quantity: HistogramEstimator(*quantity.own),
    "n-sigma": lambda quantity: NSigmaEstimator(*quantity.own),
    "peak": lambda quantity: PeakEstimator(*quantity.own),
    "periodic": lambda quantity: PeriodicEstimator(quantity.outlook),
    "pid": lambda _: PidEstimator(),
    "rc-like": lambda quantity: RcLikeEstimator(*quantity.own),
    "window": lambda quantity: WindowEstimator(OF_MEMORY if quantity.of_memory else OF_CPU),
}


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
