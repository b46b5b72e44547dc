"""The device fence of batch work against this kernel: by the files of cgroup v1, by a program that is attached under v2."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.workload import RunSpec
from colo_executor.cgroup import CgroupTree
from colo_executor.device_access import ALL, rules_in
from colo_executor.device_fence import DeviceFence
from colo_executor.knob_table import Knob
from colo_executor.order import KnobWrite
from colo_executor.process.device_files import EVERYBODYS
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from tests.kernel.inside import CGROUP_ROOT, observed_topology
from tests.support.adopted import AS_ROOT, adopted
from tests.support.attempts import start
from tests.support.builders import a_placement
from tests.support.waiting import eventually

pytestmark = pytest.mark.vm

SUBTREE = "colo-devices"
GROUP = "batch/job.main.0@1"
OPENS = (
    'for each in /dev/null "$0" "$1"; do (exec 3< "$each") 2>/dev/null && echo open || echo closed; done > "$2.new";'
    ' mv "$2.new" "$2"; exec sleep 3600'
)


@pytest.fixture
def policy(tmp_path: Path) -> ProcessPolicy:
    return ProcessPolicy(users=AS_ROOT, state_dir=str(tmp_path / "state"), subtree=SUBTREE)


@pytest.fixture
def fenced() -> Iterator[CgroupTree]:
    tree = CgroupTree(str(CGROUP_ROOT), SUBTREE)
    if tree.version == 1 and tree.lacks_fence():
        pytest.skip(tree.lacks_fence())
    assert tree.lacks_fence() == ""
    assert Knob.DEVICES in tree.has()
    return tree


def drop(tree: CgroupTree) -> None:
    """Open everything in the group, as another program would."""
    if tree.version == 1:
        (CGROUP_ROOT / "devices" / SUBTREE / GROUP / "devices.allow").write_text("a")
        return
    fd = os.open(CGROUP_ROOT / SUBTREE / GROUP, os.O_RDONLY | os.O_DIRECTORY)
    try:
        DeviceFence().write(fd, ALL)
    finally:
        os.close(fd)


async def test_a_batch_replica_is_kept_from_memory_and_disks_and_the_fence_is_put_back(
    policy: ProcessPolicy, fenced: CgroupTree, tmp_path: Path
) -> None:
    log, disk = tmp_path / "kernel-log", tmp_path / "loop"
    os.mknod(log, 0o666 | stat.S_IFCHR, os.makedev(1, 11))
    # Of no driver here: a process that the fence lets through is told ENXIO, and the one below sees the rules alone.
    os.mknod(disk, 0o666 | stat.S_IFBLK, os.makedev(7, 0))
    answers = {name: tmp_path / name for name in ("batch", "online", "after")}

    def what(name: str) -> RunSpec:
        return RunSpec(command=("sh", "-c", OPENS, str(log), str(disk), str(answers[name])))

    async def answer_of(name: str) -> str:
        async def is_there() -> bool:
            return answers[name].exists()

        await eventually(is_there, f"what {name} may open", limit_s=120)
        return " ".join(answers[name].read_text().split())

    batch = replace(a_placement(), run=what("batch"))
    online = replace(batch, replica="job/main/1", qos=QosClass.LS, band=PriorityBand.PROD, run=what("online"))
    runtime = ProcessRuntime(policy)
    try:
        await runtime.adopt(1)
        launched = await start(runtime, batch)
        (knob,) = (knob for knob in launched.knobs if rules_in(knob.before) is None and "devi" in knob.path)
        assert rules_in(knob.value) == rules_in("\n".join(EVERYBODYS))
        await start(runtime, online)
        assert (await answer_of("batch")).startswith("open closed closed")
        assert (await answer_of("online")).startswith("open open ")
        drop(fenced)
        drift = await runtime.reconcile()
        assert drift is not None
        assert [each.path for each in drift.knobs] == [knob.path]
        fenced.keep(KnobWrite(path=GROUP, knob=Knob.DEVICES, value="\n".join(EVERYBODYS)))
        assert fenced.drifted() == ()
        assert await runtime.reconcile() is None
    finally:
        await runtime.close()
    # The rules are in the journal: the next executor knows them, and puts them back.
    async with adopted(replace(policy, devices="all")) as later:
        assert await later.reconcile() is None
        drop(fenced)
        drift = await later.reconcile()
        assert drift is not None
        assert [each.path for each in drift.knobs] == [knob.path]
        after = replace(batch, replica="job/main/2", run=what("after"))
        await start(later, after)
        assert (await answer_of("after")).startswith("open open ")


def test_the_matrix_says_that_there_is_a_fence() -> None:
    _, found = observed_topology()
    assert found["cgroup-devices"].present is (CgroupTree(str(CGROUP_ROOT), SUBTREE).lacks_fence() == "")
