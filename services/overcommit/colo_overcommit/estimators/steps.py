"""Samples of any period as steps of five minutes, because estimators compare what lasted equally long."""

from collections.abc import Callable
from typing import Final

from colo_overcommit.estimators.states import StepsState

__all__ = ["STEP_MS", "Steps"]

STEP_MS: Final = 300_000


class Steps:
    """Calls `close` with the largest value of each step of five minutes of the clock when the step is over.

    A clock that was set back by more than a step calls `forget`: what was learned is of another time.
    """

    __slots__ = ("_close", "_forget", "_largest", "_step")

    def __init__(self, close: Callable[[int, int], None], forget: Callable[[], None]) -> None:
        """`close` gets the number of the step (Unix time / 5 min) and the value."""
        self._close = close
        self._forget = forget
        self._step = -1
        self._largest = 0

    def add(self, at_ms: int, value: int) -> None:
        """Take a value of the step that is not over, or of a later one."""
        step = at_ms // STEP_MS
        if step < self._step - 1:
            self._forget()
            self._step = -1
        if step > self._step:
            if self._step >= 0:
                self._close(self._step, self._largest)
            self._step, self._largest = step, value
        self._largest = max(self._largest, value)

    def state(self) -> StepsState:
        """The state of the estimator, for `restore`."""
        return StepsState(step=self._step, largest=self._largest)

    def restore(self, state: StepsState) -> None:
        """Go on within this step."""
        self._step, self._largest = state.step, state.largest
