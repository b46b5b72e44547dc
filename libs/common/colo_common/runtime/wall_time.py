"""The wall clock at a moment of a service's clock, which in a lab runs faster and not always equally fast."""

from colo_common.ports import Clock

__all__ = ["wall_us_at"]


def wall_us_at(clock: Clock, at_ms: int) -> int:
    """Unix microseconds of the wall clock when the clock showed `at_ms`, now for a later time.

    Exact while the clock has kept its pace since; a change of the pace in between moves it by the difference over that span alone.
    """
    return clock.wall_us() - int(clock.real_s(max(clock.now_ms() - at_ms, 0)) * 1_000_000)
