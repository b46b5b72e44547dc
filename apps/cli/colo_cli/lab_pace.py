"""How fast the lab's clock may run: as fast as asked while the machine keeps up, else as fast as it can."""

import time
from pathlib import Path
from typing import Final

from colo_common.adapters.clock import SystemClock
from colo_common.adapters.clock_pace import ClockPace, Pace

__all__ = ["LabClock", "is_late", "next_speed"]

_LATE_PERIODS: Final = 3.0
_ON_TIME_PERIODS: Final = 2.0
_VERY_LATE_PERIODS: Final = 6.0
_SLOWER: Final = 0.9
_MUCH_SLOWER: Final = 0.5
_HELD: Final = 0.001
_FASTER: Final = 1.1
_STARTING: Final = 0.1
_GRACE_S: Final = 1.0


def next_speed(speed: float, *, asked: float, late_periods: float) -> float:
    """The speed for the next moment, between 1 and `asked`. `late_periods`: the age of the oldest node's sample in sample periods.

    Above 3 periods it falls by a tenth, above 6 by half, below 2 it rises by a tenth.
    """
    if is_late(late_periods):
        return max(1.0, speed * (_MUCH_SLOWER if late_periods > _VERY_LATE_PERIODS else _SLOWER))
    if late_periods < _ON_TIME_PERIODS:
        return min(asked, speed * _FASTER)
    return speed


def is_late(late_periods: float) -> bool:
    """Whether the clock must slow down."""
    return late_periods > _LATE_PERIODS


class LabClock:
    """The simulated clock of all processes of a lab, through a pace file in its directory.

    It starts at the present wall time, at a tenth of the speed asked for, because all services start at once; `begin` ends that.
    """

    def __init__(self, directory: Path, speed: int) -> None:
        self.origin_ms = time.time_ns() // 1_000_000
        self.path = directory / "clock"
        self.asked = speed
        self.slowest = float(speed)
        self._adjusts_from_s = 0.0
        starting = max(1.0, speed * _STARTING)
        self._pace = ClockPace.create(self.path, Pace(self.origin_ms, self.origin_ms, starting))
        self.clock = SystemClock(float(speed), self.origin_ms, self._pace)

    @property
    def speed(self) -> float:
        """Simulated seconds a second now."""
        return self._pace.read().speed

    def begin(self) -> None:
        """Run as fast as asked, for a second in any case: samples from before are late by the new speed."""
        self._set(float(self.asked))
        self._adjusts_from_s = time.monotonic() + _GRACE_S

    def hold(self) -> None:
        """Let time stand almost still."""
        self._set(_HELD)

    def adjust(self, late_periods: float) -> None:
        """Slow down, or speed up again, by how late the oldest sample is."""
        if time.monotonic() < self._adjusts_from_s:
            return
        wanted = next_speed(self.speed, asked=float(self.asked), late_periods=late_periods)
        self._set(wanted)
        self.slowest = min(self.slowest, wanted)

    def _set(self, speed: float) -> None:
        if speed != self.speed:
            self._pace.write(Pace(time.time_ns() // 1_000_000, self.clock.now_ms(), speed))
