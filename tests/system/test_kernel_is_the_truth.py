"""What runs is read from this machine's kernel: whatever becomes of the journal and its disk, a start ends nothing that runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from colo_common.events.enforcement import ReplicaEnded
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import Placement
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.workload import ResourceLimits, RunSpec
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.knob_table import UNLIMITED, Knob
from colo_executor.local import (
    CeilingWritten,
    LaunchFailed,
    RememberEnd,
    ReplicaExited,
    SignalReplica,
    StopIntent,
    SuspendReplicas,
)
from colo_executor.not_restored import NotRestored
from colo_executor.order import KnobWrite
from colo_executor.process import ending
from colo_executor.process.launch import attempt_dir, exit_status
from colo_executor.process.machine import start_ticks
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from colo_executor.unmanaged import UnmanagedGroup
from tests.support.adopted import AS_ROOT, adopted
from tests.support.attempts import next_exit, start
from tests.support.builders import a_placement
from tests.support.covered_group import covered_group
from tests.support.other_service import other_service
from tests.support.small_disk import small_disk_at
from tests.support.waiting import eventually

pytestmark = pytest.mark.kernel

ROOT = "/sys/fs/cgroup"
INTENT = StopIntent(cause=EndCause.STOPPED, reason=Reason.CANCELLED, kill_at_ms=0)


@pytest.fixture
def policy(tmp_path: Path) -> Iterator[ProcessPolicy]:
    policy = ProcessPolicy(users=AS_ROOT, state_dir=str(tmp_path / "state"), subtree=f"colo-truth-{os.getpid()}")
    yield policy
    left = left_of(policy)
    for name in {path.name for path in left}:
        tree = CgroupTree(ROOT, name)
        tree.kill("")
        tree.remove("")
    assert not left, "control groups were left behind"


def left_of(policy: ProcessPolicy) -> list[Path]:
    """The groups of the subtree and of those beside it, under whichever controller."""
    return [*Path(ROOT).glob(f"*/{policy.subtree}*"), *Path(ROOT).glob(f"{policy.subtree}*")]


def a_run(script: str, replica: str = "job/main/0") -> Placement:
    return replace(a_placement(replica, mcpu=500), run=RunSpec(command=("sh", "-c", script)), memory_bytes=64 << 20)


def an_online_run(script: str, replica: str = "web/main/0") -> Placement:
    return replace(a_run(script, replica), qos=QosClass.LS, band=PriorityBand.PROD)


def kill(replica: str = "job/main/0") -> SignalReplica:
    return SignalReplica(replica=replica, attempt=1, signal="kill", intent=INTENT)


def lose_everything(state_dir: Path) -> None:
    shutil.rmtree(state_dir)


def flip_a_bit(state_dir: Path) -> None:
    """Damage the line of every launch, and of the boot."""
    lines = (state_dir / "journal").read_bytes().splitlines()
    damaged = [line.replace(b'"type"', b'"tyqe"') for line in lines]
    (state_dir / "journal").write_bytes(b"\n".join(damaged) + b"\n")


def another_boot(state_dir: Path) -> None:
    """An id of the boot that cannot be read: what runs is what counts."""
    lines = [line for line in (state_dir / "journal").read_bytes().splitlines() if b'"booted"' not in line]
    (state_dir / "journal").write_bytes(b"\n".join(lines) + b"\n")


@pytest.mark.parametrize("loss", [lose_everything, flip_a_bit, another_boot], ids=lambda loss: loss.__name__)
async def test_what_the_journal_lacks_is_adopted_by_its_group_and_told_when_it_ends(policy, tmp_path, loss):
    go = tmp_path / "go"
    first = ProcessRuntime(policy)
    await first.adopt(1)
    script = f"touch {tmp_path}/$COLO_JOB; while [ ! -e {go} ]; do sleep 0.05; done; exit 7"
    placements = (a_run(script), an_online_run(script))
    pids = {placement.replica: (await start(first, placement)).pid for placement in placements}

    async def both_run() -> bool:
        return all((tmp_path / job).exists() for job in ("job", "web"))

    await eventually(both_run, "both commands to begin")
    await first.close()
    loss(Path(policy.state_dir))
    second = ProcessRuntime(policy)
    try:
        found = await second.adopt(2)
        assert {one.placement.replica: (one.pid, one.alive) for one in found.replicas} == {
            replica: (pid, True) for replica, pid in pids.items()
        }
        for one, placement in zip(found.replicas, placements, strict=True):
            assert one.placement.memory_bytes == placement.memory_bytes
            assert abs(one.placement.cpu_mcpu - placement.cpu_mcpu) <= 30
            assert (one.placement.qos, one.placement.band) == (placement.qos, placement.band)
        if loss is not another_boot:
            assert [remark for remark in found.remarks if "adopted by its control group" in remark]
        assert second.has_batch
        go.touch()
        ends: list[ReplicaExited] = []

        async def look() -> bool:
            ends.extend(second.poll_exits())
            return len(ends) == 2

        await eventually(look, "two ends")
        assert {exited.exit_code for exited in ends} == {7}
        assert CgroupTree(ROOT, policy.subtree).children("batch") == ()
    finally:
        await second.restore()
        await second.close()


async def a_suspended_replica_of_before(policy: ProcessPolicy) -> None:
    """Start a replica, suspend it, and leave it to the next executor."""
    first = ProcessRuntime(policy)
    await first.adopt(1)
    await start(first, a_run("sleep 60"))
    done = await first.suspend(SuspendReplicas(attempts=(("job/main/0", 1),), is_suspended=True))
    assert done.failed == ()
    await first.close()


async def test_restore_ends_what_an_executor_of_before_suspended(policy):
    await a_suspended_replica_of_before(policy)
    second = ProcessRuntime(policy)
    try:
        await second.restore()
    finally:
        await second.close()
    assert left_of(policy) == []


async def test_restore_without_its_journal_removes_the_groups_and_says_what_it_cannot_know(policy):
    first = ProcessRuntime(policy)
    await first.adopt(1)
    for placement in (a_run("sleep 60"), an_online_run("sleep 60")):
        await start(first, placement)
    await first.close()
    lose_everything(Path(policy.state_dir))
    second = ProcessRuntime(policy)
    try:
        with pytest.raises(NotRestored, match="did not know of .*: what colo changed in groups of others is not known"):
            await second.restore()
    finally:
        await second.close()
    assert left_of(policy) == []


async def test_restore_after_a_journal_that_was_lost_and_begun_again_names_the_values_that_nobody_knows(policy):
    with other_service(f"colo-others-{os.getpid()}") as service:
        service.tree.write(KnobWrite(path=service.name, knob=Knob.CPU_WEIGHT, value=300))
        kept = UnmanagedGroup(group=service.path, weight_least=1_024, cpu_most_mcpu=1_500)
        policy = replace(policy, unmanaged=(kept,))
        first = ProcessRuntime(policy)
        await first.adopt(1)
        await first.close()
        lose_everything(Path(policy.state_dir))
        second = ProcessRuntime(policy)
        found = await second.adopt(1)
        assert [remark for remark in found.remarks if "restore names and leaves them" in remark]
        await second.close()
        third = ProcessRuntime(policy)
        weight, quota = (service.tree.path_of(knob, service.name) for knob in (Knob.CPU_WEIGHT, Knob.CPU_QUOTA))
        try:
            with pytest.raises(NotRestored) as refused:
                await third.restore()
        finally:
            await third.close()
        named = str(refused.value)
        assert named.startswith(f"the journal in {policy.state_dir} did not know of ")
        assert "Left as they are, with values that may be colo's: " in named
        for path in (weight, quota):
            assert f"{path} (holds {service.tree.text_at(path).strip()})" in named
        assert service.tree.value(Knob.CPU_WEIGHT, service.name) == "1024"
        # It was told, and nothing is left to do.
        async with adopted(policy):
            pass
    assert left_of(policy) == []


async def test_a_process_that_cannot_put_the_machine_back_ends_with_one_sentence_and_code_2(policy):
    words = {
        "process-state-dir": policy.state_dir,
        "process-subtree": policy.subtree,
        "on-exit": "restore",
        # Nobody listens there.
        "nats-url": "nats://127.0.0.1:1",
        "http-port": "-1",
    }
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "colo_executor",
            *(word for key, value in words.items() for word in (f"--{key}", value)),
        ),
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    tree = CgroupTree(ROOT, policy.subtree)
    other = await asyncio.create_subprocess_exec("sleep", "600")
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            while "service-started" not in (await process.stderr.readline()).decode():
                assert process.returncode is None
        # Somebody else's process in a group of ours, which the kernel does not remove with it.
        Path(tree.hierarchy.mounts["cpu"], tree.name, "cgroup.procs").write_text(str(other.pid))
        process.terminate()
        out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
        other.kill()
        await other.wait()
    lines = err.decode().splitlines()
    assert process.returncode == 2, err
    assert "Traceback" not in err.decode() + out.decode()
    assert re.fullmatch(
        rf"colo executor: process_cgroup_root: is not as it was before colo: .*{policy.subtree} could not be removed.*",
        lines[-1],
    )
    async with adopted(policy):
        pass
    assert left_of(policy) == []


async def test_what_the_kernel_holds_and_no_journal_knows_is_killed_by_an_order(policy):
    await a_suspended_replica_of_before(policy)
    lose_everything(Path(policy.state_dir))
    async with adopted(policy) as second:
        await second.signal(kill())
        assert (await next_exit(second)).replica == "job/main/0"


async def test_a_group_that_is_none_of_colos_is_left_alone_and_named(policy):
    first = ProcessRuntime(policy)
    await first.adopt(1)
    await first.close()
    tree = CgroupTree(ROOT, policy.subtree)
    tree.make("batch/somebodys")
    other = await asyncio.create_subprocess_exec("sleep", "60")
    Path(tree.hierarchy.mounts["cpu"], policy.subtree, "batch/somebodys/cgroup.procs").write_text(str(other.pid))
    second = ProcessRuntime(policy)
    try:
        found = await second.adopt(1)
        assert found.replicas == ()
        assert [remark for remark in found.remarks if "somebodys is no replica of colo and is left alone" in remark]
        assert other.returncode is None
    finally:
        other.kill()
        await other.wait()
        await second.restore()
        await second.close()


async def test_two_executors_with_different_state_cannot_share_a_subtree(policy, tmp_path):
    async with adopted(policy):
        with pytest.raises(CgroupError, match="another executor uses the control group"):
            ProcessRuntime(replace(policy, state_dir=str(tmp_path / "another")))


async def test_an_executor_with_another_subtree_is_refused_while_replicas_run_in_the_one_that_it_had(policy):
    other = replace(policy, subtree=f"{policy.subtree}x")
    runtime = ProcessRuntime(policy)
    await runtime.adopt(1)
    launched = await start(runtime, an_online_run("sleep 60"))
    await runtime.close()
    try:
        with pytest.raises(
            InvalidInput, match=rf'process_subtree: must be {policy.subtree} .*\(got "{other.subtree}"\)'
        ):
            ProcessRuntime(other)
        assert start_ticks("/proc", launched.pid) is not None
    finally:
        async with adopted(policy) as later:
            assert launched.pid in later._online.tree.pids("ls.web.main.0@1")
    # Nothing of it is left.
    async with adopted(other) as moved:
        assert isinstance(moved.set_ceiling(900), CeilingWritten)


async def test_a_deleted_tier_is_made_again_with_its_ceiling(policy):
    async with adopted(policy) as runtime:
        assert isinstance(runtime.set_ceiling(700), CeilingWritten)
        tree = CgroupTree(ROOT, policy.subtree)
        assert tree.remove("batch")
        drift = await runtime.reconcile()
        assert drift is not None
        assert {knob.before for knob in drift.knobs} == {"deleted"}
        assert tree.quota_us("batch") == 70_000
        assert await runtime.reconcile() is None
        assert tree.remove("batch")
        # And for whoever comes first.
        await start(runtime, a_run("exit 0"))
        assert tree.quota_us("batch") == 70_000
        assert (await next_exit(runtime)).exit_code == 0


async def test_a_ceiling_is_written_whatever_others_wrote_beside_it(policy):
    limited = replace(a_run("sleep 60"), run=RunSpec(command=("sleep", "60"), limits=ResourceLimits(cpu_mcpu=600)))
    async with adopted(policy) as runtime:
        await start(runtime, limited)
        assert isinstance(runtime.set_ceiling(700), CeilingWritten)
        tree = CgroupTree(ROOT, policy.subtree)
        # A burst as large as the quota, and another period on this and on the group in it: the kernel judges them together.
        has_bursts = Knob.CPU_BURST in tree.has()
        if has_bursts:
            tree.write(KnobWrite(path="batch", knob=Knob.CPU_BURST, value=70_000))
        if Knob.CPU_PERIOD in tree.has():
            tree.write(KnobWrite(path="batch", knob=Knob.CPU_PERIOD, value=50_000))
            tree.write(KnobWrite(path="batch/job.main.0@1", knob=Knob.CPU_PERIOD, value=60_000))
        assert isinstance(runtime.set_ceiling(300), CeilingWritten)
        assert [tree.quota_us(group) for group in ("batch", "batch/job.main.0@1")] == [30_000, 30_000]
        if has_bursts:
            assert tree.value(Knob.CPU_BURST, "batch") == "30000"
        assert isinstance(runtime.set_ceiling(900), CeilingWritten)
        assert [tree.quota_us(group) for group in ("batch", "batch/job.main.0@1")] == [90_000, 60_000]


async def test_what_an_operator_changes_of_paused_work_stays_until_the_pause_is_over(policy):
    async with adopted(policy) as runtime:
        await start(runtime, a_run("sleep 60"))
        await start(runtime, an_online_run("sleep 60"))
        batch, online = CgroupTree(ROOT, policy.subtree), CgroupTree(ROOT, f"{policy.subtree}-online")
        places = [(batch, f"batch/{name}") for name in batch.children("batch")]
        places += [(online, name) for name in online.children("")]
        for tree, group in places:
            tree.write(KnobWrite(path=group, knob=Knob.PIDS_LIMIT, value=77))
        drift = await runtime.reconcile(paused=[("job/main/0", 1)])
        assert drift is not None
        assert [(knob.value, knob.before) for knob in drift.yielded] == [("4096", "77")]
        assert [(knob.value, knob.before) for knob in drift.knobs] == [("4096", "77")]
        assert [tree.value(Knob.PIDS_LIMIT, group) for tree, group in places] == ["77", "4096"]
        drift = await runtime.reconcile()
        assert drift is not None
        assert [tree.value(Knob.PIDS_LIMIT, group) for tree, group in places] == ["4096", "4096"]


async def test_a_service_of_the_node_gets_what_the_operator_says_and_all_is_put_back(policy):
    # Made as a service manager makes it: it is none of the executor's, and stays.
    service = CgroupTree(ROOT, f"service-{os.getpid()}")
    service.make("")
    service.make("daemon")
    knobs = (Knob.CPU_WEIGHT, Knob.CPU_QUOTA, Knob.MEMORY_LIMIT)
    service.write(KnobWrite(path="daemon", knob=Knob.CPU_WEIGHT, value=2))
    before = [service.value(knob, "daemon") for knob in knobs]
    group = UnmanagedGroup(
        group=f"{service.name}/daemon", weight_least=1_024, cpu_most_mcpu=1_500, memory_most_bytes=64 << 20
    )
    try:
        async with adopted(replace(policy, unmanaged=(group,))) as runtime:
            kept = [service.read(knob, "daemon") for knob in knobs]
            assert kept[1:] == [150_000, 64 << 20]
            assert int(kept[0] or 0) >= 1_000
            service.write(KnobWrite(path="daemon", knob=Knob.CPU_QUOTA, value=UNLIMITED))
            drift = await runtime.reconcile(observes=True)
            assert drift is not None
            assert service.quota_us("daemon") == UNLIMITED
            drift = await runtime.reconcile()
            assert drift is not None
            assert [knob.path for knob in drift.knobs] == [
                knob.path for knob in drift.knobs if service.name in knob.path
            ]
            assert service.quota_us("daemon") == 150_000
            assert await runtime.reconcile() is None
        assert [service.value(knob, "daemon") for knob in knobs] == before
    finally:
        assert service.remove("daemon")
        assert service.remove("")


@pytest.mark.skipif(
    not Path(ROOT, "cpu").is_dir(), reason="only cgroup v1 keeps a quota within that of the group above"
)
async def test_quotas_of_groups_in_each_other_are_kept_and_put_back_in_whatever_order_the_kernel_takes_them(policy):
    top = f"colo-nested-{os.getpid()}"
    with other_service(top) as service:
        service.tree.write(KnobWrite(path=service.name, knob=Knob.CPU_QUOTA, value=150_000))
        before = service.values()
        named = tuple(
            UnmanagedGroup(group=group, cpu_most_mcpu=most) for group, most in ((top, 1_000), (service.path, 500))
        )
        wanted = replace(policy, unmanaged=named)

        def quotas() -> list[int]:
            return [service.tree.quota_us(group) for group in ("", service.name)]

        # All at once, at the start: the group inside has more than the one around it is to have.
        runtime = ProcessRuntime(wanted)
        await runtime.adopt(1)
        assert quotas() == [100_000, 50_000]
        assert await runtime.reconcile() is None
        await runtime.close()
        async with adopted(policy):
            assert (quotas(), service.values()) == ([UNLIMITED, 150_000], before)
        async with adopted(wanted):
            assert quotas() == [100_000, 50_000]
        assert (quotas(), service.values()) == ([UNLIMITED, 150_000], before)


@pytest.mark.skipif(
    not Path(ROOT, "cpu").is_dir(), reason="only cgroup v1 keeps a quota within that of the group above"
)
async def test_a_value_that_the_kernel_refused_stays_with_whoever_sets_it_until_one_is_taken(policy):
    top = f"colo-refused-{os.getpid()}"
    with other_service(top) as service:

        def set_quota(group: str, quota_us: int) -> None:
            service.tree.write(KnobWrite(path=group, knob=Knob.CPU_QUOTA, value=quota_us))

        set_quota(service.name, 150_000)
        wanted = replace(policy, unmanaged=(UnmanagedGroup(group=top, cpu_most_mcpu=1_000),))
        # Refused, because the group inside has more; an operator then gives the group another quota.
        runtime = ProcessRuntime(wanted)
        adopted_first = await runtime.adopt(1)
        drift = await runtime.reconcile()
        assert drift is not None
        assert (len(drift.failed), "cpu.cfs_quota_us" in drift.failed[0]) == (1, True), (drift, adopted_first.remarks)
        set_quota("", 300_000)
        await runtime.close()
        # The next executor does not touch it, by its reconcile or by its restore.
        async with adopted(policy) as second:
            assert await second.reconcile() is None
            assert service.tree.quota_us("") == 300_000
        assert service.tree.quota_us("") == 300_000
        async with adopted(wanted):
            set_quota("", 400_000)
        assert service.tree.quota_us("") == 400_000
        # Once one is taken, the old value is the one from just before.
        async with adopted(wanted) as third:
            set_quota("", 250_000)
            set_quota(service.name, 50_000)
            assert await third.reconcile() is not None
            assert service.tree.quota_us("") == 100_000
        assert service.tree.quota_us("") == 250_000


async def test_an_end_is_told_when_its_group_is_gone_and_not_before(policy, monkeypatch):
    async with adopted(policy) as runtime:
        # It puts itself into a group of its own making, as a container's manager does.
        subtree = Path(ROOT, "cpu", policy.subtree, "batch", "job.main.0@1", "its own group")
        if not subtree.parent.parent.exists():
            subtree = Path(ROOT, policy.subtree, "batch", "job.main.0@1", "its own group")
        script = f"mkdir '{subtree}'; sleep 60 & echo $! > '{subtree}/cgroup.procs'; wait"
        await start(runtime, a_run(script))

        async def is_inside() -> list[str]:
            return (subtree / "cgroup.procs").read_text().split() if subtree.exists() else []

        (pid,) = await eventually(is_inside, "the process in a group inside")
        remove = CgroupTree.remove_now
        refused: list[str] = []

        def once_more(tree: CgroupTree, group: str) -> bool:
            if group.startswith("batch/") and len(refused) < 3:
                refused.append(group)
                return False
            return remove(tree, group)

        monkeypatch.setattr(CgroupTree, "remove_now", once_more)
        await runtime.signal(kill())
        exited = await next_exit(runtime)
        assert exited.exit_code == 137
        assert len(refused) == 3
        assert not subtree.parent.exists()
        assert start_ticks("/proc", int(pid)) is None


@pytest.mark.skipif(not Path(ROOT, "freezer").is_dir(), reason="only under cgroup v1 a frozen process does not die")
async def test_what_froze_itself_in_a_group_of_its_own_dies_all_the_same(policy):
    async with adopted(policy) as runtime:
        inner = Path(ROOT, "freezer", policy.subtree, "batch", "job.main.0@1", "its own group")
        script = (
            f"mkdir '{inner}'; sleep 60 & echo $! > '{inner}/cgroup.procs'; echo FROZEN > '{inner}/freezer.state'; wait"
        )
        await start(runtime, a_run(script))

        async def is_frozen() -> bool:
            return inner.exists() and (inner / "freezer.state").read_text() == "FROZEN\n"

        await eventually(is_frozen, "the group inside is frozen")
        await runtime.signal(kill())
        assert (await next_exit(runtime)).exit_code == 137
        assert not inner.parent.exists()


async def test_one_that_does_not_die_delays_no_other(policy, monkeypatch):
    async with adopted(policy) as runtime:
        await start(runtime, a_run("sleep 60"))
        await start(runtime, a_run("sleep 60", "job/main/1"))
        kill_now = CgroupTree.kill_now
        held = asyncio.Event()

        def stays(tree: CgroupTree, group: str) -> bool:
            return False if group.endswith("job.main.0@1") and not held.is_set() else kill_now(tree, group)

        monkeypatch.setattr(CgroupTree, "kill_now", stays)
        for _ in range(20):
            await runtime.signal(kill())
        await runtime.signal(kill("job/main/1"))
        assert (await next_exit(runtime)).replica == "job/main/1"
        assert runtime.has_batch
        held.set()
        assert (await next_exit(runtime)).replica == "job/main/0"


async def test_one_whose_group_cannot_be_removed_is_counted_as_stuck_and_its_end_told_when_it_is_gone(
    policy, monkeypatch
):
    monkeypatch.setattr(ending, "_STUCK_AFTER_S", 0.1)
    async with adopted(policy) as runtime:
        await start(runtime, a_run("sleep 60"))
        await start(runtime, an_online_run("sleep 60"))
        groups = [(CgroupTree(ROOT, policy.subtree), "batch/job.main.0@1"), (runtime._online.tree, "ls.web.main.0@1")]

        async def both_stuck() -> bool:
            return runtime.stuck() == 2

        with capture_logs() as logs, contextlib.ExitStack() as covers:
            for tree, group in groups:
                covers.enter_context(covered_group(tree, group))
            await runtime.signal(kill())
            await runtime.signal(kill("web/main/0"))
            await eventually(both_stuck, "both are counted")
            assert runtime.poll_exits() == ()
        assert {line["group"] for line in logs if line["event"] == "replica-stuck"} == {group for _, group in groups}
        assert {(await next_exit(runtime)).replica for _ in groups} == {"job/main/0", "web/main/0"}
        assert runtime.stuck() == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk_at(tmp_path / "disk") as path:
        yield path


async def test_on_a_full_disk_the_reflex_the_stops_and_the_ends_go_on_and_only_starts_are_refused(policy, small_disk):
    full = replace(policy, state_dir=str(small_disk / "state"))
    first = ProcessRuntime(full)
    await first.adopt(1)
    # A job fills the disk that it shares with the journal.
    launched = await start(first, a_run("while :; do echo 0123456789012345678901234567890123456789 || sleep 60; done"))

    async def is_full() -> bool:
        return os.statvfs(small_disk).f_bavail == 0

    await eventually(is_full, "a full disk")
    assert isinstance(first.set_ceiling(900), CeilingWritten)
    large = a_run("exit 0", "job/main/1")
    large = replace(large, run=replace(large.run, env={"LARGER_THAN_THE_LAST_PAGE": "x" * 20_000}))
    refused = await first.launch(large, 1)
    assert isinstance(refused, LaunchFailed)
    assert "No space left" in refused.detail
    assert CgroupTree(ROOT, policy.subtree).children("batch") == ("job.main.0@1",)
    # It is said while it runs, and not only by the next executor.
    reported: list[str] = []
    with capture_logs() as logs:
        for number in range(500):
            fact = ReplicaEnded(
                node="n1", replica=f"job/late/{number}", job="job", attempt=1, cause=EndCause.EXITED, exit_code=0
            )
            await first.remember(RememberEnd(fact=fact))
        for _ in range(3):
            drift = await first.reconcile()
            assert drift is not None
            assert (drift.knobs, drift.failed) == ((), ())
            reported.append(drift.journal)
    (behind,) = [line for line in logs if line["event"] == "journal-behind"]
    assert behind["path"] == str(small_disk / "state" / "journal")
    assert set(reported) == {
        f"the journal cannot be written: No space left on device ({behind['path']}); {behind['at_risk']}"
    }
    assert first.journal_behind() == 1
    await first.close()
    # The next executor starts on the full disk.
    second = ProcessRuntime(full)
    found = await second.adopt(2)
    assert [(one.pid, one.alive) for one in found.replicas] == [(launched.pid, True)]
    assert CgroupTree(ROOT, policy.subtree).children("batch") == ("job.main.0@1",)
    assert [remark for remark in found.remarks if "the journal cannot be written" in remark]
    assert isinstance(second.set_ceiling(400), CeilingWritten)
    await second.signal(SignalReplica(replica="job/main/0", attempt=1, signal="term", intent=INTENT))
    await second.signal(kill())
    exited = await next_exit(second)
    fact = ReplicaEnded(node="n1", replica="job/main/0", job="job", attempt=1, cause=EndCause.STOPPED, exit_code=137)
    await second.remember(RememberEnd(fact=fact))
    assert exited.replica == "job/main/0"
    # Room again: what could not be written is written by itself.
    shutil.rmtree(small_disk / "state" / "attempts")
    with capture_logs() as logs:
        assert await second.reconcile() is None
    assert [line["event"] for line in logs] == ["journal-caught-up"]
    await second.close()
    async with adopted(full) as third:
        found = await third.adopt(3)
        assert found.ended[-1].replica == "job/main/0"
        await start(third, a_run("exit 0", "job/main/2"))
        assert (await next_exit(third)).exit_code == 0


async def test_the_exit_code_is_on_a_disk_that_is_full_by_then(policy, small_disk, tmp_path):
    async with adopted(replace(policy, output_dir=str(small_disk / "output"))) as runtime:
        go = tmp_path / "go"
        await start(runtime, a_run(f"until [ -e {go} ]; do sleep 0.02; done; exit 7"))
        with contextlib.suppress(OSError):
            (small_disk / "filler").write_bytes(bytes(1 << 20))
        go.touch()
        assert (await next_exit(runtime)).exit_code == 7
        # Also for an executor that is not its parent.
        assert exit_status(attempt_dir(small_disk / "output", "job.main.0@1"), 0) == 7


async def test_a_child_that_was_killed_for_memory_does_not_make_a_good_end_a_bad_one(policy):
    async with adopted(policy) as runtime:
        hog = "head -c 200m /dev/zero | tail > /dev/null"
        await start(runtime, a_run(f"sh -c '{hog}'; exit 0"))
        exited = await next_exit(runtime)
        if Path(ROOT, "cgroup.controllers").exists():
            assert exited.oom, "cgroup v2 ends the whole group"
        else:
            assert (exited.oom, exited.exit_code) == (True, 0), "the core tells from both how it ended"


async def test_a_process_group_that_the_kernel_killed_unasked_is_an_end_like_any_other(policy):
    async with adopted(policy) as runtime:
        launched = await start(runtime, a_run("sleep 60"))
        os.kill(launched.pid, signal.SIGKILL)
        assert (await next_exit(runtime)).exit_code == 137
