"""The value of the same time of earlier days: for load that follows the hours."""

from array import array
from typing import Final

from colo_overcommit.estimators.outlook import Outlook
from colo_overcommit.estimators.states import PeriodicState
from colo_overcommit.estimators.steps import STEP_MS, Steps

__all__ = ["PeriodicEstimator"]

_DAY_STEPS: Final = 24 * 3_600_000 // STEP_MS
#: Seven days back, and the part of a day that is ahead.
_KEPT: Final = 8 * _DAY_STEPS
_UNKNOWN: Final = -1


class PeriodicEstimator:
    """The largest value that the next 15 minutes had on any of the last seven days; None before a whole day was seen.

    A day without values for these minutes does not count. Another outlook changes the minutes and the days.
    """

    __slots__ = ("_expected", "_first", "_kept", "_newest", "_outlook", "_steps")

    def __init__(self, outlook: Outlook = Outlook()) -> None:
        self._outlook = outlook
        #: The value of step n is at n modulo eight days.
        self._kept = array("q", [_UNKNOWN]) * _KEPT
        self._expected: int | None = None
        self._first = -1
        self._newest = -1
        self._steps = Steps(self._close, self._forget)

    def add(self, at_ms: int, value: int) -> None:
        """Take the newest measured value."""
        self._steps.add(at_ms, value)

    def expected(self) -> int | None:
        """The value to expect."""
        return self._expected

    def foretold(self, outlook: Outlook) -> int | None:
        """The value to expect under another outlook."""
        if self._newest - self._first < _DAY_STEPS:
            return None
        now = self._newest + 1
        found = [
            self._kept[step % _KEPT]
            for day in range(1, outlook.days + 1)
            for step in range(now - day * _DAY_STEPS, now - day * _DAY_STEPS + outlook.ahead_steps + 1)
            if step >= 0
        ]
        known = max(found, default=_UNKNOWN)
        return None if known == _UNKNOWN else known

    def look(self, outlook: Outlook) -> None:
        """Look as far as this from now on; what was learned stays."""
        self._outlook = outlook
        self._expect()

    def state(self) -> PeriodicState:
        """The state of the estimator, for `restore`."""
        runs: list[tuple[int, list[int]]] = []
        for step in range(max(self._newest - _KEPT + 1, 0), self._newest + 1):
            value = self._kept[step % _KEPT]
            if value == _UNKNOWN:
                continue
            if not runs or step != runs[-1][0] + len(runs[-1][1]):
                runs.append((step, []))
            runs[-1][1].append(value)
        return PeriodicState(
            steps=self._steps.state(), first=self._first, runs=tuple((step, tuple(values)) for step, values in runs)
        )

    def restore(self, state: PeriodicState) -> None:
        """Replace the state by one that `state` returned; of more values than are kept the newest count."""
        self._forget()
        self._steps.restore(state.steps)
        for start, values in state.runs:
            for offset, value in enumerate(values):
                self._keep(start + offset, value)
        self._first = state.first
        self._expect()

    def _close(self, step: int, value: int) -> None:
        self._keep(step, value)
        if self._first < 0:
            self._first = step
        self._expect()

    def _keep(self, step: int, value: int) -> None:
        for missing in range(max(self._newest + 1, step - _KEPT + 1), step):
            self._kept[missing % _KEPT] = _UNKNOWN
        self._kept[step % _KEPT] = value
        self._newest = step

    def _expect(self) -> None:
        self._expected = self.foretold(self._outlook)

    def _forget(self) -> None:
        self._kept = array("q", [_UNKNOWN]) * _KEPT
        self._expected = None
        self._first = self._newest = -1
