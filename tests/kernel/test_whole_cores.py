"""The reflex where cores have two threads: batch work gives up whole cores, so that no other thread of them runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from colo_common.events.enforcement import ZoneCeiling
from colo_common.model.cpuset import CpuSet
from colo_common.model.reasons import Reason
from colo_common.model.workload import RunSpec
from colo_executor.cgroup import CgroupTree
from colo_executor.desired import DesiredPolicy
from colo_executor.knob_table import Knob
from colo_executor.local import CeilingMoved, FastReading
from colo_executor.order import KnobWrite
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from colo_executor.shell import ExecutorShell
from tests.kernel.inside import CGROUP_ROOT, hogs, observed_topology, settings_of, this_machine
from tests.kernel.test_process import every_cpu
from tests.kernel.test_zones import reflex_of
from tests.support.adopted import AS_ROOT
from tests.support.attempts import start
from tests.support.builders import a_placement
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.vm,
    pytest.mark.skipif(this_machine().cgroup != "v2", reason="groups of cgroup v1 have no pressure files"),
    pytest.mark.skipif(this_machine().threads < 2, reason="a core of one thread is nobody else's"),
]

SUBTREE: Final = "colo-vm-cores"
WEB: Final = "web"
SPIN: Final = RunSpec(command=("sh", "-c", "while :; do :; done"))


def shown(group: str, name: str = "cpuset.cpus.effective") -> CpuSet:
    return CpuSet.parse((CGROUP_ROOT / SUBTREE / group / name).read_text().strip())


def core_of(cpu: int) -> CpuSet:
    """The online threads of a CPU's core, in the kernel's words."""
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    return CpuSet.parse(path.read_text().strip())


def are_whole_cores(cpus: CpuSet) -> bool:
    return all(core_of(cpu) <= cpus for cpu in cpus)


@pytest.fixture
def web() -> Iterator[CgroupTree]:
    """Online work of somebody else's that may run anywhere."""
    tree = CgroupTree(str(CGROUP_ROOT), WEB)
    tree.make("")
    yield tree
    assert tree.remove("")


class SharingRuntime(ProcessRuntime):
    """A runtime whose reflex is told that the web group waits half of the time, while batch work may run on a thread of `core`.

    What an emulated core costs its threads is the emulator's matter; which CPUs are a core, and where batch work runs, is the
    kernel's own word.
    """

    core = CpuSet()
    waited_us = 0
    at_ms = 0

    def read_fast(self, now_ms: int) -> FastReading | None:
        reading = super().read_fast(now_ms)
        stalls = None if reading is None else reading.stalls
        if reading is None or stalls is None:
            return reading
        if self.core & shown("batch"):
            self.waited_us += max(0, stalls.at_ms - self.at_ms) * 500
        self.at_ms = stalls.at_ms
        total_us = tuple((name, self.waited_us if name == WEB else 0) for name, _ in stalls.total_us)
        return replace(reading, stalls=replace(stalls, total_us=total_us, throttled_us=()))


def runtime_in(directory: Path) -> SharingRuntime:
    return SharingRuntime(
        ProcessPolicy(
            users=AS_ROOT, state_dir=str(directory / "state"), subtree=SUBTREE, desired=DesiredPolicy(idle=False)
        )
    )


def moves_of(shell: ExecutorShell) -> list[CeilingMoved]:
    return [each for each in shell._take_news() if isinstance(each, CeilingMoved)]


async def test_what_less_batch_work_does_not_relieve_is_tried_on_whole_cores_and_kept_there(
    web: CgroupTree, tmp_path: Path
) -> None:
    before = settings_of(CGROUP_ROOT)
    runtime = runtime_in(tmp_path)
    last = max(every_cpu())
    moves: list[CeilingMoved] = []
    try:
        shell = await reflex_of(runtime)
        for number in range(2):
            await start(runtime, replace(a_placement(f"job/main/{number}"), zones=(), run=SPIN))

        async def on_cores() -> bool:
            shell.turn()
            moves.extend(moves_of(shell))
            return runtime.has_whole_cores

        with hogs(web, "", (last,)):
            runtime.core = core_of(last)
            assert len(runtime.core) == 2
            await eventually(on_cores, "batch work to be put on whole cores", limit_s=120)
            assert [move.reason for move in moves][-1] is Reason.ONLINE_STALL_CORES
            assert Reason.ONLINE_STALL in [move.reason for move in moves], "less of it was tried first"
            kept = shown("batch")
            assert are_whole_cores(kept)
            assert not kept & runtime.core
            ceiling_mcpu = runtime.read_ceiling()
            assert ceiling_mcpu is not None
            assert len(kept) == -(-max(2_000, ceiling_mcpu) // 2_000) * 2
            assert shown("batch/job.main.0@1") == shown("batch/job.main.1@1") == kept
            # As if it had been killed: the next one leaves it there.
            await runtime.close()
            runtime = runtime_in(tmp_path)
            shell = await reflex_of(runtime)
            assert runtime.has_whole_cores
            assert shown("batch") == kept

        async def given_back() -> bool:
            shell.turn()
            assert are_whole_cores(shown("batch")), "by whole cores as well"
            return not runtime.has_whole_cores

        await eventually(given_back, "all threads to be batch work's again", limit_s=120)
        assert shown("batch") == every_cpu()
        assert runtime.read_ceiling() == len(every_cpu()) * 1_000
    finally:
        await runtime.restore()
        await runtime.close()
    assert settings_of(CGROUP_ROOT) == before


@pytest.mark.skipif(len(this_machine().zones) < 2, reason="a machine of one NUMA zone has no ceiling of zones")
async def test_batch_work_leaves_the_zone_in_which_online_work_waits_where_it_can_run_elsewhere(
    web: CgroupTree, tmp_path: Path
) -> None:
    topology, _ = observed_topology()
    zones = [CpuSet.parse(zone.cpus) for zone in topology.zones]
    web.write(KnobWrite(path="", knob=Knob.CPUSET_CPUS, value=zones[0].format()))
    before = settings_of(CGROUP_ROOT)
    runtime = runtime_in(tmp_path)
    first = min(zones[0])
    try:
        shell = await reflex_of(runtime)
        await start(runtime, replace(a_placement("job/main/0"), zones=(), run=SPIN))

        async def left() -> tuple[ZoneCeiling, ...]:
            shell.turn()
            return runtime.zone_ceilings

        with hogs(web, "", (first,)):
            runtime.core = core_of(first)
            # One loop uses less than two cores, so that half of it is none.
            held = await eventually(left, "batch work to leave zone 0", limit_s=120)
            assert held == (ZoneCeiling(zone=0, ceiling_mcpu=0, capacity_mcpu=len(zones[0]) * 1_000),)
            assert shown("batch") == shown("batch/job.main.0@1") == every_cpu() - zones[0]
            # What has to run there gets a CPU of it at once.
            await start(runtime, replace(a_placement("job/main/1", zone=0), run=SPIN))
            assert len(shown("batch/job.main.1@1")) == 1
            assert shown("batch/job.main.1@1") <= zones[0]
            assert shown("batch/job.main.1@1", "cpuset.mems.effective").format() == "0"
    finally:
        await runtime.restore()
        await runtime.close()
    assert settings_of(CGROUP_ROOT) == before
