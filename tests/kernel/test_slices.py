"""Under systemd: slices are its own, and the executor's groups live beside them without either disturbing the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_collector.readings import SampleRead
from colo_common.model.workload import RunSpec
from colo_executor.cgroup import CgroupTree
from colo_executor.knob_table import Knob
from colo_executor.local import ReplicaLaunched
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from colo_executor.unmanaged import UnmanagedGroup
from tests.kernel.inside import CGROUP_ROOT, collector, observed_topology, online, reported, settings_of, this_machine
from tests.support.adopted import AS_ROOT
from tests.support.builders import a_placement
from tests.support.waiting import eventually, eventually_blocking

pytestmark = [
    pytest.mark.vm,
    pytest.mark.skipif(this_machine().init != "systemd", reason="systemd is not the first process here"),
]

SUBTREE = "colo-vm"
SPIN = RunSpec(command=("sh", "-c", "while :; do :; done"))
SERVICE = "/online.slice/online-web.slice/web.service"


@contextlib.contextmanager
def service(*settings: str) -> Iterator[Path]:
    """An online service of one busy loop in a slice of a slice; its control group, while it runs."""
    properties = [word for setting in settings for word in ("-p", setting)]
    command = ["--collect", "--unit=web", "--slice=online-web.slice", *properties, "sh", "-c", "while :; do :; done"]
    reported("systemd-run", "--quiet", *command)
    try:
        yield Path(f"{CGROUP_ROOT}{SERVICE}")
    finally:
        reported("systemctl", "stop", "web.service")


@pytest.fixture
def policy(tmp_path: Path) -> ProcessPolicy:
    return ProcessPolicy(users=AS_ROOT, state_dir=str(tmp_path / "state"), subtree=SUBTREE)


async def launched(runtime: ProcessRuntime) -> ReplicaLaunched:
    made = await runtime.launch(replace(a_placement(zone=observed_topology()[0].zones[-1].zone), run=SPIN), 1)
    assert isinstance(made, ReplicaLaunched), made
    return made


def test_systemd_is_the_first_process_and_the_slices_are_real() -> None:
    assert Path("/proc/1/comm").read_text() == "systemd\n"
    assert reported("systemctl", "show", "-P", "SystemState") == "running\n"
    for name in ("system.slice", "user.slice", "machine.slice", "init.scope"):
        assert reported("systemctl", "show", "-P", "ControlGroup", name) == f"/{name}\n"
        assert (CGROUP_ROOT / name / "cgroup.procs").is_file()
    assert Path("/proc/self/cgroup").read_text() == "0::/system.slice/lab-command.service\n"


def test_a_service_of_a_slice_made_on_the_way_is_where_its_name_says_with_what_it_was_given() -> None:
    with service("CPUWeight=300", "MemoryMax=64M") as group:
        (pid,) = group.joinpath("cgroup.procs").read_text().split()
        assert Path(f"/proc/{pid}/cgroup").read_text() == f"0::{SERVICE}\n"
        assert group.joinpath("cpu.weight").read_text() == "300\n"
        assert group.joinpath("memory.max").read_text() == f"{64 << 20}\n"
    assert not group.exists()


def test_the_collector_measures_a_service_by_the_path_that_systemd_gave_it() -> None:
    with service("CPUAccounting=yes") as group, collector(online(SERVICE)) as machine:
        machine.observe()
        used_us = cpu_used_us(group)
        eventually_blocking(lambda: cpu_used_us(group) - used_us > 2_000_000, "two seconds of work", limit_s=120)
        observation = machine.observe()
    assert isinstance(observation.event, SampleRead), observation
    (workload,) = observation.event.workloads
    # The service's one loop wants one CPU; how much of it there is depends on the machine that emulates this one.
    assert 300 < workload.cpu_used_mcpu < 1_100
    assert workload.memory_used_bytes > 0


def shown(group: Path, names: Iterable[str]) -> dict[str, str]:
    """What these files show; of one that is not there nothing."""
    return {name: group.joinpath(name).read_text().strip() for name in names if group.joinpath(name).exists()}


def property_of_web(name: str) -> str:
    return reported("systemctl", "show", "-P", name, "web.service").strip()


def cpu_used_us(group: Path) -> int:
    return int(group.joinpath("cpu.stat").read_text().split()[1])


async def test_systemd_goes_on_beside_the_executor_and_neither_changes_what_is_the_others(
    policy: ProcessPolicy,
) -> None:
    runtime = ProcessRuntime(policy)
    try:
        await runtime.adopt(1)
        made = await launched(runtime)
        runtime.set_ceiling(2_000)
        own = settings_of(CGROUP_ROOT / SUBTREE)
        # Each of these makes systemd think anew about which controllers the root hands down.
        with service("CPUWeight=300", "AllowedCPUs=0-1") as group:
            assert group.joinpath("cpuset.cpus.effective").read_text() == "0-1\n"
            reported("systemctl", "set-property", "--runtime", "web.service", "CPUQuota=50%")
            assert group.joinpath("cpu.max").read_text() == "50000 100000\n"
        reported("systemctl", "daemon-reload")
        assert settings_of(CGROUP_ROOT / SUBTREE) == own
        tree = CgroupTree(str(CGROUP_ROOT), SUBTREE)
        (token,) = tree.children("batch")
        assert made.pid in tree.pids(f"batch/{token}")
        assert tree.value(Knob.CPUSET_CPUS, f"batch/{token}") == observed_topology()[0].zones[-1].cpus
        assert reported("systemctl", "show", "-P", "SystemState") == "running\n"
    finally:
        await runtime.restore()
        await runtime.close()


async def test_the_executor_leaves_a_service_as_it_was_from_beginning_to_restore(policy: ProcessPolicy) -> None:
    with service("CPUWeight=300", "MemoryMax=64M") as group:
        (pid,) = group.joinpath("cgroup.procs").read_text().split()
        before, all_before = settings_of(group), settings_of(CGROUP_ROOT)
        runtime = ProcessRuntime(policy)
        await runtime.adopt(1)
        await launched(runtime)
        during = settings_of(group)
        assert before.items() <= during.items()
        await runtime.restore()
        await runtime.close()
        assert settings_of(CGROUP_ROOT) == all_before
        assert group.joinpath("cgroup.procs").read_text().split() == [pid]
    assert not (CGROUP_ROOT / SUBTREE).exists()


async def test_what_the_operator_wants_of_a_service_outlasts_a_reload_and_goes_with_restore(
    policy: ProcessPolicy,
) -> None:
    wanted = UnmanagedGroup(group=SERVICE.lstrip("/"), weight_least=1_024, cpu_most_mcpu=1_500, cpus="0-1")
    files = {"cpu.weight": "100", "cpu.max": "150000 100000", "cpuset.cpus": "0-1"}
    with service("CPUWeight=5", "MemoryMax=64M") as group:
        before = shown(group, ("cpu.weight", "cpu.max"))
        runtime = ProcessRuntime(replace(policy, unmanaged=(wanted,)))
        await runtime.adopt(1)

        async def kept() -> bool:
            # Tries again what systemd did not answer in time.
            await runtime.reconcile()
            return shown(group, files) == files and property_of_web("CPUQuotaPerSecUSec") == "1.500000s"

        for at in ("the start", "a reload"):
            await eventually(kept, f"the values after {at}")
            reported("systemctl", "daemon-reload")
            # Makes systemd write the values of its units anew.
            reported("systemctl", "set-property", "--runtime", "web.service", "MemoryMax=65M")
        # Nothing is left for the executor to put right.
        eventually_blocking(lambda: shown(group, files) == files, "the values in the end", limit_s=60)
        assert await runtime.reconcile() is None
        await runtime.restore()
        await runtime.close()
        eventually_blocking(lambda: shown(group, before) == before, "the old values", limit_s=60)
        names = ("CPUWeight", "CPUQuotaPerSecUSec", "AllowedCPUs")
        assert [property_of_web(name) for name in names] == ["5", "infinity", ""]
        # Of what was set until the next boot only the operator's is left.
        assert [Path(path).name for path in property_of_web("DropInPaths").split()] == ["50-MemoryMax.conf"]
        reported("systemctl", "daemon-reload")
        assert [property_of_web(name) for name in names] == ["5", "infinity", ""]


async def test_a_value_that_an_operator_had_set_until_the_next_boot_is_back_as_he_set_it(
    policy: ProcessPolicy,
) -> None:
    wanted = UnmanagedGroup(group=SERVICE.lstrip("/"), weight_least=1_024)
    with service("CPUWeight=5") as group:
        reported("systemctl", "set-property", "--runtime", "web.service", "CPUWeight=7")
        runtime = ProcessRuntime(replace(policy, unmanaged=(wanted,)))
        await runtime.adopt(1)

        async def raised() -> bool:
            await runtime.reconcile()
            return property_of_web("CPUWeight") == "100"

        await eventually(raised, "the least weight", limit_s=120)
        await runtime.restore()
        await runtime.close()
        assert property_of_web("CPUWeight") == "7"
        assert [Path(path).name for path in property_of_web("DropInPaths").split()] == ["50-CPUWeight.conf"]
        eventually_blocking(lambda: shown(group, ("cpu.weight",)) == {"cpu.weight": "7"}, "his weight", limit_s=60)


async def test_memory_of_a_service_is_protected_with_its_slices_also_after_a_reload(policy: ProcessPolicy) -> None:
    low = 8 << 20
    wanted = UnmanagedGroup(group="online.slice/online-web.slice/w*.service", memory_low_bytes=low)
    with service("MemoryMax=64M") as group:
        above = (group.parent.parent, group.parent)

        def protected() -> list[str]:
            return [path.joinpath("memory.low").read_text().strip() for path in (*above, group)]

        before, was = protected(), property_of_web("MemoryLow")
        runtime = ProcessRuntime(replace(policy, unmanaged=(wanted,)))
        await runtime.adopt(1)

        async def kept() -> bool:
            # Tries again what systemd did not answer in time.
            await runtime.reconcile()
            return protected() == [str(low)] * 3 and property_of_web("MemoryLow") == str(low)

        await eventually(kept, "the protection after the start", limit_s=120)
        reported("systemctl", "daemon-reload")
        # Makes systemd write the values of its units anew.
        for unit in ("web.service", "online-web.slice", "online.slice"):
            reported("systemctl", "set-property", "--runtime", unit, "MemoryMax=65M")
        assert protected() == [str(low)] * 3, "systemd writes the same"
        await runtime.restore()
        await runtime.close()
        eventually_blocking(lambda: protected() == before, "the old values", limit_s=60)
        assert property_of_web("MemoryLow") == was


async def test_the_reflex_sees_what_a_service_of_a_slice_uses(policy: ProcessPolicy) -> None:
    runtime = ProcessRuntime(policy)
    try:
        await runtime.adopt(1)
        with service() as group:
            runtime.read_fast(1)
            used_us = cpu_used_us(group)
            eventually_blocking(lambda: cpu_used_us(group) - used_us > 1_000_000, "a second of work", limit_s=120)
            reading = runtime.read_fast(2)
        assert reading is not None
        assert reading.online_used_mcpu > 300
        assert reading.batch_used_mcpu < 100
    finally:
        await runtime.restore()
        await runtime.close()
