"""The system clock, which may run faster in a lab."""

import time

from colo_common.adapters.clock_pace import ClockPace
from colo_common.model.invalid import InvalidInput

__all__ = ["SystemClock"]


class SystemClock:
    """The wall clock as it was when this object was made, counted on by the monotonic clock: it never steps.

    With `speed` above 1, now = origin + (wall - origin) x speed, rounded down: a lab's fast clock. Processes that share `speed` and
    `origin_ms`, or a `pace`, which may change while they run, share the time. A change of the machine's wall
    clock, forward or back, changes no time of a running process; a process that starts later has the new time. The monotonic clock
    follows the corrections of a time server that are no steps. Raises InvalidInput for a speed that is not above 0, or for a
    scaled clock without an origin.
    """

    def __init__(self, speed: float = 1.0, origin_ms: int = 0, pace: ClockPace | None = None) -> None:
        if not 0 < speed < float("inf"):
            raise InvalidInput("clock_speed", "must be above 0", speed)
        if speed != 1.0 and origin_ms <= 0:
            raise InvalidInput(
                "clock_origin_ms", "a scaled clock needs the moment at which it equalled the wall clock", origin_ms
            )
        self._speed = speed
        self._origin_ms = origin_ms
        self._pace = pace
        self._last_ms = 0
        self._ahead_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """Unix milliseconds, scaled."""
        wall_ms = (time.monotonic_ns() + self._ahead_ns) // 1_000_000
        if self._pace is not None:
            since_ms, now_ms, speed = self._pace.read()
            self._last_ms = max(self._last_ms, now_ms + int((wall_ms - since_ms) * speed))
            return self._last_ms
        if self._speed == 1.0:
            return wall_ms
        return self._origin_ms + int((wall_ms - self._origin_ms) * self._speed)

    def wall_us(self) -> int:
        """Unix microseconds of the wall clock."""
        return time.time_ns() // 1000

    def real_s(self, span_ms: int) -> float:
        """Real seconds until `span_ms` of this clock have passed; at least 0."""
        speed = self._speed if self._pace is None else self._pace.read().speed
        return max(0.0, span_ms / 1000 / speed)
