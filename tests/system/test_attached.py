"""A service that somebody else started, as a replica: attached to its group, and let go with the group as it was. Needs root."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_collector.attached_groups import SetAttachedGroups
from colo_collector.discover import Workload
from colo_collector.files import FileReader
from colo_collector.machine import Machine
from colo_collector.readings import SampleRead
from colo_common.events.enforcement import AttachedGroup
from colo_common.model.cpuset import CpuSet
from colo_common.model.placement import Placement
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.workload import AttachSpec, ResourceLimits, RunSpec
from colo_executor.knob_table import Knob
from colo_executor.local import LaunchFailed, SignalReplica, StopIntent
from colo_executor.order import KnobWrite
from colo_executor.process.machine import online_cpus
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from colo_executor.unmanaged import UnmanagedGroup
from tests.support.adopted import AS_ROOT, adopted
from tests.support.attempts import next_exit, start
from tests.support.builders import a_placement
from tests.support.manual_clock import ManualClock
from tests.support.other_service import OtherService, other_service
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(len(online_cpus("/sys")) < 2, reason="two CPUs are needed"),
]

ALL = online_cpus("/sys")
FIRST = ALL.first(1)
MIB = 1 << 20
TOP = f"others-{os.getpid()}"
INTENT = StopIntent(cause=EndCause.STOPPED, reason=Reason.CANCELLED, kill_at_ms=0)


@pytest.fixture
def service() -> Iterator[OtherService]:
    with other_service(TOP) as made:
        yield made


@pytest.fixture
def policy(tmp_path: Path, service: OtherService) -> ProcessPolicy:
    return ProcessPolicy(
        users=AS_ROOT,
        state_dir=str(tmp_path / "state"),
        subtree=f"colo-attach-{os.getpid()}",
        attach=(f"{TOP}/*", f"{TOP}/*/*"),
    )


@pytest.fixture
async def runtime(policy: ProcessPolicy) -> AsyncIterator[ProcessRuntime]:
    async with adopted(policy) as made:
        yield made


def placed(
    qos: QosClass = QosClass.LS,
    *,
    index: int = 0,
    cpus: str = "",
    mcpu: int = 4_000,
    limits: ResourceLimits | None = None,
    band: PriorityBand = PriorityBand.PROD,
    **attach: object,
) -> Placement:
    run = RunSpec(attach=AttachSpec(**{"cgroup": f"{TOP}/web", **attach}), limits=limits)  # type: ignore[arg-type]
    return replace(a_placement(f"web/main/{index}"), qos=qos, band=band, cpus=cpus, cpu_mcpu=mcpu, run=run, zones=())


async def stop(runtime: ProcessRuntime, signal: str = "term") -> None:
    await runtime.signal(SignalReplica(replica="web/main/0", attempt=1, signal=signal, intent=INTENT))  # type: ignore[arg-type]


def value(service: OtherService, knob: Knob, group: str = "web") -> str:
    return service.tree.value(knob, group)


async def test_a_running_service_has_what_online_work_has_until_it_is_let_go(
    runtime: ProcessRuntime, service: OtherService
) -> None:
    process, before = service.start(), service.values()
    limits = ResourceLimits(cpu_mcpu=8_000, memory_bytes=512 * MIB)
    launched = await start(runtime, placed(limits=limits))
    assert (launched.pid, launched.group) == (process.pid, service.path)
    assert service.tree.read(Knob.CPU_WEIGHT, "web") >= 4_000
    assert value(service, Knob.MEMORY_LIMIT) == str(512 * MIB)
    assert service.tree.quota_us("web") == 800_000
    assert not runtime.has_batch
    await stop(runtime)
    exited = await next_exit(runtime)
    assert (exited.exit_code, exited.oom) == (None, False)
    assert exited.detail == f"{service.path} runs on without colo"
    assert exited.memory_peak_bytes > 0
    assert service.values() == before
    assert process.poll() is None, "its process runs on"
    assert process.pid in service.tree.pids("web")


async def test_a_better_weight_stays_and_what_somebody_changes_is_put_right(
    runtime: ProcessRuntime, service: OtherService
) -> None:
    service.start()
    service.tree.write(KnobWrite(path="web", knob=Knob.CPU_WEIGHT, value=9_000))
    shown = value(service, Knob.CPU_WEIGHT)
    await start(runtime, placed())
    assert value(service, Knob.CPU_WEIGHT) == shown
    service.tree.write(KnobWrite(path="web", knob=Knob.CPU_WEIGHT, value=10))
    drift = await runtime.reconcile()
    assert drift is not None
    assert [knob.path.rpartition("/")[0].endswith(service.path) for knob in drift.knobs] == [True]
    assert service.tree.read(Knob.CPU_WEIGHT, "web") >= 4_000
    assert await runtime.reconcile() is None


async def test_own_cpus_are_its_own_and_other_work_gets_them_back(
    runtime: ProcessRuntime, service: OtherService
) -> None:
    process, before = service.start(), service.values()
    batch = replace(a_placement("films/main/0"), run=RunSpec(command=("sleep", "60")), zones=())
    other = await start(runtime, batch)
    inner = _inner(service)
    await start(runtime, placed(QosClass.LSE, cpus=FIRST.format(), mcpu=1_000))
    assert [_allowed(pid) for pid in (process.pid, inner.pid, other.pid)] == [FIRST, FIRST, ALL - FIRST]
    again = await runtime.launch(
        replace(placed(QosClass.LSE, cpus=FIRST.format(), mcpu=1_000), replica="web/main/1"), 1
    )
    assert isinstance(again, LaunchFailed)
    await runtime.reconcile()
    assert runtime.open_cpus.groups, "processes of this test run everywhere"
    assert TOP not in runtime.open_cpus.groups, "it is no other's"
    await stop(runtime)
    await next_exit(runtime)
    assert [_allowed(pid) for pid in (process.pid, inner.pid, other.pid)] == [ALL, ALL, ALL]
    assert service.values() == before


async def test_shared_work_keeps_off_cpus_that_become_somebody_elses(
    runtime: ProcessRuntime, service: OtherService
) -> None:
    process, before = service.start(), service.values()
    await start(runtime, placed())
    assert _allowed(process.pid) == ALL
    owner = replace(
        placed(QosClass.LSR, index=7, cpus=FIRST.format(), mcpu=1_000), run=RunSpec(command=("sleep", "60"))
    )
    await start(runtime, owner)
    assert _allowed(process.pid) == ALL - FIRST
    await runtime.signal(SignalReplica(replica="web/main/7", attempt=1, signal="kill", intent=INTENT))
    await next_exit(runtime)
    assert _allowed(process.pid) == ALL
    await stop(runtime)
    await next_exit(runtime)
    assert service.values() == before


async def test_a_tenant_whom_the_operator_does_not_name_gets_no_group_and_changes_nothing(
    policy: ProcessPolicy, service: OtherService
) -> None:
    service.start()
    before = service.values()
    async with adopted(replace(policy, attach=(f"{TOP}/*=red|blue",))) as runtime:
        refused = await runtime.launch(replace(placed(), tenant="green"), 1)
        assert isinstance(refused, LaunchFailed)
        assert refused.reason is Reason.RUNTIME_ABSENT
        assert refused.detail == (
            f"{service.path} may not be attached by tenant green: the operator of this node names others for it"
            " (process_attach)"
        )
        assert service.values() == before
        await start(runtime, replace(placed(), tenant="blue"))
        assert service.values() != before


async def test_a_stop_ends_the_processes_where_the_job_says_so(runtime: ProcessRuntime, service: OtherService) -> None:
    stubborn = service.start("trap '' TERM; while :; do sleep 0.05; done")
    await start(runtime, placed(kill_on_stop=True))
    gentle = service.start("exec sleep 600")
    await stop(runtime)
    assert gentle.wait(10) == -15
    assert stubborn.poll() is None
    await stop(runtime, "kill")
    exited = await next_exit(runtime)
    assert stubborn.wait(10) == -9
    assert "has no process any more" in exited.detail
    assert service.tree.exists("web"), "the group is its owner's"


async def test_the_attachment_ends_with_the_group_and_never_touches_a_later_one_of_its_name(
    runtime: ProcessRuntime, service: OtherService
) -> None:
    service.start("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exec sleep 600")
    await start(runtime, placed())

    async def has_used() -> bool:
        return service.tree.cpu_used_us("web") > 10_000

    await eventually(has_used, "CPU time")
    service.remove()
    service.make()
    service.tree.write(KnobWrite(path="web", knob=Knob.CPU_WEIGHT, value=77))
    service.start()
    later = service.values()
    exited = await next_exit(runtime)
    assert (exited.exit_code, exited.oom) == (None, False)
    assert "who started them knows how they ended" in exited.detail
    assert service.values() == later
    assert await runtime.reconcile() is None
    launched = await start(runtime, replace(placed(), attempt=2))
    assert launched.group == service.path


async def test_a_later_group_of_the_name_is_left_alone_before_the_end_of_the_first_is_seen(
    runtime: ProcessRuntime, service: OtherService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.start()
    await start(runtime, placed())
    monkeypatch.setattr("colo_executor.process.attached.AttachedTier.ended", lambda tier: [])
    service.remove()
    service.make()
    service.start()
    later = service.values()
    assert await runtime.reconcile() is None
    assert service.values() == later
    monkeypatch.undo()
    await next_exit(runtime)
    assert service.values() == later


async def test_an_executor_that_was_killed_finds_what_it_had_attached(
    policy: ProcessPolicy, service: OtherService
) -> None:
    process, before = service.start(), service.values()
    killed_executor(policy, service)
    attached = service.values()
    assert attached != before
    async with adopted(policy) as runtime:
        assert service.values() == attached
        assert await runtime.reconcile() is None
        refused = await runtime.launch(placed(index=1), 1)
        assert isinstance(refused, LaunchFailed)
        assert "is attached already" in refused.detail
        await stop(runtime)
        await next_exit(runtime)
        assert service.values() == before
    assert process.poll() is None


async def test_an_attachment_that_ended_while_no_executor_ran_has_ended(
    policy: ProcessPolicy, service: OtherService
) -> None:
    service.start()
    killed_executor(policy, service)
    service.remove()
    service.make()
    service.start()
    later = service.values()
    runtime = ProcessRuntime(policy)
    try:
        found = await runtime.adopt(1)
        assert [(one.alive, one.placement.replica, one.group) for one in found.replicas] == [
            (False, "web/main/0", service.path)
        ]
        await next_exit(runtime)
        assert service.values() == later
    finally:
        await runtime.restore()
        await runtime.close()


async def test_a_start_that_was_killed_between_journal_and_kernel_is_finished(
    policy: ProcessPolicy, service: OtherService
) -> None:
    service.start()
    before = service.values()
    killed_executor(policy, service, "half")
    assert service.values() == before
    runtime = ProcessRuntime(policy)
    try:
        found = await runtime.adopt(1)
        assert [one.alive for one in found.replicas] == [True]
        assert service.tree.read(Knob.CPU_WEIGHT, "web") >= 4_000
    finally:
        await runtime.restore()
        await runtime.close()
    assert service.values() == before


async def test_restore_puts_the_group_back_and_ends_nothing_of_it(policy: ProcessPolicy, service: OtherService) -> None:
    process, before = service.start(), service.values()
    killed_executor(policy, service)
    assert service.values() != before
    # As `colo node restore` does it: nothing is adopted first.
    runtime = ProcessRuntime(policy)
    await runtime.restore()
    await runtime.close()
    assert service.values() == before
    assert process.poll() is None


async def test_what_may_not_be_attached_is_refused_in_words_and_nothing_changes(
    runtime: ProcessRuntime, policy: ProcessPolicy, service: OtherService
) -> None:
    service.start()
    inner = _inner(service)
    service.tree.make("empty")
    before = service.values()
    cases = (
        ({"cgroup": f"{TOP}/missing"}, "there is no control group"),
        ({"cgroup": f"{TOP}/empty"}, "has no process"),
        ({"cgroup": f"{TOP}/../{policy.subtree}"}, "process_attach"),
        ({"cgroup": TOP}, "process_attach"),
        ({"cgroup": f"{policy.subtree}/batch"}, "a group of the executor's own"),
        ({"cgroup": f"{policy.subtree}-online"}, "a group of the executor's own"),
        ({"cgroup": "", "unit": "no-such-unit.service"}, "no-such-unit.service"),
        ({"band": PriorityBand.MID}, "only online work"),
    )
    for index, (change, says) in enumerate(cases):
        failed = await runtime.launch(placed(index=index, **change), 1)  # type: ignore[arg-type]
        assert isinstance(failed, LaunchFailed)
        assert failed.reason is Reason.RUNTIME_ABSENT
        assert says in failed.detail
    assert service.values() == before
    await start(runtime, placed())
    for index, path in enumerate((f"{TOP}/web", f"{TOP}/web/inner"), start=20):
        failed = await runtime.launch(placed(index=index, cgroup=path), 1)
        assert isinstance(failed, LaunchFailed)
        assert "is attached already, or one within the other" in failed.detail
    assert inner.poll() is None


async def test_a_unit_is_found_by_its_name_where_no_systemd_runs(policy: ProcessPolicy, service: OtherService) -> None:
    if os.path.isdir("/run/systemd/system"):
        pytest.skip("systemd runs here, and knows its units itself")
    unit = OtherService(TOP, f"colo-test-{os.getpid()}.service")
    unit.start()
    try:
        async with adopted(policy) as runtime:
            launched = await start(runtime, placed(cgroup="", unit=unit.name))
            assert launched.group == unit.path
            twin = OtherService(TOP, f"web/{unit.name}")
            await stop(runtime)
            await next_exit(runtime)
            failed = await runtime.launch(placed(index=3, cgroup="", unit=unit.name), 1)
            assert isinstance(failed, LaunchFailed)
            assert "may be" in failed.detail
            twin.remove()
    finally:
        unit.end()


async def test_limits_that_the_group_exceeds_already_are_refused_and_undone(
    runtime: ProcessRuntime, service: OtherService
) -> None:
    service.start('head -c 64m /dev/zero | tail -c +1 | { x=$(tr "\\\\0" a | head -c 16000000); exec sleep 600; }')

    async def is_large() -> bool:
        return service.tree.memory_used_bytes("web") > 8 * MIB

    await eventually(is_large, "memory in use")
    before = service.values()
    failed = await runtime.launch(placed(limits=ResourceLimits(memory_bytes=4 * MIB)), 1)
    assert isinstance(failed, LaunchFailed)
    assert failed.reason is Reason.CGROUP_REFUSED
    assert "more than memory_most_bytes" in failed.detail
    assert service.values() == before


async def test_the_operators_policy_and_an_attachment_of_one_group_are_kept_together(
    policy: ProcessPolicy, service: OtherService
) -> None:
    service.start()
    before = service.values()
    kept = UnmanagedGroup(group=f"{TOP}/web", weight_least=6_000, memory_most_bytes=900 * MIB)
    async with adopted(replace(policy, unmanaged=(kept,))) as runtime:
        with_policy = service.values()
        await start(runtime, placed())
        assert service.tree.read(Knob.CPU_WEIGHT, "web") >= 6_000
        assert value(service, Knob.MEMORY_LIMIT) == str(900 * MIB)
        await stop(runtime)
        await next_exit(runtime)
        assert service.values() == with_policy
    assert service.values() == before


async def test_the_collector_measures_the_group_as_the_replica_and_as_nothing_else(service: OtherService) -> None:
    service.start()
    clock = ManualClock()
    listed = Workload(name="web-server", path=f"/{service.path}", qos=QosClass.LS, band=PriorityBand.PROD)
    machine = Machine(FileReader(), subtree="colo", online=(listed,), labels={}, clock=clock)
    attached = AttachedGroup(replica="web/main/0", attempt=1, qos=QosClass.LS, group=service.path)
    try:
        names = [await _sampled(machine, clock)]
        machine.set_attached_groups(SetAttachedGroups(groups=(attached,)))
        names.append(await _sampled(machine, clock))
        machine.set_attached_groups(SetAttachedGroups())
        names.append(await _sampled(machine, clock))
    finally:
        machine.close()
    assert names == [{"web-server": ""}, {"web/main/0#1": "web/main/0"}, {"web-server": ""}]


# ------------------------------------------------------------ what the stories need


async def _sampled(machine: Machine, clock: ManualClock) -> dict[str, str]:
    """Name and replica of what the second of two samples shows."""
    machine.observe()

    async def look() -> dict[str, str] | None:
        event = machine.observe().event
        if not isinstance(event, SampleRead) or not event.workloads:
            return None
        return {one.workload: one.replica for one in event.workloads if TOP not in one.workload}

    found = await eventually(look, "a sample with workloads")
    assert found is not None
    return found


def _inner(service: OtherService) -> subprocess.Popen[bytes]:
    """A process in a group that the service made in its own."""
    inner = OtherService(TOP, "web/inner")
    process = inner.start()
    service.processes.append(process)
    return process


def _allowed(pid: int) -> CpuSet:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("Cpus_allowed_list:"):
            return CpuSet.parse(line.split()[1])
    raise AssertionError("the kernel tells no CPUs")


def killed_executor(policy: ProcessPolicy, service: OtherService, mode: str = "attach") -> None:
    """An executor that attached the service, or was about to (`half`), and was killed."""
    words = (
        sys.executable,
        "-m",
        "tests.system.process_executor",
        policy.state_dir,
        policy.subtree,
        mode,
        service.path,
    )
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        if mode == "half":
            assert process.wait(30) == 9
        else:
            assert process.stdout.readline() == b"started\n"
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
