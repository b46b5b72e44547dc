"""The use of the node, of its system and of each class over 5, 10 and 30 minutes: average, percentiles and peak."""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import Struct

from colo_collector.readings import SampleRead
from colo_common.events.node import UsageWindow
from colo_common.model.sketch import Sketch

__all__ = ["WINDOWS_MS", "UsageWindows"]

WINDOWS_MS: Final = (300_000, 600_000, 1_800_000)
STEP_MS: Final = 30_000
"""A window moves by so much, and windows are published once in it."""
_STEPS_MAX: Final = WINDOWS_MS[-1] // STEP_MS
_PCTS: Final = (50, 90, 95, 99)
NODE: Final = "node"
SYSTEM: Final = "system"


class _Step(Struct, kw_only=True):
    began_ms: int
    of: dict[tuple[str, str], Sketch]


class UsageWindows:
    """Sixty steps of sketches; time is the machine's monotonic clock, so that setting the clock moves nothing."""

    def __init__(self) -> None:
        self._steps: deque[_Step] = deque(maxlen=_STEPS_MAX + 1)

    def take(self, sample: SampleRead) -> tuple[UsageWindow, ...]:
        """Add a sample. Once a step, the windows that end with the step before it; else ()."""
        now_ms = sample.monotonic_ms
        found: tuple[UsageWindow, ...] = ()
        if not self._steps or now_ms - self._steps[-1].began_ms >= STEP_MS or now_ms < self._steps[-1].began_ms:
            if self._steps and now_ms < self._steps[-1].began_ms:
                self._steps.clear()
            found = self._windows(now_ms)
            self._steps.append(_Step(began_ms=now_ms, of={}))
        values = [
            (NODE, "cpu_mcpu", sample.cpu_used_mcpu),
            (NODE, "memory_bytes", sample.memory_used_bytes),
            (SYSTEM, "cpu_mcpu", sample.system_cpu_used_mcpu),
            (SYSTEM, "memory_bytes", sample.system_memory_used_bytes),
        ]
        for one in sample.classes:
            values.append((one.qos.value, "cpu_mcpu", one.cpu_used_mcpu))
            values.append((one.qos.value, "memory_bytes", one.memory_used_bytes))
            if one.stall_pct is not None:
                values.append((one.qos.value, "stall_pct", one.stall_pct))
        sketches = self._steps[-1].of
        for of, what, value in values:
            sketches.setdefault((of, what), Sketch()).add(value)
        return found

    def _windows(self, now_ms: int) -> tuple[UsageWindow, ...]:
        found = []
        for window_ms in WINDOWS_MS:
            steps = [step for step in self._steps if now_ms - step.began_ms <= window_ms]
            for of, what in sorted({key for step in steps for key in step.of}):
                merged = Sketch.merged(step.of[of, what] for step in steps if (of, what) in step.of)
                p50, p90, p95, p99 = merged.quantiles(_PCTS)
                found.append(
                    UsageWindow(
                        of=of,
                        what=what,
                        window_ms=window_ms,
                        samples=merged.count,
                        average=merged.average,
                        p50=p50,
                        p90=p90,
                        p95=p95,
                        p99=p99,
                        largest=merged.largest,
                    )
                )
        return tuple(found)
