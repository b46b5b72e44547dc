"""Mean and standard deviation of the last two hours: the estimator of Bashir et al., "Take it to the limit", EuroSys 2021."""

import math
from collections import deque
from typing import Final

from colo_overcommit.estimators.states import NSigmaState
from colo_overcommit.estimators.steps import Steps

__all__ = ["NSigmaEstimator"]

_STEPS: Final = 24
_SIGMAS: Final = 5


class NSigmaEstimator:
    """mean + `sigmas` standard deviations (n - 1) of the largest values of 24 steps of five minutes, rounded up; None before."""

    __slots__ = ("_expected", "_sigmas", "_steps", "_values")

    def __init__(self, sigmas: float = _SIGMAS) -> None:
        self._sigmas = sigmas
        self._values: deque[int] = deque(maxlen=_STEPS)
        self._expected: int | None = None
        self._steps = Steps(self._close, self._forget)

    def add(self, at_ms: int, value: int) -> None:
        """Take the newest measured value."""
        self._steps.add(at_ms, value)

    def expected(self) -> int | None:
        """The value to expect."""
        return self._expected

    def state(self) -> NSigmaState:
        """The state of the estimator, for `restore`."""
        return NSigmaState(steps=self._steps.state(), values=tuple(self._values))

    def restore(self, state: NSigmaState) -> None:
        """Replace the state by one that `state` returned."""
        self._steps.restore(state.steps)
        self._values = deque(state.values, maxlen=_STEPS)
        self._expect()

    def _close(self, _step: int, value: int) -> None:
        self._values.append(value)
        self._expect()

    def _expect(self) -> None:
        if len(self._values) == _STEPS:
            mean = sum(self._values) / _STEPS
            variance = sum((each - mean) ** 2 for each in self._values) / (_STEPS - 1)
            self._expected = math.ceil(mean + self._sigmas * math.sqrt(variance))

    def _forget(self) -> None:
        self._values.clear()
        self._expected = None
