"""Own CPUs of online work under a real cgroup v2: whoever is to keep off them does, with all groups in his, and has them back."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from colo_common.model.cpuset import CpuSet
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.workload import RunSpec
from colo_executor.cgroup import CgroupTree
from colo_executor.knob_table import Knob
from colo_executor.order import KnobWrite
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from colo_executor.unmanaged import UnmanagedGroup
from tests.kernel.inside import CGROUP_ROOT, settings_of
from tests.kernel.test_process import every_cpu, status_of
from tests.support.adopted import AS_ROOT, adopted
from tests.support.attempts import start
from tests.support.builders import a_placement

pytestmark = pytest.mark.vm

SUBTREE: Final = "colo-vm-own"
OTHERS: Final = "others"
PODS: Final = ("pods", "pods/wide", "pods/pinned")


@pytest.fixture
def pids() -> Iterator[tuple[int, int]]:
    """Processes of two pods of somebody else's: one may run everywhere, one on the last CPU only."""
    tree = CgroupTree(str(CGROUP_ROOT), OTHERS)
    last = list(every_cpu())[-1]
    running = []
    for group in ("", *PODS):
        tree.make(group)
    tree.write(KnobWrite(path="pods/pinned", knob=Knob.CPUSET_CPUS, value=str(last)))
    for group in PODS[1:]:
        process = subprocess.Popen(["sleep", "3600"])
        running.append(process)
        tree.attach(group, process.pid)
    yield running[0].pid, running[1].pid
    for process in running:
        process.kill()
        process.wait()
    for group in (*reversed(PODS), ""):
        assert tree.remove(group)


async def test_pods_of_others_run_beside_own_cpus_and_get_them_back_from_the_next_executor(
    pids: tuple[int, int], tmp_path: Path
) -> None:
    everywhere = every_cpu()
    last = CpuSet.from_iterable(list(everywhere)[-1:])
    policy = ProcessPolicy(
        users=AS_ROOT,
        state_dir=str(tmp_path / "state"),
        subtree=SUBTREE,
        unmanaged=(UnmanagedGroup(group=OTHERS, clear_of_own_cpus=True),),
    )

    def allowed() -> list[CpuSet]:
        return [CpuSet.parse(status_of(pid, "Cpus_allowed_list")) for pid in pids]

    before, settings = allowed(), settings_of(CGROUP_ROOT)
    assert before == [everywhere, last]
    placement = replace(a_placement(), qos=QosClass.LSE, band=PriorityBand.PROD, cpus=last.format())
    first = ProcessRuntime(policy)
    await first.adopt(1)
    launched = await start(first, replace(placement, run=RunSpec(command=("sleep", "3600"))))
    assert allowed() == [everywhere - last, everywhere - last]
    assert status_of(launched.pid, "Cpus_allowed_list") == last.format()
    # As if it had been killed: the next one finds the work, and the sets.
    await first.close()
    async with adopted(policy) as second:
        assert allowed() == [everywhere - last, everywhere - last]
        assert await second.reconcile() is None
    assert allowed() == before
    # Some kernels take no empty list from a group with processes; one of all CPUs is as good.
    shown = (CGROUP_ROOT / OTHERS / "cpuset.cpus").read_text().strip()
    assert shown in ("", everywhere.format())
    after = settings_of(CGROUP_ROOT)
    assert {path for path in {*settings, *after} if settings.get(path) != after.get(path)} <= {
        path for path in settings if str(path).endswith(f"{OTHERS}/cpuset.cpus")
    }
