"""A made-up day, for a lab without any trace. SYNTHETIC, not measured; its trace has `is_synthetic` set."""

from __future__ import annotations

from math import cos, pi

from colo_sim.noise import key_of, mix, uniform
from colo_sim.trace import DEFAULT_GAP_LIMIT_MS, LoadTrace, series_from_rows

__all__ = ["synthetic_day"]

_STEP_MS = 300_000
_STEPS_PER_DAY = 288
_VALLEY_PPM = 160_000
_PEAK_PPM = 620_000
_MEMORY_PPM = 600_000
_JITTER_PPM = 25_000


def synthetic_day(seed: int = 0) -> LoadTrace:
    """Return one day of a made-up fleet mean: 16 % CPU at 04:00, 62 % at 16:00, a cosine between, and seeded jitter.

    288 samples, five minutes apart, memory 60 %. The same seed gives the same trace.
    """
    key = key_of(seed, "synthetic-day")
    rows = []
    for step in range(_STEPS_PER_DAY):
        hour = step * 24 / _STEPS_PER_DAY
        height = (1 - cos(2 * pi * (hour - 4) / 24)) / 2
        jitter_ppm = uniform(mix(key, step), -_JITTER_PPM, _JITTER_PPM)
        cpu_ppm = _VALLEY_PPM + round((_PEAK_PPM - _VALLEY_PPM) * height) + jitter_ppm
        rows.append((step * _STEP_MS, cpu_ppm, _MEMORY_PPM))
    series = series_from_rows("synthetic-day", rows, DEFAULT_GAP_LIMIT_MS)
    return LoadTrace((series,), "synthetic day", is_fleet_mean=True, is_synthetic=True)
