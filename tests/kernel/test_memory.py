"""What a real kernel keeps of memory that is protected, and of swap that is not to be used."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.workload import RunSpec
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.desired import DesiredPolicy
from colo_executor.knob_table import Knob
from colo_executor.order import KnobWrite
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from colo_executor.unmanaged import UnmanagedGroup
from tests.kernel.inside import CGROUP_ROOT, unchanged
from tests.support.adopted import AS_ROOT
from tests.support.attempts import start
from tests.support.builders import a_placement

pytestmark = [
    pytest.mark.vm,
    pytest.mark.skipif(not (CGROUP_ROOT / "cgroup.controllers").exists(), reason="cgroup v1 protects no memory"),
]

SUBTREE: Final = "colo-vm-memory"
OTHERS: Final = "databases.slice"
MIB: Final = 1 << 20
SLEEP: Final = RunSpec(command=("sleep", "3600"))
PATTERN: Final = UnmanagedGroup(group=f"{OTHERS}/db-*.service", memory_low_bytes=8 * MIB, memory_min_bytes=4 * MIB)


@pytest.fixture
def others() -> Iterator[CgroupTree]:
    """Groups of others: a slice with two services, one of which protects something by itself."""
    tree = CgroupTree(str(CGROUP_ROOT), OTHERS)
    for group in ("", "db-a.service", "db-b.service"):
        tree.make(group)
    (CGROUP_ROOT / OTHERS / "db-b.service" / "memory.low").write_text(str(2 * MIB))
    yield tree
    assert tree.remove("")


@pytest.fixture
async def runtime(tmp_path: Path, others: CgroupTree) -> AsyncIterator[ProcessRuntime]:
    """An adopted runtime that leaves neither a changed setting, also of others, nor a group of its own."""
    desired = DesiredPolicy(memory_min_pct=50)
    policy = ProcessPolicy(
        users=AS_ROOT, state_dir=str(tmp_path / "state"), subtree=SUBTREE, desired=desired, unmanaged=(PATTERN,)
    )
    async with unchanged(policy) as made:
        yield made


def protection(group: str) -> tuple[int, int]:
    """What the kernel shows of memory.min and memory.low."""
    least, low = (int((CGROUP_ROOT / group / name).read_text()) for name in ("memory.min", "memory.low"))
    return least, low


async def test_online_memory_is_protected_and_batch_memory_is_not_and_does_not_swap(runtime: ProcessRuntime) -> None:
    await start(runtime, replace(a_placement(), run=SLEEP))
    online = replace(a_placement("web/main/0"), qos=QosClass.LSE, band=PriorityBand.PROD, cpus="1", run=SLEEP)
    await start(runtime, online)
    asked = online.memory_bytes
    assert protection(f"{SUBTREE}-online/lse.web.main.0@1") == protection(f"{SUBTREE}-online") == (asked // 2, asked)
    assert protection(SUBTREE) == protection(f"{SUBTREE}/batch") == (0, 0)
    tree = CgroupTree(str(CGROUP_ROOT), SUBTREE)
    if Knob.SWAP_LIMIT in tree.has():
        assert tree.value(Knob.SWAP_LIMIT, "batch/job.main.0@1") == "0"
    assert await runtime.reconcile() is None, "nothing is written when nothing has changed"
    for group in (f"{SUBTREE}-online", SUBTREE):
        (CGROUP_ROOT / group / "memory.low").write_text(str(MIB))
    drift = await runtime.reconcile()
    assert drift is not None
    assert (len(drift.knobs), drift.failed) == (2, ())
    assert (protection(f"{SUBTREE}-online")[1], protection(SUBTREE)[1]) == (asked, 0)


async def test_groups_of_others_are_protected_by_a_pattern_with_the_group_above_also_those_that_come_later(
    runtime: ProcessRuntime,
) -> None:
    assert [protection(f"{OTHERS}/db-{name}.service") for name in "ab"] == [(4 * MIB, 8 * MIB)] * 2
    assert protection(OTHERS) == (8 * MIB, 16 * MIB)
    assert await runtime.reconcile() is None
    late = CGROUP_ROOT / OTHERS / "db-c.service"
    os.mkdir(late)
    drift = await runtime.reconcile()
    assert drift is not None
    assert drift.failed == ()
    assert (protection(f"{OTHERS}/db-c.service"), protection(OTHERS)) == ((4 * MIB, 8 * MIB), (12 * MIB, 24 * MIB))
    os.rmdir(late)
    await runtime.reconcile()
    assert protection(OTHERS) == (8 * MIB, 16 * MIB)


async def test_a_refused_write_of_the_real_kernel_says_what_it_means(others: CgroupTree) -> None:
    with pytest.raises(CgroupError, match=r"cpuset\.cpus: write .* refused with E[A-Z]+ \(.*\): a CPU of it"):
        others.write(KnobWrite(path="", knob=Knob.CPUSET_CPUS, value="8000"))
