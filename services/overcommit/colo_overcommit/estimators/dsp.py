"""The next minutes of a load that repeats itself every day: Crane's DSP prediction over seven days, for the next 15 minutes.

Source: gocrane/crane (pkg/prediction/dsp): the period is found in the spectrum, and of several ways to take the noise out of the
series the one counts that would have foretold the newest period best.
"""

import math
from array import array
from typing import Final

import numpy as np

from colo_overcommit.estimators.gapless import GaplessSeries
from colo_overcommit.estimators.outlook import Outlook
from colo_overcommit.estimators.spectrum import (
    DAY_S,
    NoiseFilter,
    best_of,
    choose_period,
    usable_period,
    without_outliers,
)
from colo_overcommit.estimators.states import DspState
from colo_overcommit.estimators.steps import STEP_MS, Steps

__all__ = ["FIT_EVERY_MS", "OF_CPU", "OF_MEMORY", "DspEstimator"]

OF_CPU: Final = 1_000
"""mcpu in the unit of the filters: a CPU."""
OF_MEMORY: Final = 1 << 30
"""Bytes in the unit of the filters: a GiB."""
FIT_EVERY_MS: Final = 6 * 3_600_000
_STEP_S: Final = STEP_MS // 1_000
_HOUR_S: Final = 3_600
_DAY_STEPS: Final = DAY_S // _STEP_S
#: So many days are kept, however few are looked at.
_DAYS: Final = 7
_AMOUNT_MOST: Final = 1 << 60
#: Crane's default choice: few strong components or many, and four margins of each.
_FILTERS: Final = tuple(
    NoiseFilter(items, amplitude, margin)
    for items, amplitude in ((3, 1.0), (50, 0.05))
    for margin in (0.01, 0.10, 0.15, 0.20)
)


class DspEstimator:
    """The largest value that the period, which is found in the last seven days, foretells for the next 15 minutes, rounded up.

    None before two whole days without a gap of an hour, and while no period of a day stands out of the noise. The period is sought
    again every six hours; `phase_ms` is when in these, so that the series of a fleet are not all computed at one time. Another
    outlook changes the minutes at once, and the days when the period is sought again.
    """

    __slots__ = ("_base", "_expected", "_fit_ms", "_forecast", "_outlook", "_phase_ms", "_series", "_steps", "_unit")

    def __init__(self, unit: int = OF_CPU, phase_ms: int = 0, outlook: Outlook = Outlook()) -> None:
        """`unit`: the value that the filters count as 1."""
        self._unit, self._phase_ms, self._outlook = unit, phase_ms % FIT_EVERY_MS, outlook
        self._series = GaplessSeries(_STEP_S, _DAYS * _DAY_STEPS, "f")
        #: One period of values, of which the first is that of the step `_base`; empty: no period is known.
        self._forecast = array("q")
        self._base = 0
        self._expected: int | None = None
        self._fit_ms = -1
        self._steps = Steps(self._close, self._forget)

    def add(self, at_ms: int, value: int) -> None:
        """Take the newest measured value."""
        self._steps.add(at_ms, value)
        if at_ms >= self._fit_ms:
            if self._fit_ms >= 0:
                self._fit()
                self._expect()
            self._fit_ms = (at_ms - self._phase_ms) // FIT_EVERY_MS * FIT_EVERY_MS + FIT_EVERY_MS + self._phase_ms

    def expected(self) -> int | None:
        """The value to expect."""
        return self._expected

    def foretold(self, outlook: Outlook) -> int | None:
        """The value to expect under another outlook, by the period that is known."""
        forecast = self._forecast
        if not forecast:
            return None
        now = self._series.end_s // _STEP_S + 1 - self._base
        return max([forecast[step % len(forecast)] for step in range(now, now + outlook.ahead_steps + 1)])

    def look(self, outlook: Outlook) -> None:
        """Look as far as this from now on; what was learned stays."""
        self._outlook = outlook
        self._expect()

    def state(self) -> DspState:
        """The state of the estimator, for `restore`."""
        values = tuple([int(value) if value.is_integer() else value for value in self._series.values])
        return DspState(
            steps=self._steps.state(),
            end_s=self._series.end_s,
            values=values,
            base=self._base,
            forecast=tuple(self._forecast),
            fit_ms=self._fit_ms,
        )

    def restore(self, state: DspState) -> None:
        """Replace the state by one that `state` returned."""
        self._steps.restore(state.steps)
        self._series.end_s, self._series.values = state.end_s, array("f", state.values)
        self._base, self._forecast, self._fit_ms = state.base, array("q", state.forecast), state.fit_ms
        self._expect()

    def _close(self, step: int, value: int) -> None:
        if self._series.end_s >= 0 and step * _STEP_S - self._series.end_s > _HOUR_S:
            del self._forecast[:]
        self._series.add(step * _STEP_S, value)
        self._expect()

    def _expect(self) -> None:
        self._expected = self.foretold(self._outlook)

    def _fit(self) -> None:
        values = self._series.whole(_HOUR_S)[-self._outlook.days * _DAY_STEPS :]
        del self._forecast[:]
        if len(values) < 2 * _DAY_STEPS:
            return
        samples = without_outliers(np.frombuffer(values, dtype=np.float32).astype(np.float64) / self._unit)
        period_s = usable_period(choose_period(samples, _STEP_S))
        if period_s is None:
            return
        per_period = period_s // _STEP_S
        samples = samples[len(samples) % per_period :]
        best, _ = best_of(_FILTERS, samples, per_period, _STEP_S)
        found = _FILTERS[best].period(samples, per_period, _STEP_S)
        self._forecast = array("q", [min(math.ceil(value * self._unit), _AMOUNT_MOST) for value in found.tolist()])
        self._base = self._series.end_s // _STEP_S + 1

    def _forget(self) -> None:
        self._series.forget()
        del self._forecast[:]
        self._expected, self._fit_ms = None, -1
