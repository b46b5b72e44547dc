"""A real replica beside busy processes: its stall by the run and wait times that this kernel keeps of its threads."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_collector.files import FileReader
from colo_collector.machine import Machine
from colo_collector.readings import SampleRead
from colo_common.adapters.clock import SystemClock
from colo_common.events.node import WorkloadUsage
from colo_common.model.workload import RunSpec
from colo_executor.local import ReplicaLaunched
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from tests.support.adopted import AS_ROOT
from tests.support.builders import a_placement
from tests.support.waiting import eventually

pytestmark = pytest.mark.kernel

CPU = min(os.sched_getaffinity(0))
SPIN = (sys.executable, "-S", "-c", f"import os; os.sched_setaffinity(0, {{{CPU}}})\nwhile True: pass")
"""All on one CPU, so that they are in each other's way and in nobody else's: an emulated machine has few real ones."""
CROWD = 4


async def test_a_replica_beside_busy_processes_stalls(tmp_path: Path) -> None:
    subtree = f"colo-test-{os.getpid()}"
    runtime = ProcessRuntime(ProcessPolicy(users=AS_ROOT, state_dir=str(tmp_path / "state"), subtree=subtree))
    crowd: list[asyncio.subprocess.Process] = []
    machine = Machine(FileReader(), subtree=subtree, online=(), labels={}, clock=SystemClock())

    async def look() -> WorkloadUsage | None:
        event = (await asyncio.to_thread(machine.observe)).event
        replicas = event.workloads if isinstance(event, SampleRead) else ()
        return next((one for one in replicas if (one.stall_pct or 0) >= 20 and one.detail is not None), None)

    try:
        await runtime.adopt(1)
        launched = await runtime.launch(replace(a_placement("job/main/0", attempt=3), run=RunSpec(command=SPIN)), 1)
        assert isinstance(launched, ReplicaLaunched), launched
        # Started after the replica, so that what moves it into its group does not wait for CPU beside them.
        for _ in range(CROWD):
            crowd.append(await asyncio.create_subprocess_exec(*SPIN))
        found = await eventually(look, "a stall of the replica", limit_s=120)
        assert (found.replica, found.stall_gate) == ("job/main/0", "")
    finally:
        for one in crowd:
            one.kill()
            await one.wait()
        await runtime.restore()
        await runtime.close()
        machine.close()
