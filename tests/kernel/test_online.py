"""Online work in a kernel with NUMA zones: CPUs and memory of its own, both shared pools, suppression, and the way back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_common.adapters.clock import SystemClock
from colo_common.model.constraints import CpuPolicy
from colo_common.model.cpuset import CpuSet
from colo_common.model.placement import Placement
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.workload import RunSpec
from colo_common.runtime.metrics import Metrics
from colo_executor.cgroup import CgroupTree
from colo_executor.kept_cpus import KeptCpus
from colo_executor.knob_table import Knob
from colo_executor.local import LaunchFailed, SignalReplica, StopIntent
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from colo_executor.reflex_policy import ReflexPolicy
from colo_executor.shell import ExecutorShell
from tests.kernel.inside import CGROUP_ROOT, observed_topology, settings_of, unchanged
from tests.kernel.test_process import FOUR_LOOPS, every_cpu, every_zone, status_of, throttled
from tests.support.adopted import AS_ROOT
from tests.support.attempts import start
from tests.support.builders import a_placement
from tests.support.waiting import eventually, eventually_blocking

pytestmark = pytest.mark.vm

SUBTREE = "colo-vm-own"
SLEEP = RunSpec(command=("sleep", "3600"))
INTENT = StopIntent(cause=EndCause.STOPPED, reason=Reason.CANCELLED, kill_at_ms=0)
BATCH = CgroupTree(str(CGROUP_ROOT), SUBTREE)
ONLINE = CgroupTree(str(CGROUP_ROOT), f"{SUBTREE}-online")


@pytest.fixture
def policy(tmp_path: Path) -> ProcessPolicy:
    return ProcessPolicy(users=AS_ROOT, state_dir=str(tmp_path / "state"), subtree=SUBTREE)


@pytest.fixture
async def runtime(policy: ProcessPolicy) -> AsyncIterator[ProcessRuntime]:
    async with unchanged(policy) as made:
        yield made


def placed(index: int, qos: QosClass, cpus: CpuSet | None = None, *, zone: int = 0, run: RunSpec = SLEEP) -> Placement:
    """A replica of two CPUs; batch work is placed in one zone."""
    band = PriorityBand.BATCH if qos is QosClass.BE else PriorityBand.PROD
    own = "" if cpus is None else cpus.format()
    made = a_placement(f"web/main/{index}", mcpu=2_000, zone=zone)
    return replace(made, qos=qos, band=band, cpus=own, run=run, memory_bytes=128 << 20)


async def end(runtime: ProcessRuntime, index: int) -> None:
    await runtime.signal(SignalReplica(replica=f"web/main/{index}", attempt=1, signal="kill", intent=INTENT))

    async def look() -> bool:
        return bool(runtime.poll_exits())

    await eventually(look, "an exit", limit_s=120)


def sets_of(tree: CgroupTree, group: str) -> tuple[str, str]:
    """What the kernel holds in the two files of the group."""
    return tree.value(Knob.CPUSET_CPUS, group), tree.value(Knob.CPUSET_MEMS, group)


def cores() -> tuple[list[CpuSet], int]:
    """Two CPUs each, all of the last zone, and that zone."""
    zone = observed_topology()[0].zones[-1]
    cpus = list(CpuSet.parse(zone.cpus))
    return [CpuSet.from_iterable(cpus[at : at + 2]) for at in range(0, len(cpus) - 1, 2)], zone.zone


async def test_own_cpus_come_with_the_memory_of_their_zone(runtime: ProcessRuntime) -> None:
    (first, second, *_), zone = cores()
    for index, (qos, cpus) in enumerate([(QosClass.LSE, first), (QosClass.LSR, second)]):
        launched = await start(runtime, placed(index, qos, cpus))
        assert sets_of(ONLINE, f"{qos.value.lower()}.web.main.{index}@1") == (cpus.format(), str(zone))
        shown = {Path(knob.path).name: knob.value for knob in launched.knobs}
        assert (shown["cpuset.cpus"], shown["cpuset.mems"]) == (cpus.format(), str(zone))
        for knob in launched.knobs:
            assert (CGROUP_ROOT / knob.path).read_text().strip() == knob.value
        assert status_of(launched.pid, "Cpus_allowed_list") == cpus.format()
        assert status_of(launched.pid, "Mems_allowed_list") == str(zone)
    wide = await start(runtime, replace(placed(2, QosClass.LS), cpu_policy=CpuPolicy.NONE))
    assert status_of(wide.pid, "Cpus_allowed_list") == (every_cpu() - first - second).format()
    assert status_of(wide.pid, "Mems_allowed_list") == every_zone().format()
    near = CpuSet.parse(observed_topology()[0].zones[-1].cpus)
    shared = await start(runtime, placed(4, QosClass.LS, zone=zone))
    # Of a zone whose CPUs are all somebody's own the shared work runs on those of the others; its memory stays.
    left = near - first - second or every_cpu() - first - second
    assert status_of(shared.pid, "Cpus_allowed_list") == left.format()
    assert status_of(shared.pid, "Mems_allowed_list") == str(zone)
    across = CpuSet.from_iterable([min(every_cpu()), max(every_cpu() - first - second)])
    both = await start(runtime, placed(3, QosClass.LSR, across))
    zones = [zone.zone for zone in observed_topology()[0].zones if CpuSet.parse(zone.cpus) & across]
    assert status_of(both.pid, "Mems_allowed_list") == CpuSet.from_iterable(zones).format()


async def test_both_pools_are_rewritten_as_online_work_comes_and_goes(runtime: ProcessRuntime) -> None:
    (first, second, *_), zone = cores()
    every, near = every_cpu(), CpuSet.parse(observed_topology()[0].zones[-1].cpus)
    batch = await start(runtime, placed(0, QosClass.BE, zone=zone))
    shared = await start(runtime, placed(1, QosClass.LS, zone=zone))

    def seen() -> tuple[str, ...]:
        tier, group = sets_of(BATCH, "batch")[0], sets_of(BATCH, "batch/web.main.0@1")[0]
        pool = sets_of(ONLINE, "ls.web.main.1@1")[0]
        assert sets_of(BATCH, "")[0] == tier
        assert [status_of(one.pid, "Cpus_allowed_list") for one in (batch, shared)] == [group, pool]
        return tier, group, pool

    untouched = (every.format(), near.format(), near.format())
    assert seen() == untouched
    await start(runtime, placed(2, QosClass.LSE, first))
    assert seen() == ((every - first).format(), (near - first).format(), (near - first).format())
    await start(runtime, placed(3, QosClass.LSR, second))
    # The shared work of a zone whose CPUs are all somebody's own runs on those of the others.
    left = (near - first - second or every - first - second).format()
    assert seen() == ((every - first).format(), (near - first).format(), left)
    await end(runtime, 2)
    assert seen() == (every.format(), near.format(), (near - second).format())
    # What was shared with batch work becomes exclusive, in the hands of another one.
    await end(runtime, 3)
    await start(runtime, placed(4, QosClass.LSE, second))
    assert seen() == ((every - second).format(), (near - second).format(), (near - second).format())
    await end(runtime, 4)
    assert seen() == untouched
    # CPUs that a kubelet pinned stay batch work's, and are no online work's.
    assert await runtime.keep_cpus(KeptCpus(pinned=first)) == ""
    assert seen() == (every.format(), near.format(), (near - first).format())
    assert await runtime.keep_cpus(KeptCpus(withheld=second)) == ""
    assert seen() == ((every - second).format(), (near - second).format(), (near - second).format())
    assert await runtime.keep_cpus(KeptCpus()) == ""
    assert seen() == untouched
    # A whole zone of its own: batch work of that zone goes to the others rather than nowhere, and comes back.
    await start(runtime, placed(5, QosClass.LSE, near))
    tier, group, pool = seen()
    assert tier == pool == (every - near).format()
    assert group
    assert not CpuSet.parse(group) & near
    await end(runtime, 5)
    assert seen() == untouched


async def test_what_cannot_be_had_is_refused_and_changes_no_file(runtime: ProcessRuntime) -> None:
    (first, *_), zone = cores()
    await start(runtime, placed(0, QosClass.BE, zone=zone))
    await start(runtime, placed(1, QosClass.LSR, first))
    before = settings_of(CGROUP_ROOT)
    for index, cpus in enumerate((first, every_cpu() - first, CpuSet.parse("500"), CpuSet()), start=2):
        failed = await runtime.launch(placed(index, QosClass.LSE, cpus), 1)
        if cpus == every_cpu() - first:
            # LSR's CPUs stay batch work's: that is enough for it.
            assert not isinstance(failed, LaunchFailed)
            await end(runtime, index)
        else:
            assert isinstance(failed, LaunchFailed)
            assert failed.reason is Reason.CPUS_SHORT
        assert settings_of(CGROUP_ROOT) == before


async def test_suppression_of_batch_work_leaves_online_work_alone(policy: ProcessPolicy) -> None:
    before = settings_of(CGROUP_ROOT)
    runtime = ProcessRuntime(policy)
    shell = ExecutorShell(runtime, SystemClock(), policy=ReflexPolicy(rule="usage"), period_ms=20, metrics=Metrics())
    await shell.load()
    floor_mcpu = ReflexPolicy().suppress.floor_mcpu
    count = len(every_cpu())
    loops = f"for i in $(seq {count - 1}); do (while :; do :; done) & done; while :; do :; done"
    try:
        await start(runtime, placed(0, QosClass.BE, run=FOUR_LOOPS))
        anywhere = placed(1, QosClass.LS, run=RunSpec(command=("sh", "-c", loops)))
        await start(runtime, replace(anywhere, cpu_policy=CpuPolicy.NONE))
        group = "ls.web.main.1@1"

        async def suppressed() -> bool:
            shell.turn()
            return runtime.ceiling_mcpu == floor_mcpu

        await eventually(suppressed, "the floor", limit_s=120)
        assert BATCH.quota_us("batch") == floor_mcpu * 100
        assert (ONLINE.quota_us(""), ONLINE.quota_us(group)) == (-1, -1)
        used_us, batch_us = ONLINE.cpu_used_us(group), BATCH.cpu_used_us("batch")
        eventually_blocking(
            lambda: ONLINE.cpu_used_us(group) - used_us > 1_000_000 * count, "online work to run", limit_s=120
        )
        assert BATCH.cpu_used_us("batch") - batch_us < (ONLINE.cpu_used_us(group) - used_us) // 4
        assert throttled(ONLINE, group) == 0
    finally:
        await runtime.restore()
        await runtime.close()
    assert settings_of(CGROUP_ROOT) == before
