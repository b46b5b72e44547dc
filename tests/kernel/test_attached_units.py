"""Under systemd: a job attached to a real unit, by its name. What was promised outlasts systemd's own writes, and all goes back."""

from __future__ import annotations

import contextlib
import shutil
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
from colo_executor.local import LaunchFailed, ReplicaExited, SignalReplica, StopIntent
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from tests.kernel.inside import CGROUP_ROOT, reported, settings_of, this_machine
from tests.kernel.test_online import cores
from tests.kernel.test_process import every_cpu, status_of
from tests.support.adopted import AS_ROOT, adopted
from tests.support.attempts import start
from tests.support.builders import a_placement
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.vm,
    pytest.mark.skipif(this_machine().init != "systemd", reason="systemd is not the first process here"),
]

MIB: Final = 1 << 20
UNIT: Final = "shop.service"
GROUP: Final = f"counter.slice/counter-web.slice/{UNIT}"
TOP: Final = CGROUP_ROOT / "counter.slice"
UNIT_FILE: Final = Path("/etc/systemd/system") / UNIT
OF_THE_UNIT: Final = """\
[Unit]
Description=A shop that somebody else runs
[Service]
ExecStart=/bin/sh -c 'while :; do sleep 1; done'
Slice=counter-web.slice
CPUWeight=20
MemoryHigh=200M
TasksMax=50
"""
#: The promise: the weight of two CPUs, its memory, and its limit, as files of the group and as properties of the unit.
FILES: Final = {"cpu.weight": "200", "memory.low": str(64 * MIB), "memory.max": str(256 * MIB)}
PROPERTIES: Final = {"CPUWeight": "200", "MemoryLow": str(64 * MIB), "MemoryMax": str(256 * MIB)}
SILENT: Final = (b"", b"member", b"0")
STOP: Final = SignalReplica(
    replica="shop/main/0",
    attempt=1,
    signal="term",
    intent=StopIntent(cause=EndCause.STOPPED, reason=Reason.CANCELLED, kill_at_ms=0),
)


@pytest.fixture
def unit() -> Iterator[str]:
    """A service with a file of its own, which systemd started; its first process."""
    UNIT_FILE.write_text(OF_THE_UNIT)
    reported("systemctl", "daemon-reload")
    reported("systemctl", "start", UNIT)
    try:
        yield property_of("MainPID")
    finally:
        reported("systemctl", "stop", UNIT, "counter.slice")
        UNIT_FILE.unlink()
        # What a test set until the next boot, as an operator.
        shutil.rmtree(f"/run/systemd/system.control/{UNIT}.d", ignore_errors=True)
        reported("systemctl", "daemon-reload")


@pytest.fixture
def before(unit: str) -> dict[str, bytes]:
    """Every setting of the unit's group and of those above it, before an executor starts."""
    return settings_of(TOP)


@pytest.fixture
def policy(tmp_path: Path) -> ProcessPolicy:
    return ProcessPolicy(
        users=AS_ROOT, state_dir=str(tmp_path / "state"), subtree="colo-vm-unit", attach=("counter.slice/*/*",)
    )


@pytest.fixture
async def runtime(policy: ProcessPolicy, before: dict[str, bytes]) -> AsyncIterator[ProcessRuntime]:
    async with adopted(policy) as made:
        yield made


def placed(qos: QosClass = QosClass.LS, cpus: str = "") -> Placement:
    run = RunSpec(attach=AttachSpec(unit=UNIT), limits=ResourceLimits(memory_bytes=256 * MIB))
    made = a_placement("shop/main/0", mcpu=2_000)
    return replace(made, qos=qos, band=PriorityBand.PROD, cpus=cpus, run=run, memory_bytes=64 * MIB, zones=())


def property_of(name: str, unit: str = UNIT) -> str:
    return reported("systemctl", "show", "-P", name, unit).strip()


def properties() -> dict[str, str]:
    return {name: property_of(name) for name in (*PROPERTIES, "AllowedCPUs", "DropInPaths", "MemoryHigh", "TasksMax")}


def shown(*names: str) -> dict[str, str]:
    return {name: (CGROUP_ROOT / GROUP / name).read_text().strip() for name in names}


def systemd_writes_everything(what: str) -> None:
    """A reload reads the unit's files, and a property that is set makes systemd write every value of the unit."""
    reported("systemctl", "daemon-reload")
    reported("systemctl", "set-property", "--runtime", UNIT, what)


def is_as_before(before: dict[str, bytes], now: dict[str, bytes]) -> None:
    """Byte by byte; a file that the kernel made meanwhile, because systemd handed a controller down, says nothing of its own."""
    assert {path: now.get(path) for path in before} == before
    new = {path: text.strip() for path, text in now.items() if path not in before}
    assert {
        path: text for path, text in new.items() if Path(path).name.startswith("cpuset") and text not in SILENT
    } == {}


async def exits_of(runtime: ProcessRuntime) -> list[ReplicaExited]:
    found: list[ReplicaExited] = []

    async def look() -> bool:
        found.extend(runtime.poll_exits())
        return bool(found)

    await eventually(look, "an exit", limit_s=120)
    return found


async def test_what_was_promised_is_the_units_own_and_outlasts_a_reload_and_goes_with_the_job(
    runtime: ProcessRuntime, unit: str, before: dict[str, bytes]
) -> None:
    had = properties()
    launched = await start(runtime, placed())
    assert (launched.group, str(launched.pid)) == (GROUP, unit)
    assert shown(*FILES) == FILES
    assert {name: property_of(name) for name in PROPERTIES} == PROPERTIES
    systemd_writes_everything("MemoryHigh=210M")
    # Nothing is left for the executor to put right.
    assert shown(*FILES) == FILES
    assert shown("memory.high", "pids.max") == {"memory.high": str(210 * MIB), "pids.max": "50"}
    assert await runtime.reconcile() is None
    systemd_writes_everything("MemoryHigh=200M")
    await runtime.signal(STOP)
    (exit_,) = await exits_of(runtime)
    assert exit_.detail == f"{GROUP} runs on without colo"
    assert {**properties(), "DropInPaths": ""} == {**had, "DropInPaths": ""}
    # Of what was set until the next boot only the operator's is left.
    assert [Path(path).name for path in property_of("DropInPaths").split()] == ["50-MemoryHigh.conf"]
    assert [property_of("DropInPaths", above) for above in ("counter.slice", "counter-web.slice")] == ["", ""]
    is_as_before(before, settings_of(TOP))
    systemd_writes_everything("TasksMax=50")
    is_as_before(before, settings_of(TOP))
    assert (property_of("MainPID"), property_of("NRestarts"), property_of("SubState")) == (unit, "0", "running")


async def test_a_property_that_somebody_sets_meanwhile_is_set_again_and_named(
    runtime: ProcessRuntime, unit: str, before: dict[str, bytes]
) -> None:
    await start(runtime, placed())
    reported("systemctl", "set-property", "--runtime", UNIT, "CPUWeight=5", "MemoryLow=0")
    drift = await runtime.reconcile()
    assert drift is not None
    assert drift.failed == ()
    found = {knob.path.rpartition("/")[2]: (knob.before, knob.value) for knob in drift.knobs}
    assert found == {"cpu.weight": ("5", "200"), "memory.low": ("0", str(64 * MIB))}
    assert {(Path(one.path).name, one.writer) for one in drift.writers} == {
        ("cpu.weight", "systemd"),
        ("memory.low", "systemd"),
    }
    assert shown(*FILES) == FILES
    assert {name: property_of(name) for name in PROPERTIES} == PROPERTIES
    systemd_writes_everything("TasksMax=50")
    assert await runtime.reconcile() is None
    (CGROUP_ROOT / GROUP / "cpu.weight").write_text("6")
    by_hand = await runtime.reconcile()
    assert by_hand is not None
    assert [(one.writer, one.evidence) for one in by_hand.writers] == [
        ("unknown", f"CPUWeight of {UNIT} is 200: systemd did not write what was found")
    ]
    # What is better than what was promised is not taken for a change: a weight that somebody raised stays.
    reported("systemctl", "set-property", "--runtime", UNIT, "CPUWeight=500")
    assert await runtime.reconcile() is None
    assert shown("cpu.weight") == {"cpu.weight": "500"}
    await runtime.restore()
    is_as_before(before, settings_of(TOP))
    assert (property_of("CPUWeight"), property_of("MainPID")) == ("20", unit)


async def test_own_cpus_are_the_units_own_property_and_the_process_follows(
    runtime: ProcessRuntime, unit: str, before: dict[str, bytes]
) -> None:
    pairs, _ = cores()
    await start(runtime, placed(QosClass.LSE, pairs[0].format()))
    assert property_of("AllowedCPUs") == pairs[0].format()
    systemd_writes_everything("TasksMax=50")
    assert shown("cpuset.cpus", "cpuset.cpus.effective") == dict.fromkeys(
        ("cpuset.cpus", "cpuset.cpus.effective"), pairs[0].format()
    )
    assert CpuSet.parse(status_of(int(unit), "Cpus_allowed_list")) == pairs[0]
    assert await runtime.reconcile() is None
    batch = replace(a_placement("films/main/0"), run=RunSpec(command=("sleep", "600")), zones=())
    other = await start(runtime, batch)
    assert CpuSet.parse(status_of(other.pid, "Cpus_allowed_list")) == every_cpu() - pairs[0]
    await runtime.signal(STOP)
    await exits_of(runtime)
    assert property_of("AllowedCPUs") == ""
    assert CpuSet.parse(status_of(int(unit), "Cpus_allowed_list")) == every_cpu()
    is_as_before(before, settings_of(TOP))
    assert property_of("MainPID") == unit


async def test_a_unit_that_stops_ends_the_job_once_and_its_next_start_has_its_own_values(
    runtime: ProcessRuntime, unit: str
) -> None:
    await start(runtime, placed())
    reported("systemctl", "stop", UNIT)
    (exit_,) = await exits_of(runtime)
    assert (exit_.exit_code, exit_.detail) == (
        None,
        f"{GROUP} has no process any more, and who started them knows how they ended",
    )
    assert property_of("Result") == "success"
    reported("systemctl", "start", UNIT)
    assert await runtime.reconcile() is None
    assert runtime.poll_exits() == ()
    assert shown("cpu.weight", "memory.low", "memory.max") == {
        "cpu.weight": "20",
        "memory.low": "0",
        "memory.max": "max",
    }
    assert property_of("DropInPaths") == ""
    failed = await runtime.launch(replace(placed(), run=RunSpec(attach=AttachSpec(unit="no-such.service"))), 1)
    assert isinstance(failed, LaunchFailed)
    assert failed.detail == "attach.unit: systemd runs no unit no-such.service on this node"


async def test_an_executor_that_died_is_followed_by_one_that_keeps_the_same_and_gives_it_back(
    policy: ProcessPolicy, unit: str, before: dict[str, bytes]
) -> None:
    had = properties()
    first = ProcessRuntime(policy)
    await first.adopt(1)
    await start(first, placed())
    await first.close()
    # While no executor runs systemd writes what its unit says, which is what was promised.
    systemd_writes_everything("TasksMax=50")
    assert shown(*FILES) == FILES
    runtime = ProcessRuntime(policy)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(runtime.close)
        adopted_ = await runtime.adopt(2)
        assert [(one.group, one.alive) for one in adopted_.replicas] == [(GROUP, True)]
        assert shown(*FILES) == FILES
        await runtime.restore()
    assert {**properties(), "DropInPaths": ""} == {**had, "DropInPaths": ""}
    is_as_before(before, settings_of(TOP))
    assert (property_of("MainPID"), property_of("NRestarts")) == (unit, "0")
