"""Own CPUs of online work and groups that colo did not make, on this machine's kernel. Needs root, and leaves nothing behind."""

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_cli.doctor import own_cpus_row
from colo_common.model.cpuset import CpuSet
from colo_common.model.qos import QosClass
from colo_executor.cgroup import CgroupTree
from colo_executor.knob_table import Knob
from colo_executor.open_cpus import OpenCpus
from colo_executor.order import KnobWrite
from colo_executor.process.machine import online_cpus
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from colo_executor.unmanaged import UnmanagedGroup
from tests.support.adopted import AS_ROOT, adopted
from tests.support.attempts import start
from tests.system.test_online_runtime import ALL, FIRST, REST, ROOT, allowed, end, placed, snapshot

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(len(online_cpus("/sys")) < 2, reason="two CPUs are needed"),
]

POLICY = UnmanagedGroup(group=f"others-{os.getpid()}", clear_of_own_cpus=True)
MEMS = Path("/sys/devices/system/node/has_memory").read_text().strip()


class Others:
    """A group of somebody else's, as a kubelet has for its pods, with a process in each of its pods."""

    def __init__(self) -> None:
        self.tree = CgroupTree(ROOT, POLICY.group)
        self._running: list[subprocess.Popen[bytes]] = []
        self._groups: list[str] = []
        self.make("", ALL)

    def make(self, group: str, cpus: CpuSet) -> None:
        self.tree.make(group)
        self._groups.append(group)
        for knob, value in ((Knob.CPUSET_CPUS, cpus.format()), (Knob.CPUSET_MEMS, MEMS)):
            self.tree.write(KnobWrite(path=group, knob=knob, value=value))

    def pod(self, group: str, cpus: CpuSet) -> int:
        self.make(group, cpus)
        process = subprocess.Popen(["sleep", "600"])
        self._running.append(process)
        self.tree.attach(group, process.pid)
        return process.pid

    def shown(self) -> list[str]:
        return [self.tree.value(Knob.CPUSET_CPUS, group) for group in self._groups]

    def leave(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()
        for group in reversed(self._groups):
            assert self.tree.remove(group)


@pytest.fixture
def others() -> Iterator[Others]:
    made = Others()
    yield made
    made.leave()


@pytest.fixture
def policy(tmp_path: Path, others: Others) -> Iterator[ProcessPolicy]:
    before = snapshot()
    yield ProcessPolicy(
        users=AS_ROOT, state_dir=str(tmp_path / "state"), subtree=f"colo-own-{os.getpid()}", unmanaged=(POLICY,)
    )
    assert snapshot() == before, "the machine is not as it was"


@asynccontextmanager
async def left_alone(policy: ProcessPolicy) -> AsyncIterator[ProcessRuntime]:
    """An executor that ends as if it had been killed: nothing is put back."""
    made = ProcessRuntime(policy)
    try:
        await made.adopt(1)
        yield made
    finally:
        await made.close()


async def test_processes_of_others_run_beside_own_cpus_and_where_they_ran_when_these_are_free(policy, others):
    wide, pinned = others.pod("wide", ALL), others.pod("pinned", FIRST)
    async with adopted(policy) as runtime:
        assert [allowed(pid) for pid in (wide, pinned)] == [ALL, FIRST]
        lse = await start(runtime, placed(0, QosClass.LSE, FIRST.format()))
        assert [allowed(pid) for pid in (lse.pid, wide, pinned)] == [FIRST, REST, REST]
        late = others.pod("late", REST)
        drift = await runtime.reconcile()
        assert drift is None, "what was made within the group's set needs nothing"
        await end(runtime, 0)
        assert [allowed(pid) for pid in (wide, pinned)] == [ALL, FIRST]
        if others.tree.version == 1:
            assert allowed(late) == ALL, "its set was that of its group"
        assert await runtime.reconcile() is None
        await start(runtime, placed(1, QosClass.LSR, FIRST.format()))
        assert [allowed(pid) for pid in (wide, pinned, late)] == [REST, REST, REST]
    assert [allowed(pid) for pid in (wide, pinned)] == [ALL, FIRST]


async def test_an_executor_that_is_killed_leaves_sets_that_the_next_one_gives_back(policy, others):
    wide, pinned = others.pod("wide", ALL), others.pod("pinned", FIRST)
    before = others.shown()
    async with left_alone(policy) as first:
        await start(first, placed(0, QosClass.LSE, FIRST.format()))
    assert [allowed(pid) for pid in (wide, pinned)] == [REST, REST]
    async with left_alone(policy) as second:
        assert [allowed(pid) for pid in (wide, pinned)] == [REST, REST], "the work still runs there"
        assert await second.reconcile() is None
    # Without the word in its policy, and without work that it would have to look after.
    async with adopted(replace(policy, unmanaged=())):
        assert others.shown() == before
    assert [allowed(pid) for pid in (wide, pinned)] == [ALL, FIRST]


async def test_restore_by_an_executor_that_adopted_nothing_puts_the_sets_back(policy, others):
    wide = others.pod("wide", ALL)
    before = others.shown()
    async with left_alone(policy) as first:
        await start(first, placed(0, QosClass.LSE, FIRST.format()))
    last = ProcessRuntime(policy)
    await last.restore()
    await last.close()
    assert (allowed(wide), others.shown()) == (ALL, before)


async def test_own_cpus_that_others_have_too_are_counted(policy, others):
    others.pod("wide", ALL)
    async with adopted(replace(policy, unmanaged=())) as runtime:
        await start(runtime, placed(0, QosClass.LSE, FIRST.format()))
        await runtime.reconcile()
        assert (runtime.open_cpus.cpus, POLICY.group in runtime.open_cpus.groups) == (FIRST, True)
        row = own_cpus_row(policy)
        assert not row["present"]
        assert f"may run on CPUs {FIRST}, which LSE or LSR work has as its own" in row["detail"]
        assert "with clear_of_own_cpus: true in process_unmanaged" in row["means"]
        await end(runtime, 0)
        await runtime.reconcile()
        assert runtime.open_cpus == OpenCpus()
        assert own_cpus_row(policy)["detail"] == "no LSE or LSR replica runs here"


@pytest.mark.skipif(not Path(ROOT, "cpuset", "cgroup.procs").exists(), reason="cgroup v1 has a hierarchy of its own")
async def test_a_group_that_cgroup_v1_has_not_under_cpuset_is_refused_in_words(policy, others, tmp_path):
    name = f"{POLICY.group}-cpu"
    group = Path(ROOT, "cpu", name)
    group.mkdir()
    try:
        unmanaged = (UnmanagedGroup(group=name, clear_of_own_cpus=True),)
        async with adopted(replace(policy, unmanaged=unmanaged)) as runtime:
            await start(runtime, placed(0, QosClass.LSE, FIRST.format()))
            drift = await runtime.reconcile()
            assert drift is not None
            assert drift.failed == (
                f"{name}: keeps its CPUs: it has no group under the cpuset controller of cgroup v1, "
                "so its processes run on all CPUs",
            )
    finally:
        group.rmdir()
