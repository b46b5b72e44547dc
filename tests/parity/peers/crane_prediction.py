"""How Crane predicts: a percentile of a value-weighted histogram, and a period that is found in the spectrum and repeated.

(gocrane/crane:pkg/prediction/percentile, pkg/prediction/dsp, pkg/prediction/accuracy)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_DAY_S: Final = 86_400
_WEEK_S: Final = 7 * _DAY_S
_GAP_MOST_S: Final = 3_600
_PERMUTATIONS: Final = 100
_SLOPE_S: Final = 4 * 3_600
_LEAST: Final = 0.01
_TINY: Final = 1e-3
_UNDER_BASE: Final = 1.25


class Buckets(NamedTuple):
    """The buckets of a histogram: linear of `size`, or, with `growth`, each so much wider than the one before it."""

    most: float
    size: float
    growth: float = 0.0

    @property
    def count(self) -> int:
        """How many buckets there are; the last one has no end."""
        if not self.growth:
            return math.ceil(self.most / self.size) + 1
        ratio = 1 + self.growth
        return math.ceil(math.log(self.most * self.growth / self.size + 1) / math.log(ratio)) + 1

    def of(self, value: float) -> int:
        """The bucket of a value; the first and the last one take what lies outside."""
        if not self.growth:
            number = int(value / self.size)
        else:
            number = (
                0
                if value < self.size
                else int(math.log(value * self.growth / self.size + 1) / math.log(1 + self.growth))
            )
        return min(max(number, 0), self.count - 1)

    def start(self, number: int) -> float:
        """Where a bucket begins."""
        if not self.growth:
            return number * self.size
        return float(self.size * ((1 + self.growth) ** number - 1) / self.growth)


def weighted_percentile(
    samples: Sequence[float], buckets: Buckets, percentile: float, least_weight: float, epsilon: float
) -> float:
    """The end of the bucket that holds the percentile of the weight; each sample weighs as much as it is. 0 without samples."""
    weights: dict[int, float] = {}
    for sample in samples:
        number = buckets.of(sample)
        weights[number] = weights.get(number, 0.0) + max(least_weight, sample)
    used = sorted(number for number, weight in weights.items() if weight >= epsilon)
    if not used:
        return 0.0
    threshold, reached, found = percentile * sum(weights.values()), 0.0, used[-1]
    for number in range(used[0], used[-1] + 1):
        reached += weights.get(number, 0.0)
        if reached >= threshold:
            found = number
            break
    return buckets.start(found + 1) if found < buckets.count - 1 else buckets.start(found)


def prediction_error(actual: Sequence[float], predicted: Sequence[float]) -> tuple[float | None, float]:
    """The mean relative error, in which too little weighs far more than too much, and the error that counts.

    With an actual value near 0 there is no relative error, and the mean absolute one counts.
    """
    if any(value < _TINY for value in actual):
        return None, sum(abs(a - p) for a, p in zip(actual, predicted, strict=True)) / len(actual)
    total = 0.0
    for value, guess in zip(actual, predicted, strict=True):
        share = (guess - value) / value
        if share < 0:
            share = math.inf if share <= -1 else -math.log(1 + share) / math.log(_UNDER_BASE)
        total += share
    return total / len(actual), total / len(actual)


def autocorrelation(samples: Floats) -> Floats:
    """The circular autocorrelation of the standardised series, by lag; all 0 for a constant one."""
    spread = samples.std()
    if spread == 0:
        return np.zeros(len(samples))
    spectrum = np.fft.fft((samples - samples.mean()) / spread)
    found: Floats = np.fft.ifft(spectrum * np.conj(spectrum)).real / len(samples)
    return found


def preprocessed(samples: Sequence[tuple[int, float]], interval_s: int, unit_s: int) -> list[tuple[int, float]] | None:
    """The newest whole units without gaps: what lies before a gap above an hour is dropped, others are filled linearly.

    None for times that do not grow, and for a gap that is no multiple of the interval.
    """
    if not samples or any(after[0] <= before[0] for before, after in pairwise(samples)):
        return None
    breaks = [n for n in range(1, len(samples)) if samples[n][0] - samples[n - 1][0] > _GAP_MOST_S]
    kept = samples[breaks[-1] if breaks else 0 :]
    filled = [kept[0]]
    for at_s, value in kept[1:]:
        before_s, before = filled[-1]
        steps, rest = divmod(at_s - before_s, interval_s)
        if rest:
            return None
        filled += [(before_s + n * interval_s, before + (value - before) * n / steps) for n in range(1, steps)]
        filled.append((at_s, value))
    unit = max(unit_s // interval_s, 1)
    count = len(filled) // unit * unit
    return filled[len(filled) - count :] if count else []


def without_outliers(values: Sequence[float]) -> list[float]:
    """Values outside the percentiles 0.1 and 99.9 become what stands before them; nothing below 1000 values."""
    low, high = _percentile(values, 0.1), _percentile(values, 99.9)
    found = list(values)
    if low is None or high is None:
        return found
    for number in range(1, len(found)):
        if not low <= found[number] <= high:
            found[number] = found[number - 1]
    return found


def _percentile(values: Sequence[float], percent: float) -> float | None:
    ordered = sorted(values)
    index = percent / 100 * len(ordered)
    if index == int(index) and index >= 1:
        return ordered[int(index) - 1]
    if index <= 1:
        return None
    return (ordered[int(index) - 1] + ordered[int(index)]) / 2


def find_period(samples: Floats, interval_s: int, seed: int = 0) -> int:
    """The period in seconds, -1 without one: stronger than chance in the spectrum, a peak of the autocorrelation, the highest.

    A peak that says the opposite (a negative correlation) is none. Chance is the second largest of the peaks of 100 series in
    which the same values stand in any order.
    """
    count = len(samples)
    centred = samples - samples.mean()
    rng = np.random.default_rng(seed)
    peaks = sorted(
        (float(np.abs(np.fft.rfft(rng.permutation(centred)))[1:].max()) for _ in range(_PERMUTATIONS)), reverse=True
    )
    strengths, correlation = np.abs(np.fft.rfft(centred)), autocorrelation(samples)
    best, best_value = -1, 0.0
    for k in range(2, len(strengths)):
        if strengths[k] <= max(peaks[1], 1e-9):
            continue
        period = count // k
        if _is_peak(correlation, period, min(_SLOPE_S // interval_s, period // 2)) and correlation[period] > best_value:
            best, best_value = period, float(correlation[period])
    return best * interval_s if best > 0 else -1


def _is_peak(correlation: Floats, at: int, reach: int) -> bool:
    if reach < 1:
        return False
    left, right = correlation[max(at - reach, 0) : at + 1], correlation[at : at + reach + 1]
    if min(len(left), len(right)) < 2:
        return False
    return bool(_slope(left) > 0 > _slope(right))


def _slope(values: Floats) -> float:
    return float(np.polyfit(np.arange(len(values)), values, 1)[0])


def usable_period(period_s: int) -> int | None:
    """Only a day and a week are used."""
    return period_s if period_s in (_DAY_S, _WEEK_S) else None


def choose_period(samples: Floats, interval_s: int) -> int:
    """The period of the newest whole weeks if there are two, else of the newest whole days if there are two, else -1."""
    for unit_s in (_WEEK_S, _DAY_S):
        unit = unit_s // interval_s
        if len(samples) >= 2 * unit:
            return find_period(samples[len(samples) - len(samples) // unit * unit :], interval_s)
    return -1


def largest_of_periods(samples: Floats, per_period: int, margin: float) -> Floats:
    """The largest value of each moment of the period, with a margin; an incomplete oldest period is left out."""
    whole = samples[len(samples) % per_period :].reshape(-1, per_period)
    found: Floats = whole.max(axis=0) * (1 + margin)
    return found


class Filter(NamedTuple):
    """Which components of a spectrum are kept: the strongest ones, and all that are slow enough."""

    least_items: int
    most_items: int
    high_hz: float
    low_amplitude: float


def filtered_period(samples: Floats, per_period: int, interval_s: int, keep: Filter, margin: float) -> Floats:
    """The newest period of the series without weak fast components; what is not above 0 becomes 0.01; then the margin."""
    count = len(samples)
    spectrum = np.fft.fft(samples)
    amplitudes, speeds = np.abs(spectrum) / count, np.abs(np.fft.fftfreq(count, interval_s))
    ordered = np.sort(amplitudes[1 : count // 2 + 1])[::-1]
    least = max(float(ordered[min(keep.most_items, len(ordered)) - 1]), keep.low_amplitude)
    least = min(least, float(ordered[min(keep.least_items, len(ordered)) - 1]))
    spectrum[(amplitudes < least) & (speeds > keep.high_hz)] = 0
    series = np.fft.ifft(spectrum).real[count - per_period :]
    found: Floats = np.where(series <= 0, _LEAST, series) * (1 + margin)
    return found
