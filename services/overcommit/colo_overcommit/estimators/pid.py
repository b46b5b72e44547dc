"""A controller that keeps so much for online work that it uses a set part of it: Katalyst's PID on the use.

Source: kubewharf/katalyst-core (pkg/agent/sysadvisor/plugin/qosaware/resource/helper/pid.go, policy "rama"): quick upwards, slow
downwards, by the logarithm of how far the indicator is from its target.
"""

import math
from typing import Final, NamedTuple

from colo_overcommit.estimators.states import PidState

__all__ = ["PidController", "PidEstimator", "PidParams"]


class PidParams(NamedTuple):
    """The constants of one indicator: proportional and derivative part above and below its target, the bounds of the sum of
    adjustments, and the band around the target, as shares of it, in which nothing moves.
    """

    kp_above: float
    kp_below: float
    kd_above: float
    kd_below: float
    most: float
    least: float
    dead_below: float
    dead_above: float


class PidController:
    """The adjustments of a knob by one indicator. They add up while the knob stays, and begin again when it was moved."""

    __slots__ = ("_error", "_knob", "_params", "_total", "_upper")

    def __init__(self, params: PidParams, upper: float) -> None:
        """`upper` is the largest value of the knob, in its unit."""
        self._params, self._upper = params, upper
        self._knob: float | None = None
        self._error = self._total = 0.0

    def adjustment(self, knob: float, target: float, current: float) -> float:
        """How far the knob should move now; 0 for an indicator or a target that is not positive."""
        params = self._params
        if knob != self._knob:
            self._total = 0.0
        self._knob = knob
        if target <= 0 or current <= 0:
            return 0.0
        error, last = math.log(current) - math.log(target), self._error
        self._error = error
        if -params.dead_below <= (current - target) / target <= params.dead_above:
            return self._total
        kp, kd = (params.kp_above, params.kd_above) if error >= 0 else (params.kp_below, params.kd_below)
        change = kd * abs(abs(error) - abs(last))
        self._total += kp * self._upper * error + (change if error >= 0 else -change)
        self._total = min(max(self._total, params.least), params.most)
        return self._total


_EVERY_MS: Final = 5_000
_TARGET: Final = 0.8
#: The bounds of a step are Katalyst's 10 and 2 CPUs of 90, as shares.
_PARAMS: Final = PidParams(0.1, 0.01, 0.0, 0.0, 1 / 9, -1 / 45, 0.1, 0.05)


class PidEstimator:
    """What is kept so that online work uses 80 % of it, moved every five seconds; None before the first value.

    A step is a share of what was kept before: at most a ninth up and a forty-fifth down. Rounds up.
    """

    __slots__ = ("_kept", "_taken_ms")

    def __init__(self) -> None:
        self._kept = 0.0
        self._taken_ms = -1

    def add(self, at_ms: int, value: int) -> None:
        """Take the newest measured value; one that comes within five seconds of the last one that was taken is passed over."""
        if at_ms < self._taken_ms:
            self._kept, self._taken_ms = 0.0, -1
        if self._taken_ms >= 0 and at_ms - self._taken_ms < _EVERY_MS:
            return
        if self._taken_ms < 0:
            self._kept = max(value, 1) / _TARGET
        else:
            used = max(value, 1) / self._kept
            share = PidController(_PARAMS, 1.0).adjustment(1.0, _TARGET, used)
            self._kept = max(self._kept * (1 + share), 1.0)
        self._taken_ms = at_ms

    def expected(self) -> int | None:
        """The value to expect."""
        return None if self._taken_ms < 0 else math.ceil(self._kept)

    def state(self) -> PidState:
        """The state of the estimator, for `restore`."""
        return PidState(taken_ms=self._taken_ms, kept=self._kept)

    def restore(self, state: PidState) -> None:
        """Replace the state by one that `state` returned."""
        self._taken_ms, self._kept = state.taken_ms, state.kept
