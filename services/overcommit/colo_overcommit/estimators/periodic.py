"""The value of the same time of earlier days: for load that follows the hours."""

from array import array
from typing import Final

from colo_overcommit.estimators.states import PeriodicState
from colo_overcommit.estimators.steps import STEP_MS, Steps

__all__ = ["PeriodicEstimator"]

_DAY_STEPS: Final = 24 * 3_600_000 // STEP_MS
_DAYS: Final = 7
_KEPT: Final = (_DAYS + 1) * _DAY_STEPS
#: 15 minutes ahead, in which the control plane has reacted to anything.
_AHEAD_STEPS: Final = 3
_UNKNOWN: Final = -1


class PeriodicEstimator:
    """The largest value that the next 15 minutes had on any of the last seven days; None before a whole day was seen.

    A day without values for these minutes does not count.
    """

    __slots__ = ("_expected", "_first", "_kept", "_newest", "_steps")

    def __init__(self) -> None:
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

    def state(self) -> PeriodicState:
        """What `restore` takes."""
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
        """Go on from this state; of more values than are kept the newest count."""
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
        self._expected = None
        if self._newest - self._first >= _DAY_STEPS:
            now = self._newest + 1
            found = [
                self._kept[step % _KEPT]
                for day in range(1, _DAYS + 1)
                for step in range(now - day * _DAY_STEPS, now - day * _DAY_STEPS + _AHEAD_STEPS + 1)
                if step >= 0
            ]
            known = max(found, default=_UNKNOWN)
            self._expected = None if known == _UNKNOWN else known

    def _forget(self) -> None:
        self._kept = array("q", [_UNKNOWN]) * _KEPT
        self._expected = None
        self._first = self._newest = -1
