"""The value of the same time of earlier days: for load that follows the hours."""

from collections import OrderedDict
from typing import Final

from colo_overcommit.estimators.states import PeriodicState
from colo_overcommit.estimators.steps import STEP_MS, Steps

__all__ = ["PeriodicEstimator"]

_DAY_STEPS: Final = 24 * 3_600_000 // STEP_MS
_DAYS: Final = 7
#: 15 minutes ahead, in which the control plane has reacted to anything.
_AHEAD_STEPS: Final = 3


class PeriodicEstimator:
    """The largest value that the next 15 minutes had on any of the last seven days; None before a whole day was seen.

    A day without values for these minutes does not count.
    """

    __slots__ = ("_first", "_kept", "_newest", "_steps")

    def __init__(self) -> None:
        self._kept: OrderedDict[int, int] = OrderedDict()
        self._first = -1
        self._newest = -1
        self._steps = Steps(self._close, self._forget)

    def add(self, at_ms: int, value: int) -> None:
        """Take the newest measured value."""
        self._steps.add(at_ms, value)

    def expected(self) -> int | None:
        """The value to expect."""
        if self._newest - self._first < _DAY_STEPS:
            return None
        now = self._newest + 1
        found = [
            self._kept[step]
            for day in range(1, _DAYS + 1)
            for step in range(now - day * _DAY_STEPS, now - day * _DAY_STEPS + _AHEAD_STEPS + 1)
            if step in self._kept
        ]
        return max(found, default=None)

    def state(self) -> PeriodicState:
        """What `restore` takes."""
        runs: list[tuple[int, list[int]]] = []
        for step, value in self._kept.items():
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
                self._close(start + offset, value)
        self._first = state.first

    def _close(self, step: int, value: int) -> None:
        self._kept[step] = value
        self._newest = step
        if self._first < 0:
            self._first = step
        while len(self._kept) > (_DAYS + 1) * _DAY_STEPS:
            self._kept.popitem(last=False)

    def _forget(self) -> None:
        self._kept.clear()
        self._first = self._newest = -1
