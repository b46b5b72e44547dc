"""How fast the lab's clock may run: as fast as asked while the machine keeps up, else as fast as it can."""

import time
from pathlib import Path
from typing import Final

from colo_common.adapters.clock import SystemClock
from colo_common.adapters.clock_pace import ClockPace, Pace

__all__ = ["LabClock", "next_speed"]

_LATE_PERIODS: Final = 3.0
_ON_TIME_PERIODS: Final = 2.0
_SLOWER: Final = 0.8
_FASTER: Final = 1.05


def next_speed(speed: float, *, asked: float, late_periods: float) -> float:
    """The speed for the next moment, between 1 and `asked`. `late_periods`: the age of the oldest node's sample in sample periods.

    Above 3 periods it falls by a fifth, below 2 it rises by a twentieth.
    """
    if late_periods > _LATE_PERIODS:
        return max(1.0, speed * _SLOWER)
    if late_periods < _ON_TIME_PERIODS:
        return min(asked, speed * _FASTER)
    return speed


class LabClock:
    """The simulated clock of all processes of a lab, through a pace file in its directory. It starts at the present wall time."""

    def __init__(self, directory: Path, speed: int) -> None:
        self.origin_ms = time.time_ns() // 1_000_000
        self.path = directory / "clock"
        self.asked = speed
        self.slowest = float(speed)
        self._pace = ClockPace.create(self.path, Pace(self.origin_ms, self.origin_ms, float(speed)))
        self.clock = SystemClock(float(speed), self.origin_ms, self._pace)

    @property
    def speed(self) -> float:
        """Simulated seconds a second now."""
        return self._pace.read().speed

    def adjust(self, late_periods: float) -> None:
        """Slow down, or speed up again, by how late the oldest sample is."""
        speed = self.speed
        wanted = next_speed(speed, asked=float(self.asked), late_periods=late_periods)
        if wanted == speed:
            return
        wall_ms = time.time_ns() // 1_000_000
        self._pace.write(Pace(wall_ms, self.clock.now_ms(), wanted))
        self.slowest = min(self.slowest, wanted)
