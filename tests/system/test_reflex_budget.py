"""The budget of the reflex on this machine's kernel: from the first reading over the threshold until the kernel shows the quota.

Needs root, and leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from colo_common.adapters.clock import SystemClock
from colo_common.events.enforcement import ZoneCeiling
from colo_common.model.percentile import percentile
from colo_common.model.workload import RunSpec
from colo_common.runtime.metrics import Metrics
from colo_executor.cgroup import CgroupTree
from colo_executor.lease import LeasePolicy
from colo_executor.local import CeilingRefused, CeilingWritten, FastReading
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from colo_executor.reflex_policy import ReflexPolicy
from colo_executor.shell import ExecutorShell
from colo_executor.suppress import SuppressPolicy, target_mcpu
from tests.support.adopted import AS_ROOT
from tests.support.builders import a_placement
from tests.support.standstill import Standstill
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(300)]

ROOT: Final = "/sys/fs/cgroup"
PERIOD_MS: Final = 20
LEASE_MS: Final = 600_000
BUDGET_MS: Final = 100.0
READINGS_ALIKE: Final = 5
# Growth without patience, so that every load finds a high ceiling.
SUPPRESS: Final = SuppressPolicy(
    threshold_pct=90, grow_hold_ms=0, grow_interval_ms=0, grow_step_pct=100, reversals_most=1_000_000, floor_mcpu=100
)


class TimedRuntime(ProcessRuntime):
    """Notes when each fast reading began, and when the kernel showed each new quota."""

    def __init__(self, policy: ProcessPolicy) -> None:
        super().__init__(policy)
        self.readings: list[tuple[float, FastReading]] = []
        self.shown: list[tuple[float, int]] = []
        self._tree = CgroupTree(ROOT, policy.subtree)

    def read_fast(self, now_ms: int) -> FastReading | None:
        begun_s = time.monotonic()
        reading = self.felt(super().read_fast(now_ms))
        if reading is not None:
            self.readings.append((begun_s, reading))
        return reading

    def felt(self, reading: FastReading | None) -> FastReading | None:
        """What the reflex is told."""
        return reading

    def set_ceiling(
        self, ceiling_mcpu: int, zones: tuple[ZoneCeiling, ...] | None = None, *, has_whole_cores: bool = False
    ) -> CeilingWritten | CeilingRefused:
        written = super().set_ceiling(ceiling_mcpu, zones, has_whole_cores=has_whole_cores)
        quota_mcpu = self._tree.quota_us("batch") // 100
        self.shown.append((time.monotonic(), quota_mcpu))
        return written

    def is_over(self, reading: FastReading) -> bool:
        """Whether batch work may no longer have half of the node."""
        target = target_mcpu(SUPPRESS, reading.capacity_mcpu, reading.online_used_mcpu, reading.system_used_mcpu)
        return target <= self.capacity_mcpu // 2

    def reactions_ms(self, machine: Standstill) -> list[float]:
        """For each first reading over the threshold: until the kernel showed half of the node or less, while the machine ran.

        The last readings are left out: the reflex may have ended before it could answer them.
        """
        found = []
        was_over = True
        for begun_s, reading in self.readings[:-READINGS_ALIKE]:
            is_over = self.is_over(reading)
            if is_over and not was_over:
                ends = (end_s for end_s, mcpu in self.shown if end_s > begun_s and mcpu <= self.capacity_mcpu // 2)
                shown_s = next(ends, float("inf"))
                found.append((shown_s - begun_s - machine.lost_s(begun_s, shown_s)) * 1_000)
            was_over = is_over
        return found


class SwayingRuntime(TimedRuntime):
    """Online work takes nothing and everything by turns: the reading is real, and so is the time it takes, but for that number."""

    def __init__(self, policy: ProcessPolicy) -> None:
        super().__init__(policy)
        self._is_over = itertools.cycle([False] * READINGS_ALIKE + [True] * READINGS_ALIKE)

    def felt(self, reading: FastReading | None) -> FastReading | None:
        if reading is None:
            return None
        return replace(reading, online_used_mcpu=reading.capacity_mcpu * next(self._is_over), system_used_mcpu=0)


@pytest.fixture
async def policy(tmp_path: Path) -> AsyncIterator[ProcessPolicy]:
    policy = ProcessPolicy(users=AS_ROOT, state_dir=str(tmp_path / "state"), subtree=f"colo-budget-{os.getpid()}")
    yield policy
    assert not list(Path(ROOT).glob(f"*/{policy.subtree}*"))


@asynccontextmanager
async def reflex_of(runtime: ProcessRuntime) -> AsyncIterator[None]:
    """The reflex as the executor runs it, beside batch work that uses nothing: its presence makes the reflex look every period."""
    # Nobody renews the lease here: it is longer than the test.
    policy = ReflexPolicy(rule="usage", suppress=SUPPRESS, lease=LeasePolicy(default_ms=LEASE_MS, most_ms=LEASE_MS))
    shell = ExecutorShell(runtime, SystemClock(), policy=policy, period_ms=PERIOD_MS, metrics=Metrics())
    await shell.load()
    loop = asyncio.create_task(shell.run_reflex())
    try:
        await runtime.launch(replace(a_placement(), run=RunSpec(command=("sleep", "600"))), 1)
        yield
    finally:
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        await runtime.restore()
        await runtime.close()


def show(what: str, values_ms: Sequence[float]) -> None:
    shown = ", ".join(
        f"{name} {percentile(values_ms, pct):.2f} ms" for name, pct in (("p50", 50), ("p99", 99), ("max", 100))
    )
    sys.stdout.write(f"{what}: {shown} of {len(values_ms)}\n")


async def test_a_reading_over_the_threshold_is_in_the_kernel_within_the_budget_whatever_else_runs(
    policy: ProcessPolicy,
) -> None:
    runtime = SwayingRuntime(policy)
    with Standstill() as machine:
        async with reflex_of(runtime):

            async def swayed() -> bool:
                return len(runtime.readings) > 2 * READINGS_ALIKE * 101

            await eventually(swayed, "a hundred loads", limit_s=200)
    took_ms = runtime.reactions_ms(machine)
    show("reading over the threshold -> quota shown", took_ms)
    assert len(took_ms) >= 100
    assert percentile(took_ms, 99) <= BUDGET_MS
