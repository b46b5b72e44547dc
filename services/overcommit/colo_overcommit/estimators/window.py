"""The mean of a window of samples, followed by bounded steps: how Katalyst smooths what it reports.

Source: kubewharf/katalyst-core (pkg/util/general/window.go). There the number to offer is smoothed; here it is the use of online
work, so that a short peak leaves the promise where it was and a long one is followed.
"""

import math
from typing import Final, NamedTuple

from colo_overcommit.estimators.states import WindowState

__all__ = ["OF_CPU", "OF_MEMORY", "SmoothingWindow", "WindowBounds", "WindowEstimator"]

_MIB: Final = 1 << 20


class WindowBounds(NamedTuple):
    """A window of `size` samples that are no older than `ttl` each. A mean that is less than `least_step` away is not followed, and
    one that is farther by no more than `most_step` at once. Times and values are of any one unit.
    """

    size: int
    ttl: float
    least_step: float
    most_step: float


OF_CPU: Final = WindowBounds(4, 240_000, 300, 4_000)
"""Katalyst's default in milliseconds and mcpu: four samples of 30 s, 0.3 and 4 CPUs."""
OF_MEMORY: Final = WindowBounds(4, 240_000, 300 * _MIB, 5 * 1_024 * _MIB)
"""Katalyst's default in milliseconds and bytes: 300 MiB and 5 GiB."""
_EVERY_MS: Final = 30_000


class SmoothingWindow:
    """`last`: what is reported, None before the first full window; one that is not full repeats the last report."""

    __slots__ = ("_bounds", "last", "samples")

    def __init__(self, bounds: WindowBounds) -> None:
        self._bounds = bounds
        self.samples: list[tuple[float, float]] = []
        self.last: float | None = None

    def add(self, at: float, value: float) -> float | None:
        """Take a sample, and return what is reported."""
        size, ttl, least_step, most_step = self._bounds
        self.samples = [each for each in [*self.samples, (at, value)] if at - each[0] <= ttl][-size:]
        if len(self.samples) < size:
            return self.last
        mean = sum(sample for _, sample in self.samples) / size
        if self.last is None:
            self.last = mean
        elif abs(mean - self.last) >= least_step:
            self.last += min(max(mean - self.last, -most_step), most_step)
        return self.last


class WindowEstimator:
    """What a SmoothingWindow of one sample in 30 s reports, rounded up; None before it was full."""

    __slots__ = ("_bounds", "_taken_ms", "_window")

    def __init__(self, bounds: WindowBounds = OF_CPU) -> None:
        self._bounds = bounds
        self._window = SmoothingWindow(bounds)
        self._taken_ms = -1

    def add(self, at_ms: int, value: int) -> None:
        """Take the newest measured value; one that comes within 30 s of the last one that was taken is passed over."""
        if at_ms < self._taken_ms:
            self._forget()
        if self._taken_ms < 0 or at_ms - self._taken_ms >= _EVERY_MS:
            self._taken_ms = at_ms
            self._window.add(at_ms, value)

    def expected(self) -> int | None:
        """The value to expect."""
        last = self._window.last
        return None if last is None else max(math.ceil(last), 0)

    def state(self) -> WindowState:
        """The state of the estimator, for `restore`."""
        samples = tuple((int(at), int(value)) for at, value in self._window.samples)
        return WindowState(taken_ms=self._taken_ms, samples=samples, last=self._window.last)

    def restore(self, state: WindowState) -> None:
        """Replace the state by one that `state` returned."""
        self._forget()
        self._taken_ms = state.taken_ms
        self._window.samples, self._window.last = [*state.samples], state.last

    def _forget(self) -> None:
        self._window = SmoothingWindow(self._bounds)
        self._taken_ms = -1
