"""The wall clock at a moment of a lab's clock, whose pace changes."""

from __future__ import annotations

from pathlib import Path

from colo_common.adapters.clock import SystemClock
from colo_common.adapters.clock_pace import ClockPace, Pace
from colo_common.runtime.wall_time import wall_us_at


def test_a_moment_is_brought_back_to_the_wall_by_the_pace_of_now_and_not_by_that_of_the_beginning(
    tmp_path: Path,
) -> None:
    wall_ms = SystemClock().now_ms()
    # Ten seconds ago at 60 times the wall; since then the lab has lost an hour against that, and runs at 6.
    pace = ClockPace.create(tmp_path / "pace", Pace(wall_ms - 1_000, 5_000_000_000_000, 6.0))
    clock = SystemClock(60, wall_ms - 10_000, pace)
    at_ms = clock.now_ms() - 3_000
    before_us = clock.wall_us()
    assert abs(wall_us_at(clock, at_ms) - (before_us - 500_000)) < 100_000
    assert abs(wall_us_at(clock, clock.now_ms() + 60_000) - clock.wall_us()) < 100_000
