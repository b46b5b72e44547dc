"""How often a service lets its core check itself."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any

from colo_common.events.effects import Effect
from colo_common.runtime.core_runner import CoreRunner
from colo_common.runtime.inbox import Inbox
from colo_common.runtime.intake import Intake
from colo_common.runtime.metrics import Metrics, ServiceMetrics
from colo_common.runtime.stamp import Stamp
from tests.support.vloop import VirtualClock, run_virtual

TURN_S = 0.01


class Core:
    """Decides nothing; each of its checks takes so much of a processor."""

    def __init__(self, check_s: float = 0.0) -> None:
        self.checked_at_s: list[float] = []
        self._check_s = check_s

    def handle(self, event: Any, now_ms: int) -> list[Effect]:
        del event, now_ms
        return []

    def deadline_ms(self) -> int | None:
        return None

    def check(self) -> None:
        self.checked_at_s.append(asyncio.get_running_loop().time())
        end_s = time.perf_counter() + self._check_s
        while time.perf_counter() < end_s:
            pass


def checked_at_s(core: Core, run_s: float) -> list[float]:
    """When the core was checked while the service took turns without a pause."""

    async def run() -> None:
        clock, metrics = VirtualClock(), ServiceMetrics(Metrics(), "test")
        intake = Intake(Inbox(10), "b1", metrics)
        turns = CoreRunner("test", core, clock, Stamp("test", "b1", clock), None, None, intake, metrics)
        for _ in range(round(run_s / TURN_S)):
            await turns.take([])
            await asyncio.sleep(TURN_S)

    run_virtual(run())
    return core.checked_at_s


def test_a_busy_core_is_checked_twice_a_second() -> None:
    times = checked_at_s(Core(), 10)
    gaps_s = [later - sooner for sooner, later in pairwise(times)]
    assert times[0] == 0
    # A machine that pauses in a check makes it look long, and the next one comes later.
    assert 0.5 <= min(gaps_s) < 0.5 + 2 * TURN_S


def test_a_check_that_takes_long_comes_seldom_enough_to_take_half_a_percent_of_the_time() -> None:
    first, second, *_ = checked_at_s(Core(check_s=0.01), 60)
    assert second - first >= 2
