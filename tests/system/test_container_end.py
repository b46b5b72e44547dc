"""An executor in a container, as the DaemonSet runs it: whoever ends the container ends none of the executor's work. Needs root."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from colo_executor.cgroup import CgroupTree
from colo_executor.knobs import Knob
from colo_executor.order import KnobWrite
from colo_executor.process.machine import machine_of
from colo_executor.process.settings import ProcessPolicy
from tests.support.adopted import adopted
from tests.support.waiting import eventually

pytestmark = pytest.mark.kernel

ROOT = "/sys/fs/cgroup"
ENTERS = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs"; shift; done; shift; exec "$@"'


@pytest.fixture
def container() -> Iterator[CgroupTree]:
    """The control groups of a container, under every controller; a runtime ends every process that it finds in them."""
    tree = CgroupTree(ROOT, f"kubepods-{os.getpid()}")
    tree.make("")
    if "cpuset" in tree.hierarchy.mounts:
        # Under v1 no process gets into a group without CPUs and memory.
        machine = machine_of("/sys", tree.has())
        tree.write(KnobWrite(path="", knob=Knob.CPUSET_CPUS, value=machine.cpus.format()))
        tree.write(KnobWrite(path="", knob=Knob.CPUSET_MEMS, value=machine.mems.format()))
    yield tree
    tree.kill("")
    assert tree.remove("")


async def test_the_end_of_its_container_ends_the_executor_and_none_of_its_work(
    container: CgroupTree, tmp_path: Path
) -> None:
    policy = ProcessPolicy(state_dir=str(tmp_path / "state"), subtree=f"colo-container-{os.getpid()}")
    hierarchy = container.hierarchy
    # Of every hierarchy, as a kubelet looks for what is left of a pod.
    groups = sorted({os.path.join(mount, container.name) for mount in (*hierarchy.mounts.values(), *hierarchy.others)})
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", ENTERS, "sh", *groups, "--"),
        *(sys.executable, "-m", "tests.system.process_executor", policy.state_dir, policy.subtree, "run", "sleep 3600"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"started\n"
    work = CgroupTree(ROOT, policy.subtree).pids("batch/job.main.0@1")
    assert work
    for group in groups:
        inside = {int(line) for line in Path(group, "cgroup.procs").read_text().split()}
        assert process.pid in inside, group
        assert not inside & set(work), group
    # As runtimes do for a container that shares the machine's processes: all that is in its groups, until none is left.
    assert container.kill("")
    assert await process.wait() == -signal.SIGKILL
    async with adopted(policy) as runtime:
        # Its shell may have begun the command only now.
        assert set(work) <= set(CgroupTree(ROOT, policy.subtree).pids("batch/job.main.0@1"))
        assert runtime.has_batch

        async def ended() -> bool:
            return not Path(f"/proc/{work[0]}").exists()

        await runtime.restore()
        await eventually(ended, "the work has ended with the subtree")
