"""An executor that only observes the ceiling: it lifts what an earlier one left, and nothing of it writes another: needs root."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_common.model.workload import RunSpec
from colo_executor.cgroup import CgroupTree
from colo_executor.knob_table import UNLIMITED
from colo_executor.local import CeilingWritten, ReplicaLaunched
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from tests.support.adopted import adopted
from tests.support.builders import a_placement
from tests.support.waiting import eventually

pytestmark = pytest.mark.kernel

ROOT = "/sys/fs/cgroup"
WATCHDOG_MS = 500


async def test_batch_work_is_let_go_and_not_starved_while_the_ceiling_is_only_observed(tmp_path: Path) -> None:
    policy = ProcessPolicy(state_dir=str(tmp_path / "state"), subtree=f"colo-observed-{os.getpid()}")
    tree = CgroupTree(ROOT, policy.subtree)
    first = ProcessRuntime(policy)
    await first.adopt(1)
    launched = await first.launch(replace(a_placement(mcpu=500), run=RunSpec(command=("sleep", "600"))), 1)
    assert isinstance(launched, ReplicaLaunched)
    assert isinstance(first.set_ceiling(200), CeilingWritten)
    await first.close()
    settings = {
        "observe": "ceiling",
        "watchdog-ms": WATCHDOG_MS,
        "process-state-dir": policy.state_dir,
        "process-subtree": policy.subtree,
        "http-port": -1,
        # Nobody is there: the service loads late.
        "nats-url": "nats://127.0.0.1:1",
    }
    words = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
    executor = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "colo_executor", *words, stderr=asyncio.subprocess.DEVNULL
    )
    try:

        async def is_lifted() -> bool:
            return tree.quota_us("batch") == UNLIMITED

        await eventually(is_lifted, "the ceiling is lifted")
        # As long as a watchdog would wait, and longer, it stays so.
        over_s = time.monotonic() + 3 * WATCHDOG_MS / 1_000

        async def is_over() -> bool:
            return time.monotonic() > over_s

        await eventually(is_over, "a few looks")
        assert tree.quota_us("batch") == UNLIMITED
        assert CgroupTree(ROOT, f"{policy.subtree}-watchdog").pids("") == ()
    finally:
        executor.terminate()
        await asyncio.wait_for(executor.wait(), 60)
        async with adopted(policy):
            pass
