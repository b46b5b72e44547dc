"""How often a service lets its core check itself."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any

import pytest

from colo_common.events.effects import Effect
from colo_common.runtime.core_runner import CoreRunner
from colo_common.runtime.inbox import Inbox
from colo_common.runtime.intake import Intake
from colo_common.runtime.metrics import Metrics, ServiceMetrics
from colo_common.runtime.stamp import Stamp
from tests.support.vloop import Stopwatch, VirtualClock, run_virtual

BATCH_S = 0.01


class Core:
    """Decides nothing; each check takes `check_s` of processor time."""

    def __init__(self, stopwatch: Stopwatch, check_s: float) -> None:
        self.checked_at_s: list[float] = []
        self._stopwatch = stopwatch
        self._check_s = check_s

    def handle(self, event: Any, now_ms: int) -> list[Effect]:
        del event, now_ms
        return []

    def deadline_ms(self) -> int | None:
        return None

    def check(self) -> None:
        self.checked_at_s.append(asyncio.get_running_loop().time())
        self._stopwatch.work(self._check_s)


def check_gaps_s(monkeypatch: pytest.MonkeyPatch, *, check_s: float, run_s: float) -> list[float]:
    """The spans between checks of a core while batches ran without a pause; the first check is in the first batch."""
    stopwatch = Stopwatch()
    monkeypatch.setattr(time, "perf_counter", stopwatch)
    core = Core(stopwatch, check_s)

    async def run() -> None:
        clock, metrics = VirtualClock(), ServiceMetrics(Metrics(), "test")
        intake = Intake(Inbox(10), "b1", metrics)
        runner = CoreRunner("test", core, clock, Stamp("test", "b1", clock), None, None, intake, metrics)
        for _ in range(round(run_s / BATCH_S)):
            await runner.run_batch([])
            await asyncio.sleep(BATCH_S)

    run_virtual(run())
    assert core.checked_at_s[0] == 0
    return [later - sooner for sooner, later in pairwise(core.checked_at_s)]


# A check that is due between two batches comes with the later one.
@pytest.mark.parametrize(
    ("check_s", "gap_s"),
    [(0.0, 0.5), (0.0025, 0.5), (0.005, 1.0), (0.01, 2.0), (0.1, 20.0)],
    ids=["no time", "half a percent of half a second", "twice that", "ten milliseconds", "a tenth of a second"],
)
def test_a_busy_core_is_checked_twice_a_second_and_no_more_than_half_a_percent_of_the_time(
    monkeypatch: pytest.MonkeyPatch, check_s: float, gap_s: float
) -> None:
    gaps_s = check_gaps_s(monkeypatch, check_s=check_s, run_s=60)
    assert len(gaps_s) >= 2
    assert gap_s - BATCH_S / 2 < min(gaps_s) <= max(gaps_s) <= gap_s + BATCH_S
