"""The period of a series and what the series is without its noise: how Crane's DSP prediction sees a load.

Source: gocrane/crane (pkg/prediction/dsp and pkg/prediction/accuracy). Where frequencies mirror each other Crane counts slow ones
as fast; here both count as what they are. Everything is a function of the series: random orders come from a fixed seed.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = [
    "DAY_S",
    "NoiseFilter",
    "Floats",
    "Largest",
    "autocorrelation",
    "best_of",
    "choose_period",
    "filtered_period",
    "find_period",
    "largest_of_periods",
    "prediction_error",
    "usable_period",
    "without_outliers",
]

Floats = npt.NDArray[np.float64]

DAY_S: Final = 86_400
_WEEK_S: Final = 7 * DAY_S
_ORDERS: Final = 100
_SLOPE_S: Final = 4 * 3_600
_LEAST: Final = 0.01
_TINY: Final = 1e-3
_UNDER_BASE: Final = math.log(1.25)
_OUTLIERS_FROM: Final = 1_000


class NoiseFilter(NamedTuple):
    """The newest period without noise: which components of the spectrum stay, and what is added as a share of the result.

    A component stays when it is no faster than `high_hz` or among the strongest ones: those above `low_amplitude` (in the unit of
    the values), but not fewer than `least_items` and not more than `most_items`.
    """

    least_items: int
    low_amplitude: float
    margin: float
    most_items: int = 100
    high_hz: float = 1 / 3_600

    def period(self, samples: Floats, per_period: int, interval_s: int) -> Floats:
        """One period of values, as it is expected to come next."""
        return filtered_period(samples, per_period, interval_s, self)


class Largest(NamedTuple):
    """The largest value that each moment of the period ever had, and what is added as a share of it."""

    margin: float

    def period(self, samples: Floats, per_period: int, _interval_s: int) -> Floats:
        """One period of values, as it is expected to come next."""
        return largest_of_periods(samples, per_period, self.margin)


def without_outliers(values: Floats) -> Floats:
    """Values outside the percentiles 0.1 and 99.9 become what stands before them; nothing changes below a thousand values."""
    found = values.copy()
    count = len(values)
    if count < _OUTLIERS_FROM:
        return found
    ordered = np.sort(values)
    low, high = _percentile(ordered, 1), _percentile(ordered, 999)
    for number in np.flatnonzero((values < low) | (values > high)).tolist():
        if number:
            found[number] = found[number - 1]
    return found


def _percentile(ordered: Floats, permille: int) -> float:
    """The value at this place of the order, or the mean of the two around it."""
    index, rest = divmod(permille * len(ordered), 1_000)
    return float(ordered[index - 1] if not rest else (ordered[index - 1] + ordered[index]) / 2)


def autocorrelation(samples: Floats) -> Floats:
    """The circular autocorrelation of the standardised series, by lag; all 0 for a constant one."""
    spread = samples.std()
    if spread == 0:
        return np.zeros(len(samples))
    spectrum = np.fft.rfft((samples - samples.mean()) / spread)
    found: Floats = np.fft.irfft(np.abs(spectrum) ** 2, len(samples)) / len(samples)
    return found


def find_period(samples: Floats, interval_s: int) -> int:
    """The period in seconds, -1 without one: stronger than chance in the spectrum, a peak of the autocorrelation, the highest.

    A place where the series is the opposite of itself (a negative correlation) is no peak. Chance is the second largest of the
    peaks of the spectra of the same values in 100 random orders.
    """
    count = len(samples)
    if not count:
        return -1
    centred = samples - samples.mean()
    by_chance = max(_chance(centred), 1e-9)
    strengths, correlation = np.abs(np.fft.rfft(centred)), autocorrelation(samples)
    best, best_value = -1, 0.0
    for k in np.flatnonzero(strengths > by_chance).tolist():
        period = count // k if k >= 2 else 0
        if (
            period
            and correlation[period] > best_value
            and _is_peak(correlation, period, min(_SLOPE_S // interval_s, period // 2))
        ):
            best, best_value = period, float(correlation[period])
    return best * interval_s if best > 0 else -1


def _chance(centred: Floats) -> float:
    spectra = np.abs(np.fft.rfft(centred[_orders(len(centred))], axis=1))[:, 1:]
    return float(np.partition(spectra.max(axis=1), -2)[-2]) if spectra.shape[1] else 0.0


@lru_cache(maxsize=2)
def _orders(count: int) -> npt.NDArray[np.int32]:
    """The random orders for series of this length; those of the last two lengths are kept."""
    rng = np.random.default_rng(0)
    return np.stack([rng.permutation(each).astype(np.int32) for each in repeat(count, _ORDERS)])


def _is_peak(correlation: Floats, at: int, reach: int) -> bool:
    """Whether the least-squares line rises before this lag and falls after it."""
    if reach < 1:
        return False
    left, right = correlation[max(at - reach, 0) : at + 1], correlation[at : at + reach + 1]
    if min(len(left), len(right)) < 2:
        return False
    return _slope(left) > 0 > _slope(right)


def _slope(values: Floats) -> float:
    """A number with the sign of the slope of the least-squares line, and proportional to it for one length of `values`."""
    places = np.arange(len(values)) - (len(values) - 1) / 2
    return float(places @ values)


def usable_period(period_s: int) -> int | None:
    """Only a day and a week are used."""
    return period_s if period_s in (DAY_S, _WEEK_S) else None


def choose_period(samples: Floats, interval_s: int) -> int:
    """The period of the newest whole weeks if there are two, else of the newest whole days if there are two, else -1."""
    for unit_s in (_WEEK_S, DAY_S):
        unit = unit_s // interval_s
        if len(samples) >= 2 * unit:
            return find_period(samples[len(samples) - len(samples) // unit * unit :], interval_s)
    return -1


def largest_of_periods(samples: Floats, per_period: int, margin: float) -> Floats:
    """The largest value of each moment of the period, with a margin; an incomplete oldest period is left out."""
    whole = samples[len(samples) % per_period :].reshape(-1, per_period)
    found: Floats = whole.max(axis=0) * (1 + margin)
    return found


def filtered_period(samples: Floats, per_period: int, interval_s: int, keep: NoiseFilter) -> Floats:
    """The newest period of the series without weak fast components; what is not above 0 becomes 0.01; then the margin."""
    count = len(samples)
    spectrum = np.fft.rfft(samples)
    amplitudes, speeds = np.abs(spectrum) / count, np.fft.rfftfreq(count, interval_s)
    # Crane ranks neither the mean nor the fastest component; a series of three values has nothing else.
    ordered = np.sort(amplitudes[1 : max(count // 2, 2)])[::-1]
    least = max(float(ordered[min(keep.most_items, len(ordered)) - 1]), keep.low_amplitude)
    least = min(least, float(ordered[min(keep.least_items, len(ordered)) - 1]))
    spectrum[(amplitudes < least) & (speeds > keep.high_hz)] = 0
    series = np.fft.irfft(spectrum, count)[count - per_period :]
    found: Floats = np.where(series <= 0, _LEAST, series) * (1 + keep.margin)
    return found


def prediction_error(actual: Floats, predicted: Floats) -> tuple[float | None, float]:
    """The mean relative error, in which too little weighs far more than too much, and the error that counts.

    With an actual value near 0 there is no relative error, and the mean absolute one counts.
    """
    if (actual < _TINY).any():
        return None, float(np.abs(actual - predicted).mean())
    share = (predicted - actual) / actual
    if (share <= -1).any():
        return math.inf, math.inf
    mean = float(np.where(share < 0, -np.log1p(share) / _UNDER_BASE, share).mean())
    return mean, mean


def best_of(
    candidates: Sequence[NoiseFilter | Largest], samples: Floats, per_period: int, interval_s: int
) -> tuple[int, list[float]]:
    """The number of the candidate with the least error on the newest period, which none of them sees, and the errors of all."""
    seen, held_out = samples[:-per_period], samples[-per_period:]
    errors = [prediction_error(held_out, each.period(seen, per_period, interval_s))[1] for each in candidates]
    return errors.index(min(errors)), errors
