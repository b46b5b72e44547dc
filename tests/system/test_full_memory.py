"""Counters of resctrl that say that memory is full: the kernel shows less for batch work, and more again in calm. Needs root."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from colo_common.adapters.clock import SystemClock
from colo_common.model.workload import RunSpec
from colo_common.runtime.metrics import Metrics
from colo_executor.bandwidth import BandwidthPolicy
from colo_executor.cgroup import CgroupTree
from colo_executor.lease import LeasePolicy
from colo_executor.local import FastReading, ReplicaLaunched
from colo_executor.process import bandwidth_reader
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from colo_executor.reflex_policy import ReflexPolicy
from colo_executor.shell import ExecutorShell
from colo_executor.suppress import SuppressPolicy
from tests.support.adopted import AS_ROOT
from tests.support.builders import a_placement
from tests.support.resctrl_tree import ResctrlTree
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(200)]

ROOT: Final = "/sys/fs/cgroup"
GB: Final = 1_000_000_000
#: Growth needs no patience.
SUPPRESS: Final = SuppressPolicy(
    threshold_pct=100, floor_pct=0, grow_hold_ms=0, grow_interval_ms=0, reversals_most=1_000_000, floor_mcpu=100
)
BANDWIDTH: Final = BandwidthPolicy(zone_bytes_per_s=10 * GB, blamed_pct=0, excuse_after_ms=600_000)


class IdleRuntime(ProcessRuntime):
    """Reads the machine, on which nothing but batch work uses a CPU: whatever else runs here limits nothing."""

    def read_fast(self, now_ms: int) -> FastReading | None:
        reading = super().read_fast(now_ms)
        return None if reading is None else replace(reading, online_used_mcpu=0, system_used_mcpu=0)


class Traffic:
    """Counters that grow with the time, as fast as `gb_per_s` says."""

    def __init__(self, tree: ResctrlTree) -> None:
        self.tree = tree
        self.gb_per_s = 1.0
        self._at_s = time.monotonic()

    def pass_by(self) -> None:
        now_s = time.monotonic()
        self.tree.add({("", "mon_L3_00"): int((now_s - self._at_s) * self.gb_per_s * GB)})
        self._at_s = now_s


def a_sys(root: Path) -> Path:
    """The machine's /sys but for /sys/fs."""
    made = root / "sys"
    (made / "fs").mkdir(parents=True)
    for entry in Path("/sys").iterdir():
        if entry.name != "fs":
            (made / entry.name).symlink_to(entry)
    return made


async def test_a_full_zone_lowers_the_quota_in_the_kernel_and_calm_gives_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sys_root = a_sys(tmp_path)
    traffic = Traffic(ResctrlTree(tmp_path, "mon_L3_00"))
    # The only thing that a directory lacks to be a mount of resctrl.
    monkeypatch.setattr(bandwidth_reader, "file_systems_of", lambda *_: frozenset({"resctrl"}))
    policy = ProcessPolicy(
        users=AS_ROOT,
        state_dir=str(tmp_path / "state"),
        subtree=f"colo-memory-{os.getpid()}",
        sys_root=str(sys_root),
    )
    runtime = IdleRuntime(policy, reads_memory=True)
    metrics = Metrics()
    reflex = ReflexPolicy(
        rule="usage",
        suppress=SUPPRESS,
        bandwidth=BANDWIDTH,
        lease=LeasePolicy(default_ms=600_000, most_ms=600_000),
    )
    shell = ExecutorShell(runtime, SystemClock(), policy=reflex, period_ms=20, metrics=metrics)
    await shell.load()
    loop = asyncio.create_task(shell.run_reflex())
    tree = CgroupTree(ROOT, policy.subtree)

    def figure(name: str, **labels: str) -> float:
        return metrics.registry.get_sample_value(f"colo_executor_{name}", labels) or 0

    try:
        replica = replace(a_placement(), run=RunSpec(command=("sleep", "600")))
        assert isinstance(await runtime.launch(replica, 1), ReplicaLaunched)

        async def is_full() -> bool:
            traffic.pass_by()
            is_seen = figure("memory_traffic_bytes_per_s", zone="0") >= 8.5 * GB
            has_moved = figure("reflex_moves_total", reason="memory-bandwidth") >= 1
            return is_seen and has_moved and tree.quota_us("batch") == 10_000

        async def is_calm() -> bool:
            traffic.pass_by()
            has_moved = figure("reflex_moves_total", reason="memory-bandwidth-fell") >= 1
            return has_moved and tree.quota_us("batch") > 20_000

        traffic.gb_per_s = 9.5
        await eventually(is_full, "batch work is at its floor", limit_s=60)
        traffic.gb_per_s = 2.0
        await eventually(is_calm, "batch work has CPU again", limit_s=60)
    finally:
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        await runtime.restore()
        await runtime.close()
    assert not list(Path(ROOT).glob(f"*/{policy.subtree}*"))
