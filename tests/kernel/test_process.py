"""The executor's process runtime against a kernel with NUMA zones: values, their order, suppression, and the way back."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_common.adapters.clock import SystemClock
from colo_common.model.cpuset import CpuSet
from colo_common.model.workload import RunSpec
from colo_common.runtime.metrics import Metrics
from colo_executor.cgroup import CgroupTree
from colo_executor.knob_table import FENCE, Knob
from colo_executor.local import CeilingWritten
from colo_executor.order import KnobWrite, cpuset_writes, quota_writes
from colo_executor.process.machine import cpu_rows
from colo_executor.process.observing import ObservingRuntime
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from colo_executor.reflex_policy import ReflexPolicy
from colo_executor.shell import ExecutorShell
from colo_executor.suppress_cpus import narrowed
from tests.kernel.inside import CGROUP_ROOT, hogs, observed_topology, settings_of
from tests.support.adopted import AS_ROOT, adopted
from tests.support.attempts import start
from tests.support.builders import a_placement
from tests.support.waiting import eventually, eventually_blocking

pytestmark = pytest.mark.vm

SUBTREE = "colo-vm"
SPIN = RunSpec(command=("sh", "-c", "while :; do :; done"))


@pytest.fixture
def policy(tmp_path: Path) -> ProcessPolicy:
    return ProcessPolicy(users=AS_ROOT, state_dir=str(tmp_path / "state"), subtree=SUBTREE)


@pytest.fixture
async def runtime(policy: ProcessPolicy) -> AsyncIterator[ProcessRuntime]:
    """An adopted runtime, restored at the end."""
    async with adopted(policy) as made:
        yield made


async def test_a_node_that_observes_says_what_a_start_then_writes(policy: ProcessPolicy) -> None:
    observing = ObservingRuntime(policy)
    drift = await observing.reconcile()
    await observing.close()
    assert drift is not None
    assert drift.failed == ()
    wanted = {knob.path: knob.value for knob in drift.knobs if "/" in knob.path and knob.value != "a control group"}
    sets = {f"{group}/cpuset.{name}" for group in (SUBTREE, f"{SUBTREE}/batch") for name in ("cpus", "mems")}
    assert sets <= wanted.keys()
    if wanted.get(f"{SUBTREE}/cpu.idle") == "1":
        # The kernel then shows a weight of its own.
        del wanted[f"{SUBTREE}/cpu.weight"]
    async with adopted(policy):
        assert {path: (CGROUP_ROOT / path).read_text().strip() for path in wanted} == wanted


@pytest.fixture
def tree() -> Iterator[CgroupTree]:
    """A subtree of the test's own, with every CPU and zone."""
    tree = CgroupTree(str(CGROUP_ROOT), f"{SUBTREE}-tree")
    tree.make("")
    tree.write(KnobWrite(path="", knob=Knob.CPUSET_CPUS, value=every_cpu().format()))
    tree.write(KnobWrite(path="", knob=Knob.CPUSET_MEMS, value=every_zone().format()))
    yield tree
    for group in ("batch/a", "batch", ""):
        assert tree.remove(group)


def every_cpu() -> CpuSet:
    return CpuSet.parse(Path("/sys/devices/system/cpu/online").read_text().strip())


def every_zone() -> CpuSet:
    return CpuSet.parse(Path("/sys/devices/system/node/has_memory").read_text().strip())


def status_of(pid: int, field: str) -> str:
    """A line of the kernel's own account of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(f"{field}:"))


async def test_a_replica_may_use_the_cpus_and_the_memory_of_its_zone_and_no_other(runtime: ProcessRuntime) -> None:
    topology, _ = observed_topology()
    zone = topology.zones[-1]
    launched = await start(runtime, replace(a_placement(zone=zone.zone), run=SPIN))
    shown = {Path(knob.path).name: knob.value for knob in launched.knobs}
    assert shown["cpuset.cpus"] == zone.cpus
    assert shown["cpuset.mems"] == str(zone.zone)
    for knob in launched.knobs:
        if not knob.path.endswith(FENCE):
            assert (CGROUP_ROOT / knob.path).read_text().strip() == knob.value
    assert status_of(launched.pid, "Cpus_allowed_list") == zone.cpus
    assert status_of(launched.pid, "Mems_allowed_list") == str(zone.zone)


async def test_weight_quota_and_sets_are_read_back_as_promised(runtime: ProcessRuntime) -> None:
    launched = await start(runtime, replace(a_placement(mcpu=4_000), run=SPIN, memory_bytes=128 << 20))
    shown = {Path(knob.path).name: knob.value for knob in launched.knobs}
    # v2: 1 + (4096 - 2) * 9999 // 262142.
    v1 = {"cpu.shares": "4096", "memory.limit_in_bytes": str(128 << 20), "pids.max": "4096"}
    v2 = {"cpu.weight": "400", "memory.max": str(128 << 20), "memory.oom.group": "1", "pids.max": "4096"}
    version = CgroupTree(str(CGROUP_ROOT), SUBTREE).version
    assert (v1 if version == 1 else v2).items() <= shown.items()
    written = runtime.set_ceiling(2_500)
    assert isinstance(written, CeilingWritten)
    (knob,) = written.knobs
    assert knob.value == ("250000" if version == 1 else "250000 100000")


async def test_batch_work_runs_on_no_more_cpus_than_its_ceiling_needs(policy: ProcessPolicy) -> None:
    async with adopted(replace(policy, ceiling_by="cpuset")) as runtime:
        first = await start(runtime, replace(a_placement(), run=SPIN))
        rows = cpu_rows("/sys")
        for ceiling_mcpu in (3_500, 1_000, 5_000):
            assert isinstance(runtime.set_ceiling(ceiling_mcpu), CeilingWritten)
            expected = narrowed(ceiling_mcpu, every_cpu(), CpuSet(), rows)
            assert len(expected) == max(2, -(-ceiling_mcpu // 1_000))
            allowed = CpuSet.parse(status_of(first.pid, "Cpus_allowed_list"))
            # Of its own zone, where it has some there.
            assert allowed <= expected
            assert allowed


def test_sets_move_from_zone_to_zone_in_steps_that_the_kernel_accepts(tree: CgroupTree) -> None:
    topology, _ = observed_topology()
    first, last = topology.zones[0], topology.zones[-1]
    half = CpuSet.from_iterable(list(CpuSet.parse(first.cpus))[:2])
    zones = {"first": CpuSet.from_iterable([first.zone]), "last": CpuSet.from_iterable([last.zone])}
    tree.make("batch")
    tree.make("batch/a")
    for knob, every, steps in (
        (Knob.CPUSET_CPUS, every_cpu(), (CpuSet.parse(first.cpus), half, CpuSet.parse(last.cpus), every_cpu())),
        (Knob.CPUSET_MEMS, every_zone(), (zones["first"], zones["last"], every_zone())),
    ):
        for path in ("batch", "batch/a"):
            tree.write(KnobWrite(path=path, knob=knob, value=every.format()))
        now = {"batch": every, "batch/a": every}
        for step in steps:
            for write in cpuset_writes(knob, now, {"batch": step, "batch/a": step}):
                assert tree.write(write).value == write.value
            now = {"batch": step, "batch/a": step}
            assert [tree.value(knob, path) for path in now] == [step.format(), step.format()]


def test_quotas_of_parent_and_child_change_in_steps_that_the_kernel_accepts(tree: CgroupTree) -> None:
    tree.make("batch")
    tree.make("batch/a")
    have = {"batch": -1, "batch/a": -1}
    for parent, child in ((400_000, 200_000), (50_000, 50_000), (1_600_000, 800_000), (-1, 100_000), (-1, -1)):
        placement_request = {"batch": parent, "batch/a": child}
        for write in quota_writes(have, placement_request):
            tree.write(write)
        assert {path: tree.quota_us(path) for path in placement_request} == placement_request
        have = placement_request


async def test_everything_is_put_back_byte_by_byte_even_in_a_group_that_was_there_before(policy: ProcessPolicy) -> None:
    existing = CgroupTree(str(CGROUP_ROOT), SUBTREE)
    existing.make("")
    topology, _ = observed_topology()
    existing.write(KnobWrite(path="", knob=Knob.CPU_WEIGHT, value=2_000))
    try:
        before = settings_of(CGROUP_ROOT)
        runtime = ProcessRuntime(policy)
        await runtime.adopt(1)
        await start(runtime, replace(a_placement(zone=topology.zones[-1].zone), run=SPIN))
        runtime.set_ceiling(500)
        assert settings_of(CGROUP_ROOT) != before
        await runtime.restore()
        await runtime.close()
        assert settings_of(CGROUP_ROOT) == before
    finally:
        assert existing.remove("")


async def test_controllers_that_nobody_had_handed_down_are_taken_back(policy: ProcessPolicy) -> None:
    handed = CGROUP_ROOT / "cgroup.subtree_control"
    if not handed.exists():
        pytest.skip("cgroup v1 hands nothing down")
    all_of_them = handed.read_text().split()
    kept_by_others = {
        word for path in CGROUP_ROOT.glob("*/cgroup.subtree_control") for word in path.read_text().split()
    }
    lacking = {"cpuset", "pids", "memory"} - kept_by_others
    try:
        for name in sorted(lacking):
            handed.write_text(f"-{name}")
        before = settings_of(CGROUP_ROOT)
        runtime = ProcessRuntime(policy)
        await runtime.adopt(1)
        assert lacking <= set(handed.read_text().split())
        await runtime.restore()
        await runtime.close()
        assert settings_of(CGROUP_ROOT) == before
    finally:
        handed.write_text(" ".join(f"+{name}" for name in all_of_them))


def throttled(tree: CgroupTree, group: str) -> int:
    """How often the kernel stopped the group at its quota."""
    path = CGROUP_ROOT / ("" if tree.version == 2 else "cpu") / tree.name / group / "cpu.stat"
    lines = path.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("nr_throttled "))


TURNS_MOST = 25
"""Readings until batch work is at the floor: half a second at the period of the reflex."""
FOUR_LOOPS = RunSpec(command=("sh", "-c", "for i in 1 2 3; do (while :; do :; done) & done; while :; do :; done"))


async def test_the_reflex_takes_the_cpu_of_a_real_hog_back_when_online_work_comes(
    policy: ProcessPolicy, tree: CgroupTree
) -> None:
    runtime = ProcessRuntime(policy)
    shell = ExecutorShell(runtime, SystemClock(), policy=ReflexPolicy(rule="usage"), period_ms=20, metrics=Metrics())
    await shell.load()
    own = CgroupTree(str(CGROUP_ROOT), SUBTREE)
    cpus = tuple(every_cpu())
    floor_mcpu = ReflexPolicy().suppress.floor_mcpu
    try:
        await start(runtime, replace(a_placement(mcpu=4_000), run=FOUR_LOOPS))

        async def quiet() -> bool:
            shell.turn()
            return (runtime.ceiling_mcpu or 0) > runtime.capacity_mcpu // 2

        await eventually(quiet, "a ceiling of an idle machine", limit_s=120)
        with hogs(tree, "", cpus):
            turns = 0

            async def suppressed() -> bool:
                nonlocal turns
                turns += 1
                shell.turn()
                return runtime.ceiling_mcpu == floor_mcpu

            await eventually(suppressed, "the floor", limit_s=120)
            # The loops run already: an emulated machine takes long for a reading, but it takes no more of them.
            assert turns <= TURNS_MOST
            assert own.quota_us("batch") == floor_mcpu * 100
            used_us, online_us = own.cpu_used_us("batch"), tree.cpu_used_us("")
            eventually_blocking(
                lambda: tree.cpu_used_us("") - online_us > 1_000_000 * len(cpus), "online work to run", limit_s=120
            )
            batch_cpus = (own.cpu_used_us("batch") - used_us) * len(cpus) / (tree.cpu_used_us("") - online_us)
            # The floor is a fifth of a CPU and the four loops want four; an emulated kernel stops them late.
            assert batch_cpus < 1.5
        # Beside a hog on every CPU the idle class alone may keep them below the floor; nobody but the quota stops them now.
        stops = throttled(own, "batch")
        eventually_blocking(lambda: throttled(own, "batch") > stops, "the quota to stop them", limit_s=120)
    finally:
        await runtime.restore()
        await runtime.close()


CROWD = 'trap "" TERM; for i in 1 2 3 4 5 6 7 8 9 10; do (trap "" TERM; while :; do read -t 1 x < /dev/zero; done) & done; wait'


async def test_a_kill_empties_a_group_of_processes_that_do_not_listen(runtime: ProcessRuntime) -> None:
    own = CgroupTree(str(CGROUP_ROOT), SUBTREE)
    launched = await start(runtime, replace(a_placement(), run=RunSpec(command=("sh", "-c", CROWD))))
    group = "batch/job.main.0@1"
    eventually_blocking(lambda: len(own.pids(group)) > 10, "a crowd", limit_s=120)
    crowd = own.pids(group)
    assert launched.pid in crowd
    assert own.kill(group)
    assert own.pids(group) == ()

    async def deleted() -> bool:
        return not any(os.path.exists(f"/proc/{pid}") for pid in crowd if pid != launched.pid) and bool(
            runtime.poll_exits()
        )

    await eventually(deleted, "the end to be told", limit_s=120)
    assert own.children("batch") == ()
