"""Values that stay what they are in a real kernel, whoever writes to them, and replicas that die where everything wants the CPU."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from colo_common.model.cpuset import CpuSet
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.workload import RunSpec
from colo_executor.cgroup import CgroupTree
from colo_executor.knob_table import UNLIMITED, Knob
from colo_executor.local import SignalReplica, StopIntent
from colo_executor.order import KnobWrite, cpuset_writes
from colo_executor.process.kill_tier import CONTROLLERS, SUFFIX, KillTier
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from tests.kernel.inside import CGROUP_ROOT, hogs, observed_topology, settings_of, unchanged
from tests.kernel.test_process import FOUR_LOOPS, SPIN, every_cpu, every_zone, status_of
from tests.support.adopted import AS_ROOT
from tests.support.attempts import start
from tests.support.builders import a_placement
from tests.support.waiting import eventually

pytestmark = pytest.mark.vm

SUBTREE: Final = "colo-vm-kept"
TOKEN: Final = "job.main.0@1"
GROUP: Final = f"batch/{TOKEN}"
INTENT: Final = StopIntent(cause=EndCause.EVICTED, reason=Reason.CPU_WATERMARK, kill_at_ms=0)
KILL: Final = SignalReplica(replica="job/main/0", attempt=1, signal="kill", intent=INTENT)


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[ProcessRuntime]:
    """An adopted runtime that leaves neither a changed setting nor a group of its own."""
    async with unchanged(ProcessPolicy(users=AS_ROOT, state_dir=str(tmp_path / "state"), subtree=SUBTREE)) as made:
        yield made
    assert not list(CGROUP_ROOT.glob(f"**/{SUBTREE}*"))


@pytest.fixture
def stranger() -> CgroupTree:
    """Somebody else who writes to the same groups."""
    return CgroupTree(str(CGROUP_ROOT), SUBTREE)


@pytest.fixture
def crowd() -> Iterator[CgroupTree]:
    """A group of other work."""
    tree = CgroupTree(str(CGROUP_ROOT), f"{SUBTREE}-crowd")
    tree.make("")
    tree.write(KnobWrite(path="", knob=Knob.CPUSET_CPUS, value=every_cpu().format()))
    tree.write(KnobWrite(path="", knob=Knob.CPUSET_MEMS, value=every_zone().format()))
    yield tree
    assert tree.remove("")


async def test_every_value_that_somebody_else_changed_is_put_back(
    runtime: ProcessRuntime, stranger: CgroupTree
) -> None:
    topology, _ = observed_topology()
    await start(runtime, replace(a_placement(zone=topology.zones[-1].zone), run=SPIN))
    runtime.set_ceiling(1_500)
    assert await runtime.reconcile() is None, "nothing is taken for a drift that is none"
    before = settings_of(*CGROUP_ROOT.glob(f"**/{SUBTREE}"))
    for knob, path, value in (
        (Knob.CPU_IDLE, "", 0),
        (Knob.CPU_QUOTA, "batch", UNLIMITED),
        (Knob.CPUSET_MEMS, GROUP, every_zone().format()),
        (Knob.CPUSET_CPUS, GROUP, every_cpu().format()),
        (Knob.CPU_WEIGHT, GROUP, 10_000),
        (Knob.MEMORY_LIMIT, GROUP, 8 << 30),
        (Knob.PIDS_LIMIT, GROUP, 7),
    ):
        assert stranger.write(KnobWrite(path=path, knob=knob, value=value)).before != ""
    drift = await runtime.reconcile()
    assert drift is not None
    assert drift.failed == ()
    assert len(drift.knobs) == (7 if topology.zones[1:] else 5)
    assert settings_of(*CGROUP_ROOT.glob(f"**/{SUBTREE}")) == before
    assert await runtime.reconcile() is None


async def test_sets_that_were_narrowed_from_below_grow_again_from_above(
    runtime: ProcessRuntime, stranger: CgroupTree
) -> None:
    await start(runtime, replace(a_placement(), run=SPIN))
    own = CpuSet.parse(stranger.value(Knob.CPUSET_CPUS, GROUP))
    least = CpuSet.from_iterable(list(own)[:1])
    have = {"": every_cpu(), "batch": every_cpu(), GROUP: own}
    for write in cpuset_writes(Knob.CPUSET_CPUS, have, dict.fromkeys(have, least)):
        stranger.write(write)
    drift = await runtime.reconcile()
    assert drift is not None
    assert (len(drift.knobs), drift.failed) == (3, ())
    shown = [stranger.value(Knob.CPUSET_CPUS, path) for path in ("", "batch", GROUP)]
    assert shown == [every_cpu().format(), every_cpu().format(), own.format()]


async def test_online_work_keeps_its_own_cpus(runtime: ProcessRuntime) -> None:
    last = list(every_cpu())[-1]
    placement = replace(a_placement(), qos=QosClass.LSE, band=PriorityBand.PROD, cpus=str(last))
    launched = await start(runtime, replace(placement, run=RunSpec(command=("sleep", "3600"))))
    assert await runtime.reconcile() is None
    other = CgroupTree(str(CGROUP_ROOT), f"{SUBTREE}-online")
    group = f"lse.{TOKEN}"
    other.write(KnobWrite(path=group, knob=Knob.CPUSET_CPUS, value=every_cpu().format()))
    drift = await runtime.reconcile()
    assert drift is not None
    assert [knob.value for knob in drift.knobs] == [str(last)]
    assert status_of(launched.pid, "Cpus_allowed_list") == str(last)


async def test_a_replica_dies_with_its_own_cpus_and_memory_and_without_giving_way(
    runtime: ProcessRuntime, crowd: CgroupTree
) -> None:
    topology, _ = observed_topology()
    zone = topology.zones[-1]
    launched = await start(runtime, replace(a_placement(zone=zone.zone, mcpu=4_000), run=FOUR_LOOPS))
    runtime.set_ceiling(200)
    home = CgroupTree(str(CGROUP_ROOT), SUBTREE)
    leaving = KillTier(CgroupTree(str(CGROUP_ROOT), f"{SUBTREE}{SUFFIX}", controllers=CONTROLLERS))
    with hogs(crowd, "", tuple(every_cpu())):
        leaving.move_out(home, GROUP, TOKEN)
        assert home.pids(GROUP) == ()
        assert launched.pid in leaving.tree.pids(TOKEN)
        assert status_of(launched.pid, "Cpus_allowed_list") == zone.cpus
        assert status_of(launched.pid, "Mems_allowed_list") == str(zone.zone)
        await runtime.signal(KILL)

        async def look() -> bool:
            return bool(runtime.poll_exits())

        await eventually(look, "the end", limit_s=120)
    assert leaving.tree.children("") == ()
    assert leaving.tree.remove("")
