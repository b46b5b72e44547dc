"""Online work as real processes: beside the batch tier, on CPUs of its own. Needs root, and leaves nothing behind."""

import errno
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_collector.files import FileReader
from colo_collector.machine import Machine
from colo_collector.readings import SampleRead
from colo_common.events.node import WorkloadUsage
from colo_common.model.cpuset import CpuSet
from colo_common.model.placement import Placement
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.workload import RunSpec
from colo_executor.cgroup import CgroupTree
from colo_executor.kept_cpus import KeptCpus
from colo_executor.knob_table import Knob
from colo_executor.local import LaunchFailed, ReplicaExited, SignalReplica, StopIntent
from colo_executor.process.machine import online_cpus
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from tests.support.adopted import AS_ROOT, adopted
from tests.support.attempts import start
from tests.support.builders import a_placement
from tests.support.manual_clock import ManualClock
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(len(online_cpus("/sys")) < 2, reason="two CPUs are needed"),
]

ROOT = "/sys/fs/cgroup"
INTENT = StopIntent(cause=EndCause.STOPPED, reason=Reason.CANCELLED, kill_at_ms=0)
SLEEP = "sleep 60"
ALL = online_cpus("/sys")
FIRST = ALL.first(1)
REST = ALL - FIRST


@pytest.fixture
def policy(tmp_path: Path) -> Iterator[ProcessPolicy]:
    policy = ProcessPolicy(users=AS_ROOT, state_dir=str(tmp_path / "state"), subtree=f"colo-own-{os.getpid()}")
    before = snapshot()
    yield policy
    assert snapshot() == before, "the machine is not as it was"


def snapshot() -> dict[str, str]:
    """Every group at the top of every hierarchy, and the values of those that are no test's."""
    shown = {}
    for path in Path(ROOT).glob("*/*/cpuset.cpus"):
        shown[str(path)] = path.read_text()
    for path in Path(ROOT).glob("*/colo-own-*"):
        shown[str(path)] = "is there"
    return shown


@pytest.fixture
async def runtime(policy: ProcessPolicy) -> AsyncIterator[ProcessRuntime]:
    async with adopted(policy) as made:
        yield made


def placed(index: int, qos: QosClass, cpus: str = "", *, script: str = SLEEP) -> Placement:
    band = PriorityBand.BATCH if qos is QosClass.BE else PriorityBand.PROD
    run = RunSpec(command=("sh", "-c", script))
    return replace(a_placement(f"web/main/{index}"), qos=qos, band=band, cpus=cpus, run=run, memory_bytes=256 << 20)


async def end(runtime: ProcessRuntime, index: int) -> ReplicaExited:
    await runtime.signal(SignalReplica(replica=f"web/main/{index}", attempt=1, signal="kill", intent=INTENT))

    async def look() -> tuple[ReplicaExited, ...]:
        return runtime.poll_exits()

    (exited,) = await eventually(look, "an exit")
    return exited


def allowed(pid: int) -> CpuSet:
    """Where the kernel lets a process run."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("Cpus_allowed_list:"):
            return CpuSet.parse(line.split()[1])
    raise AssertionError("the kernel tells no CPUs")


async def test_processes_run_where_their_class_says_and_give_their_cpus_back(runtime, policy):
    batch = await start(runtime, placed(0, QosClass.BE))
    shared = await start(runtime, placed(1, QosClass.LS))
    assert (allowed(batch.pid), allowed(shared.pid)) == (ALL, ALL)
    exclusive = await start(runtime, placed(2, QosClass.LSE, FIRST.format()))
    assert [allowed(one.pid) for one in (exclusive, shared, batch)] == [FIRST, REST, REST]
    exited = await end(runtime, 2)
    assert exited.exit_code == 137
    assert (allowed(batch.pid), allowed(shared.pid)) == (ALL, ALL)
    reserved = await start(runtime, placed(3, QosClass.LSR, FIRST.format()))
    assert [allowed(one.pid) for one in (reserved, shared, batch)] == [FIRST, REST, ALL]
    await end(runtime, 3)
    assert allowed(shared.pid) == ALL


async def test_online_work_is_neither_idle_nor_below_the_ceiling(runtime, policy):
    await start(runtime, placed(0, QosClass.BE))
    launched = await start(runtime, placed(1, QosClass.LS))
    tree, own = CgroupTree(ROOT, policy.subtree), CgroupTree(ROOT, f"{policy.subtree}-online")
    group = "ls.web.main.1@1"
    runtime.set_ceiling(100)
    assert (tree.quota_us("batch"), own.quota_us(""), own.quota_us(group)) == (10_000, -1, -1)
    if Knob.CPU_IDLE in tree.has():
        assert (tree.value(Knob.CPU_IDLE, ""), own.value(Knob.CPU_IDLE, "")) == ("1", "0")
    assert launched.pid in own.pids(group)
    for knob in launched.knobs:
        assert (Path(ROOT) / knob.path).read_text().strip() == knob.value
    limit = next(knob for knob in launched.knobs if "memory" in knob.path and "oom" not in knob.path)
    assert limit.value == str(256 << 20)


async def test_use_of_online_work_is_online_load_and_batch_work_is_told_apart(runtime):
    await start(runtime, placed(0, QosClass.LS, script="while :; do :; done"))
    assert not runtime.has_batch

    async def look():
        reading = runtime.read_fast(1)
        return reading if reading is not None and reading.online_used_mcpu > 0 else None

    reading = await eventually(look, "online use")
    assert reading.batch_used_mcpu == 0


async def test_own_cpus_that_are_not_there_or_taken_are_refused_and_nothing_changes(runtime):
    batch = await start(runtime, placed(0, QosClass.BE))
    await start(runtime, placed(1, QosClass.LSR, FIRST.format()))
    for index, (qos, cpus, says) in enumerate(
        [
            (QosClass.LSE, FIRST.format(), "are held by web/main/1"),
            (QosClass.LSE, "8000", "8000 are not online"),
            (QosClass.LSE, "", "was given none"),
            (QosClass.LSE, "nonsense", "must be a list"),
        ],
        start=2,
    ):
        failed = await runtime.launch(placed(index, qos, cpus), 1)
        assert isinstance(failed, LaunchFailed)
        assert failed.reason is Reason.CPUS_SHORT
        assert says in failed.detail
    assert allowed(batch.pid) == ALL


async def test_a_program_that_cannot_start_gives_its_cpus_back(runtime):
    batch = await start(runtime, placed(0, QosClass.BE))
    missing = replace(placed(1, QosClass.LSE, FIRST.format()), run=RunSpec(command=("no-such-program",)))
    failed = await runtime.launch(missing, 1)
    assert isinstance(failed, LaunchFailed)
    assert failed.reason is Reason.START_FAILED
    assert allowed(batch.pid) == ALL
    await start(runtime, placed(1, QosClass.LSE, FIRST.format()))


async def test_the_next_executor_adopts_online_work_and_its_cpus(policy):
    first = ProcessRuntime(policy)
    await first.adopt(1)
    batch = await start(first, placed(0, QosClass.BE))
    exclusive = await start(first, placed(1, QosClass.LSE, FIRST.format()))
    await first.close()
    second = ProcessRuntime(policy)
    try:
        adopted = await second.adopt(2)
        assert {one.placement.replica for one in adopted.replicas if one.alive} == {"web/main/0", "web/main/1"}
        assert (allowed(batch.pid), allowed(exclusive.pid)) == (REST, FIRST)
        failed = await second.launch(placed(2, QosClass.LSR, FIRST.format()), 2)
        assert isinstance(failed, LaunchFailed)
        await end(second, 1)
        assert allowed(batch.pid) == ALL
    finally:
        await second.restore()
        await second.close()


async def test_cpus_that_a_kubelet_pinned_are_only_batch_works_also_for_the_next_executor(policy):
    first = ProcessRuntime(policy)
    await first.adopt(1)
    batch = await start(first, placed(0, QosClass.BE))
    shared = await start(first, placed(1, QosClass.LS))
    assert await first.keep_cpus(KeptCpus(pinned=FIRST)) == ""
    assert (allowed(batch.pid), allowed(shared.pid)) == (ALL, REST)
    await first.close()
    second = ProcessRuntime(policy)
    try:
        await second.adopt(2)
        assert (allowed(batch.pid), allowed(shared.pid)) == (ALL, REST)
        assert await second.keep_cpus(KeptCpus(withheld=FIRST)) == ""
        assert (allowed(batch.pid), allowed(shared.pid)) == (REST, REST)
        assert "none would be left to batch work" in await second.keep_cpus(KeptCpus(withheld=ALL))
        assert await second.keep_cpus(KeptCpus()) == ""
        assert (allowed(batch.pid), allowed(shared.pid)) == (ALL, ALL)
    finally:
        await second.restore()
        await second.close()


async def test_the_collector_sees_online_work_with_its_class_and_zones(runtime, policy):
    await start(runtime, placed(0, QosClass.LSR, FIRST.format(), script="while :; do :; done"))
    clock = ManualClock(1_000)
    machine = Machine(FileReader("/"), subtree=policy.subtree, online=(), labels={}, clock=clock)
    try:
        observed_topology = machine.observe().topology_read
        assert observed_topology is not None
        assert {one.name: one.present for one in observed_topology.capabilities}["online"]

        async def look() -> tuple[WorkloadUsage, ...]:
            event = machine.observe().event
            return event.workloads if isinstance(event, SampleRead) else ()

        (seen,) = await eventually(look, "a sample with the replica")
    finally:
        machine.close()
    assert (seen.workload, seen.replica, seen.attempt) == ("web/main/0#1", "web/main/0", 1)
    assert (seen.qos, seen.band) == (QosClass.LSR, PriorityBand.PROD)
    (cpu,) = FIRST
    assert seen.zones == tuple(zone.zone for zone in observed_topology.topology.zones if cpu in CpuSet.parse(zone.cpus))


async def test_cpus_of_a_launch_that_failed_are_free_when_its_group_is_gone(runtime, monkeypatch):
    remove_now, refused = CgroupTree.remove_now, []

    def busy_at_first(tree: CgroupTree, group: str) -> bool:
        if not refused:
            refused.append(group)
            return False
        return remove_now(tree, group)

    def no_room(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(CgroupTree, "remove_now", busy_at_first)
        patch.setattr("colo_executor.process.launching.make_attempt_dir", no_room)
        failed = await runtime.launch(placed(0, QosClass.LSE, FIRST.format()), 1)
        assert isinstance(failed, LaunchFailed)
        assert refused == ["lse.web.main.0@1"]

    async def starts() -> bool:
        return not isinstance(await runtime.launch(placed(1, QosClass.LSE, FIRST.format()), 1), LaunchFailed)

    await eventually(starts, "its CPUs are given up")
