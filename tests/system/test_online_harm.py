"""What online work feels beside batch work in real control groups of this kernel. Needs root, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from colo_common.adapters.clock import SystemClock
from colo_common.model.workload import RunSpec
from colo_common.runtime.metrics import Metrics
from colo_executor.cgroup import CgroupTree
from colo_executor.desired import DesiredPolicy
from colo_executor.lease import LeasePolicy
from colo_executor.local import FastReading, ReplicaLaunched
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from colo_executor.reflex_policy import ReflexPolicy
from colo_executor.shell import ExecutorShell
from colo_executor.suppress import SuppressPolicy
from tests.support.adopted import AS_ROOT
from tests.support.builders import a_placement
from tests.support.online_service import COPY, CPUS, ROOT, SPIN, online_service, per_mille
from tests.support.quiet import NeverQuiet, cpu_time
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(300)]

LEASE: Final = LeasePolicy(default_ms=600_000, most_ms=600_000)
WINDOW_S: Final = 1.5
WINDOWS: Final = 12
#: A window's first part belongs to the change, not to the window.
LEFT_OUT_S: Final = 0.3
P50_RATIO_MOST: Final = 1.5
P99_RATIO_MOST: Final = 2.0
#: A tick of the kernel: what one wake-up may cost on any machine.
P99_MORE_US: Final = 4_000
BATCH_SHARE_LEAST: Final = 0.5
#: So often a span is measured again when other programs were busy in it.
SPANS_MOST: Final = 20


class Node:
    """An executor's runtime and reflex with batch work on every CPU."""

    def __init__(self, runtime: ProcessRuntime, shell: ExecutorShell, subtree: str) -> None:
        self.runtime = runtime
        self.shell = shell
        self.tree = CgroupTree(ROOT, subtree)

    def batch_s(self) -> float:
        """CPU time of batch work."""
        return self.tree.cpu_used_us("batch") / 1e6

    def signal(self, number: signal.Signals) -> None:
        """Send the signal to every process of batch work."""
        for name in self.tree.children("batch"):
            for pid in self.tree.pids(f"batch/{name}"):
                # A shell starts others for a moment.
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    def last_reading(self) -> FastReading | None:
        """What the reflex read last."""
        return self.runtime.read_fast(SystemClock().now_ms())


@asynccontextmanager
async def node(tmp_path: Path, policy: ReflexPolicy, *, idle: bool) -> AsyncIterator[Node]:
    """Batch work that spins and copies memory; the reflex waits for `run_reflex`."""
    subtree = f"colo-harm-{os.getpid()}"
    desired = DesiredPolicy(idle=idle)
    runtime = ProcessRuntime(
        ProcessPolicy(users=AS_ROOT, state_dir=str(tmp_path / "state"), subtree=subtree, desired=desired)
    )
    shell = ExecutorShell(runtime, SystemClock(), policy=policy, period_ms=20, metrics=Metrics())
    await shell.load()
    try:
        for number, script in enumerate((*[SPIN] * CPUS, COPY)):
            run = RunSpec(command=(sys.executable, "-c", script))
            placement = replace(a_placement(f"job/main/{number}"), run=run, memory_bytes=256 << 20)
            assert isinstance(await runtime.launch(placement, 1), ReplicaLaunched)
        yield Node(runtime, shell, subtree)
    finally:
        await runtime.restore()
        await runtime.close()
    assert not list(Path(ROOT).glob(f"*/{subtree}*"))


@asynccontextmanager
async def reflex_of(made: Node) -> AsyncIterator[None]:
    loop = asyncio.create_task(made.shell.run_reflex())
    try:
        yield
    finally:
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)


async def pause(seconds: float) -> None:
    """Wait for a moment of the monotonic clock: the length of a measurement, not of a hope."""
    until_s = time.monotonic() + seconds

    async def is_over() -> bool:
        return time.monotonic() >= until_s

    await eventually(is_over, "the end of a window", limit_s=seconds + 30)


def idle_s() -> float:
    """CPU time in which no process of the machine wanted a CPU, since it started."""
    time_of = cpu_time()
    return (time_of.total - time_of.busy) / os.sysconf("SC_CLK_TCK")


def within(took: Sequence[tuple[float, int]], spans: Sequence[tuple[float, float]]) -> list[int]:
    """What the requests took that were due within the spans."""
    return [took_us for due_s, took_us in took if any(begun_s <= due_s < end_s for begun_s, end_s in spans)]


@pytest.mark.parametrize("way", ["idle", "weight"])
async def test_a_probe_feels_batch_work_hardly_and_batch_work_gets_what_is_left(tmp_path: Path, way: str) -> None:
    policy = ReflexPolicy(rule="auto", lease=LEASE)
    async with node(tmp_path, policy, idle=way == "idle") as made, reflex_of(made):
        seconds = WINDOW_S * (WINDOWS + 1)
        with online_service(f"online-harm-{os.getpid()}", seconds, low=0.3, high=0.3) as probe:
            output = asyncio.create_task(asyncio.to_thread(probe.communicate))
            await pause(WINDOW_S / 2)
            edges, batch_s, idle = [time.monotonic()], [made.batch_s()], [idle_s()]
            for number in range(WINDOWS):
                made.signal(signal.SIGCONT if number % 2 else signal.SIGSTOP)
                await pause(WINDOW_S)
                edges.append(time.monotonic())
                batch_s.append(made.batch_s())
                idle.append(idle_s())
            reading = made.last_reading()
            took = json.loads((await output)[0])["took_us"]
        # The kernel has pressure files and makes batch work give way, so what online work feels decides.
        assert made.shell.reflex is not None
        assert made.shell.reflex.rule == "stall"
    spans = [(begun_s + LEFT_OUT_S, end_s) for begun_s, end_s in pairwise(edges)]
    alone, shared = within(took, spans[::2]), within(took, spans[1::2])
    ran_s = sum(later - first for number, (first, later) in enumerate(pairwise(batch_s)) if number % 2)
    # What the whole machine left, not the online service alone: other programs run here, and batch work yields to these too.
    left_s = ran_s + sum(later - first for first, later in list(pairwise(idle))[1::2])
    sys.stdout.write(
        f"p50 {per_mille(alone, 500)} -> {per_mille(shared, 500)} us, p99 {per_mille(alone, 990)} -> "
        f"{per_mille(shared, 990)} us of {len(shared)} requests; batch had {ran_s:.1f} of {left_s:.1f} CPU s\n"
    )
    assert reading is not None
    assert reading.low_priority == way
    assert len(alone) > 100 < len(shared)
    assert per_mille(shared, 500) <= per_mille(alone, 500) * P50_RATIO_MOST
    assert per_mille(shared, 990) <= per_mille(alone, 990) * P99_RATIO_MOST + P99_MORE_US
    assert ran_s >= left_s * BATCH_SHARE_LEAST


async def test_without_the_idle_class_batch_work_keeps_below_what_online_work_leaves(tmp_path: Path) -> None:
    suppress = SuppressPolicy(threshold_pct=70, floor_mcpu=100)
    # Of 70 % online work has 50: a fifth of the machine is batch work's, and a tenth is allowed for the time that the reflex takes.
    most = CPUS * 0.3
    async with node(tmp_path, ReflexPolicy(rule="usage", suppress=suppress, lease=LEASE), idle=False) as made:

        async def share() -> float:
            """CPUs that batch work has, in a span in which the rest of the machine leaves a quarter more than it may have."""
            for _ in range(SPANS_MOST):
                begun_s, used_s, unused_s = time.monotonic(), made.batch_s(), idle_s()
                await pause(3.0)
                took_s, had_s = time.monotonic() - begun_s, made.batch_s() - used_s
                if had_s + idle_s() - unused_s >= 1.25 * most * took_s:
                    return had_s / took_s
            raise NeverQuiet("other programs leave too little of the machine to show anything")

        with online_service(f"online-harm-{os.getpid()}", 150, low=0.5, high=0.5):
            await pause(1.0)
            free = await share()
            async with reflex_of(made):
                await pause(2.0)
                held = await share()
    sys.stdout.write(f"batch work has {free:.2f} CPUs, under the reflex {held:.2f}\n")
    assert free > most, "without the reflex it takes more, or this test shows nothing"
    assert held <= most
