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
from colo_executor.knob_table import Knob
from colo_executor.order import KnobWrite
from colo_executor.process.machine import machine_of, start_ticks
from colo_executor.process.settings import ProcessPolicy
from colo_executor.process.watched import Watched
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


def groups_of(container: CgroupTree) -> list[str]:
    """Its groups of every hierarchy, as a kubelet looks for what is left of a pod."""
    hierarchy = container.hierarchy
    return sorted({os.path.join(mount, container.name) for mount in (*hierarchy.mounts.values(), *hierarchy.others)})


async def test_the_end_of_its_container_ends_the_executor_and_none_of_its_work(
    container: CgroupTree, tmp_path: Path
) -> None:
    policy = ProcessPolicy(state_dir=str(tmp_path / "state"), subtree=f"colo-container-{os.getpid()}")
    groups = groups_of(container)
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


async def an_executor(policy: ProcessPolicy, *before: str) -> asyncio.subprocess.Process:
    """An executor with a replica and a watchdog, the ceiling at 1.5 CPUs."""
    process = await asyncio.create_subprocess_exec(
        *before,
        *(sys.executable, "-m", "tests.system.process_executor", policy.state_dir, policy.subtree, "watched"),
        "sleep 3600",
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"started\n"
    return process


def watchdogs(policy: ProcessPolicy) -> tuple[int, ...]:
    return CgroupTree(ROOT, f"{policy.subtree}-watchdog").pids("")


def groups_left(policy: ProcessPolicy) -> list[Path]:
    return [*Path(ROOT).glob(f"*/{policy.subtree}*"), *Path(ROOT).glob(f"{policy.subtree}*")]


async def test_the_end_of_its_container_leaves_the_watchdog_which_gives_batch_work_the_floor(
    container: CgroupTree, tmp_path: Path
) -> None:
    policy = ProcessPolicy(state_dir=str(tmp_path / "state"), subtree=f"colo-watched-{os.getpid()}")
    groups = groups_of(container)
    process = await an_executor(policy, "sh", "-c", ENTERS, "sh", *groups, "--")
    tree = CgroupTree(ROOT, policy.subtree)
    (watchdog,) = watchdogs(policy)
    for group in groups:
        assert watchdog not in {int(line) for line in Path(group, "cgroup.procs").read_text().split()}, group
    mount = tree.hierarchy.mounts["cpu"]
    file, least = ("cpu.shares", 1024) if tree.version == 1 else ("cpu.weight", 100)
    assert int(Path(mount, f"{policy.subtree}-watchdog", file).read_text()) >= least, "a watchdog that gets no CPU"
    assert tree.quota_us("batch") == 150_000
    assert container.kill("")
    assert await process.wait() == -signal.SIGKILL

    async def is_down() -> bool:
        return tree.quota_us("batch") == 20_000

    async def has_exited() -> bool:
        return start_ticks("/proc", watchdog) is None

    await eventually(is_down, "the floor, while no executor is there")
    await eventually(has_exited, "the watchdog to end by itself")
    async with adopted(policy) as runtime:
        assert runtime.has_batch
    assert not groups_left(policy)


async def test_the_next_executor_ends_the_watchdog_of_the_one_before_and_restore_ends_its_own(tmp_path: Path) -> None:
    policy = ProcessPolicy(state_dir=str(tmp_path / "state"), subtree=f"colo-watched-{os.getpid()}")
    first = await an_executor(policy)
    (before,) = watchdogs(policy)
    # It stands still instead of looking: an executor that starts soon after a crash finds it still there.
    os.kill(before, signal.SIGSTOP)
    first.kill()
    await first.wait()
    async with adopted(policy) as runtime:
        watched = Watched(runtime.quota_path, 20_000, 500, runtime.frozen_path, runtime.take_watchdog)

        async def is_alone() -> bool:
            return watchdogs(policy) == (watched.pid,)

        await eventually(is_alone, "one watchdog")
        # As at a SIGTERM with on_exit restore: what is put back ends it, and the groups are gone with their last process.
        watched.start_no_more()
        await runtime.restore()
        assert not groups_left(policy)
        assert runtime.take_watchdog(os.getpid()) == ""
        assert not groups_left(policy), "no group is made again"
        await watched.leave()
    for pid in (before, watched.pid):
        assert not pid or start_ticks("/proc", pid) is None


async def test_a_namespace_of_processes_of_its_own_ends_with_the_watchdog_and_with_all_work(tmp_path: Path) -> None:
    """Why the DaemonSet has hostPID: else the kernel kills what the container started, wherever its control groups are."""
    policy = ProcessPolicy(state_dir=str(tmp_path / "state"), subtree=f"colo-watched-{os.getpid()}")
    process = await an_executor(policy, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    left = [*watchdogs(policy), *CgroupTree(ROOT, policy.subtree).pids("batch")]
    assert len(left) >= 2
    process.kill()
    await process.wait()

    async def ended() -> bool:
        return all(start_ticks("/proc", pid) is None for pid in left)

    await eventually(ended, "nobody is left who could have too much")
    async with adopted(policy) as runtime:
        await runtime.restore()
