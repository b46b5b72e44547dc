"""The watchdog: an executor that stands still or dies leaves batch work at the floor."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_common.model.workload import ResourceLimits, RunSpec
from colo_executor.cgroup import CgroupTree
from colo_executor.knob_table import UNLIMITED
from colo_executor.local import CeilingWritten, ReplicaLaunched
from colo_executor.process.machine import start_ticks
from colo_executor.process.settings import ProcessPolicy
from colo_executor.process.watched import Watched
from colo_executor.settings import ExecutorSettings
from colo_executor.suppress import SuppressPolicy
from tests.support.adopted import adopted
from tests.support.builders import a_placement
from tests.support.waiting import eventually, eventually_blocking

ROOT = "/sys/fs/cgroup"
FLOOR_US = 20_000


@pytest.mark.kernel
async def test_who_stands_still_loses_the_ceiling_and_grows_again_from_the_floor(tmp_path: Path) -> None:
    policy = ProcessPolicy(state_dir=str(tmp_path / "state"), subtree=f"colo-watched-{os.getpid()}")
    async with adopted(policy) as runtime:
        limited = RunSpec(command=("sleep", "60"), limits=ResourceLimits(cpu_mcpu=1_000))
        unlimited = RunSpec(command=("sleep", "60"))
        for index, run in enumerate((limited, unlimited)):
            launched = await runtime.launch(replace(a_placement(f"job/main/{index}", mcpu=500), run=run), 1)
            assert isinstance(launched, ReplicaLaunched)
        assert isinstance(runtime.set_ceiling(1_500), CeilingWritten)
        tree = CgroupTree(ROOT, policy.subtree)
        watched = Watched(runtime.quota_path, FLOOR_US, 500)

        async def is_down() -> bool:
            # Nobody beats: cgroup v1 takes no quota below that of a group inside, so these go first.
            return tree.quota_us("batch") == FLOOR_US == tree.quota_us("batch/job.main.0@1")

        await eventually(is_down, "the floor")
        assert runtime.read_ceiling() == 200
        # It looks no more, and writes no more.
        await watched.leave()
        assert isinstance(runtime.set_ceiling(1_200), CeilingWritten)
        assert (tree.quota_us("batch"), tree.quota_us("batch/job.main.0@1")) == (120_000, 100_000)
        assert tree.quota_us("batch/job.main.1@1") == UNLIMITED


BEATS = """
import sys, time
from colo_executor.process.watched import Watched
watched = Watched(sys.argv[1], 20000, 500)
print(watched.pid, flush=True)
while True:
    watched.beat()
    time.sleep(0.02)
"""


@pytest.mark.parametrize(
    ("name", "before", "after"), [("cpu.max", "max 100000", "20000 100000"), ("cpu.cfs_quota_us", "-1", "20000")]
)
def test_who_is_killed_is_followed_by_the_floor_and_nobody_stays(
    tmp_path: Path, name: str, before: str, after: str
) -> None:
    inner, lower, unlimited = (tmp_path / f"job.main.{replica}@1" for replica in range(3))
    for directory, text in (
        (tmp_path, before),
        (inner, before.replace(before.split(maxsplit=1)[0], "90000", 1)),
        (lower, before.replace(before.split(maxsplit=1)[0], "5000", 1)),
        (unlimited, before),
    ):
        directory.mkdir(exist_ok=True)
        (directory / name).write_text(f"{text}\n")
    executor = subprocess.Popen([sys.executable, "-c", BEATS, str(tmp_path / name)], stdout=subprocess.PIPE, text=True)
    assert executor.stdout is not None
    pid = int(executor.stdout.readline())
    executor.send_signal(signal.SIGKILL)
    executor.wait()
    executor.stdout.close()
    eventually_blocking(lambda: start_ticks("/proc", pid) is None, "the watchdog to end")
    assert [(directory / name).read_text().strip() for directory in (tmp_path, inner)] == [after, after]
    assert (lower / name).read_text().startswith("5000")
    assert (unlimited / name).read_text().strip() == before


def test_what_was_refused_is_tried_again_after_the_executor_is_gone(tmp_path: Path) -> None:
    quota = tmp_path / "cpu.max"
    # A kernel that refuses the write: no process may open a directory for writing.
    quota.mkdir()
    executor = subprocess.Popen([sys.executable, "-c", BEATS, str(quota)], stdout=subprocess.PIPE, text=True)
    assert executor.stdout is not None
    pid = int(executor.stdout.readline())
    executor.send_signal(signal.SIGKILL)
    executor.wait()
    executor.stdout.close()
    # Late after 500 ms, and refused a few times since then.
    over_s = time.monotonic() + 1.0
    eventually_blocking(lambda: time.monotonic() > over_s, "a few looks")
    assert start_ticks("/proc", pid) is not None
    quota.rmdir()
    quota.write_text("max 100000\n")
    eventually_blocking(lambda: start_ticks("/proc", pid) is None, "the watchdog to end")
    assert quota.read_text().strip() == "20000 100000"


@pytest.mark.parametrize(("floor_pct", "floor_us"), [(0, 20_000), (20, 160_000)])
def test_its_floor_is_the_floor_of_the_reflex(floor_pct: int, floor_us: int) -> None:
    assert ExecutorSettings(suppress=SuppressPolicy(floor_pct=floor_pct)).floor_us(8_000) == floor_us


async def test_a_watchdog_that_ended_is_followed_by_another_one(tmp_path: Path) -> None:
    quota = tmp_path / "cpu.max"
    quota.write_text("max 100000\n")
    watched = Watched(str(quota), FLOOR_US, 500)
    looks_after = asyncio.create_task(watched.look_after())
    try:
        first = watched.pid
        os.kill(first, signal.SIGKILL)

        async def is_another() -> bool:
            return watched.pid not in (0, first)

        async def is_down() -> bool:
            return quota.read_text().strip() == "20000 100000"

        await eventually(is_another, "another watchdog")
        # Nobody beats.
        await eventually(is_down, "the floor")
    finally:
        looks_after.cancel()
        last = watched.pid
        await watched.leave()
    assert start_ticks("/proc", last) is None
