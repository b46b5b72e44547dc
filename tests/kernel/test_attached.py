"""A service that somebody else started, attached under cgroup v2: its memory is protected with the groups above it, and let go."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from colo_common.model.cpuset import CpuSet
from colo_common.model.placement import Placement
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.workload import AttachSpec, ResourceLimits, RunSpec
from colo_executor.knob_table import Knob
from colo_executor.local import SignalReplica, StopIntent
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from tests.kernel.inside import CGROUP_ROOT, settings_of
from tests.kernel.test_online import cores
from tests.kernel.test_process import every_cpu, status_of
from tests.support.adopted import AS_ROOT, adopted
from tests.support.attempts import start
from tests.support.builders import a_placement
from tests.support.other_service import OtherService, other_service
from tests.support.waiting import eventually

pytestmark = pytest.mark.vm

TOP: Final = "others-vm"
MIB: Final = 1 << 20
STOP: Final = SignalReplica(
    replica="web/main/0",
    attempt=1,
    signal="term",
    intent=StopIntent(cause=EndCause.STOPPED, reason=Reason.CANCELLED, kill_at_ms=0),
)


@pytest.fixture
def service() -> Iterator[OtherService]:
    with other_service(TOP) as made:
        made.start()
        yield made


@pytest.fixture
async def runtime(tmp_path: Path, service: OtherService) -> AsyncIterator[ProcessRuntime]:
    policy = ProcessPolicy(
        users=AS_ROOT, state_dir=str(tmp_path / "state"), subtree="colo-vm-attach", attach=(f"{TOP}/*",)
    )
    async with adopted(policy) as made:
        yield made


def placed(qos: QosClass, cpus: str = "") -> Placement:
    run = RunSpec(attach=AttachSpec(cgroup=f"{TOP}/web"), limits=ResourceLimits(memory_bytes=256 * MIB))
    made = a_placement("web/main/0", mcpu=2_000)
    return replace(made, qos=qos, band=PriorityBand.PROD, cpus=cpus, run=run, memory_bytes=64 * MIB, zones=())


def values() -> dict[str, bytes]:
    """Every setting of the service's group and of the one above it."""
    return {str(path): text for path, text in settings_of(CGROUP_ROOT / TOP).items()}


async def let_go(runtime: ProcessRuntime) -> None:
    await runtime.signal(STOP)

    async def look() -> bool:
        return bool(runtime.poll_exits())

    await eventually(look, "an exit", limit_s=120)


async def test_memory_is_protected_with_the_group_above_and_everything_goes_back(
    runtime: ProcessRuntime, service: OtherService
) -> None:
    before = values()
    await start(runtime, placed(QosClass.LS))
    assert [service.tree.value(Knob.MEMORY_LOW, group) for group in ("", "web")] == [str(64 * MIB)] * 2
    assert service.tree.value(Knob.MEMORY_LIMIT, "web") == str(256 * MIB)
    assert await runtime.reconcile() is None
    await let_go(runtime)
    assert values() == before
    assert service.processes[0].poll() is None


async def test_own_cpus_come_and_go_and_the_process_follows(runtime: ProcessRuntime, service: OtherService) -> None:
    before, (pairs, _) = values(), cores()
    await start(runtime, placed(QosClass.LSE, pairs[0].format()))
    pid = service.processes[0].pid
    assert CpuSet.parse(status_of(pid, "Cpus_allowed_list")) == pairs[0]
    batch = replace(a_placement("films/main/0"), run=RunSpec(command=("sleep", "600")), zones=())
    other = await start(runtime, batch)
    assert CpuSet.parse(status_of(other.pid, "Cpus_allowed_list")) == every_cpu() - pairs[0]
    await let_go(runtime)
    assert CpuSet.parse(status_of(pid, "Cpus_allowed_list")) == every_cpu()
    assert service.tree.value(Knob.CPUSET_CPUS, "web") in ("", every_cpu().format())
    changed = {name for name, text in values().items() if before[name] != text}
    assert {Path(name).name for name in changed} <= {"cpuset.cpus"}
