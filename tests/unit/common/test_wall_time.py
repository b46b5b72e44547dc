"""The wall clock at a moment of a lab's clock, whose pace changes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from colo_common.adapters.clock import SystemClock
from colo_common.adapters.clock_pace import ClockPace, Pace
from colo_common.runtime.wall_time import wall_us_at


def test_a_moment_is_brought_back_to_the_wall_by_the_pace_of_now_and_not_by_that_of_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The clock of the machine stands still, so that all of it is said of one moment.
    now_ns = 1_000_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns - 300_000_000_000)
    wall_ms = SystemClock().now_ms()
    # Ten seconds ago at 60 times the wall; since then the lab has lost an hour against that, and runs at 6.
    pace = ClockPace.create(tmp_path / "pace", Pace(wall_ms - 1_000, 5_000_000_000_000, 6.0))
    clock = SystemClock(60, wall_ms - 10_000, pace)
    assert wall_us_at(clock, clock.now_ms() - 3_000) == clock.wall_us() - 500_000
    assert wall_us_at(clock, clock.now_ms() + 60_000) == clock.wall_us()
