"""Real processes in real control groups of this machine: needs root, and leaves nothing behind."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_common.events.enforcement import ReplicaEnded
from colo_common.model.placement import DeviceShare, Placement
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.workload import ResourceLimits, RunSpec
from colo_executor.cgroup import CgroupTree
from colo_executor.desired import DesiredPolicy
from colo_executor.journal import JournalBusy
from colo_executor.knob_table import FENCE, Knob
from colo_executor.local import (
    CeilingWritten,
    FreezeRefused,
    FreezeWritten,
    LaunchFailed,
    RememberEnd,
    ReplicaLaunched,
    SignalReplica,
    StopIntent,
    SuspendReplicas,
)
from colo_executor.order import KnobWrite
from colo_executor.process.kill_tier import CONTROLLERS, SUFFIX, KillTier
from colo_executor.process.machine import start_ticks
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from colo_executor.process.watched import Watched
from tests.support.adopted import AS_ROOT, adopted
from tests.support.attempts import next_exit, start
from tests.support.builders import a_placement
from tests.support.waiting import eventually, eventually_blocking

pytestmark = pytest.mark.kernel

ROOT = "/sys/fs/cgroup"
SPIN = "while :; do :; done"
INTENT = StopIntent(cause=EndCause.STOPPED, reason=Reason.CANCELLED, kill_at_ms=0)


@pytest.fixture
def policy(tmp_path: Path) -> Iterator[ProcessPolicy]:
    """A subtree and a state directory of the test's own; whatever a failed test left is removed."""
    policy = ProcessPolicy(users=AS_ROOT, state_dir=str(tmp_path / "state"), subtree=f"colo-test-{os.getpid()}")
    yield policy
    assert not groups(policy), "control groups were left behind"


@pytest.fixture
async def runtime(policy: ProcessPolicy) -> AsyncIterator[ProcessRuntime]:
    async with adopted(policy) as made:
        yield made


def groups(policy: ProcessPolicy) -> list[str]:
    """Every directory of the subtree and of those beside it, under whichever controller."""
    return sorted(str(path) for path in Path(ROOT).glob(f"*/{policy.subtree}*")) + sorted(
        str(path) for path in Path(ROOT).glob(f"{policy.subtree}*")
    )


def a_run(script: str, *, replica: str = "job/main/0", mcpu: int = 1000, memory_bytes: int = 256 << 20) -> Placement:
    run = RunSpec(command=("sh", "-c", script))
    return replace(a_placement(replica, mcpu=mcpu), run=run, memory_bytes=memory_bytes)


def an_end(placement: Placement) -> ReplicaEnded:
    return ReplicaEnded(
        node="n1",
        replica=placement.replica,
        job=placement.job,
        attempt=placement.attempt,
        cause=EndCause.EXITED,
        exit_code=0,
    )


def signal(name: str, replica: str = "job/main/0") -> SignalReplica:
    return SignalReplica(replica=replica, attempt=1, signal=name, intent=INTENT)


def throttled(tree: CgroupTree, group: str) -> tuple[int, int]:
    """Of the group's periods in which it wanted CPU: how many there were, and in how many the kernel stopped it at its quota."""
    path = Path(tree.hierarchy.mounts["cpu"], tree.name, group, "cpu.stat")
    rows = dict(line.split() for line in path.read_text().splitlines())
    return int(rows["nr_periods"]), int(rows["nr_throttled"])


async def test_a_replica_runs_in_its_own_group_with_the_values_it_was_promised(runtime, policy):
    launched = await start(runtime, a_run(SPIN, mcpu=500))
    shown = {Path(knob.path).name: knob.value for knob in launched.knobs}
    tree = CgroupTree(ROOT, policy.subtree)
    group = "batch/job.main.0@1"
    assert launched.pid in tree.pids(group)
    names = (
        {"cpu.shares": "512", "memory.limit_in_bytes": str(256 << 20)} if tree.version == 1 else {"cpu.weight": "20"}
    )
    assert names.items() <= shown.items()
    for knob in launched.knobs:
        if not knob.path.endswith(FENCE):
            assert (Path(ROOT) / knob.path).read_text().strip() == knob.value
    assert tree.value("cpu-idle", "") == "1", "the whole subtree gives way to everything else"


async def test_a_lower_ceiling_makes_batch_work_burn_less(runtime, policy):
    tree = CgroupTree(ROOT, policy.subtree)
    await start(runtime, a_run(SPIN))
    # The kernel counts in its own periods, in which batch work wanted CPU: how busy others keep the machine changes nothing.
    eventually_blocking(lambda: tree.cpu_used_us("batch") > 300_000, "batch work that is not held back")
    assert throttled(tree, "batch")[1] == 0
    written = runtime.set_ceiling(100)
    assert isinstance(written, CeilingWritten)
    assert tree.quota_us("batch") == 10_000
    used_us, (periods, stops) = tree.cpu_used_us("batch"), throttled(tree, "batch")
    eventually_blocking(
        lambda: throttled(tree, "batch")[1] >= stops + 5, "the kernel to stop it at its quota", limit_s=120
    )
    spent_us, passed = tree.cpu_used_us("batch") - used_us, throttled(tree, "batch")[0] - periods
    # Each period has its quota, the one that had begun too; a CPU may overdraw by a tick before it stops.
    assert spent_us <= (passed + 1) * (10_000 + 4_000 * len(os.sched_getaffinity(0)))
    assert runtime.set_ceiling(100) == CeilingWritten(ceiling_mcpu=100), "nothing is written when nothing changed"


async def test_the_fast_reading_tells_batch_from_online_use(runtime):
    await start(runtime, a_run(SPIN))

    async def look():
        reading = runtime.read_fast(1)
        return reading if reading is not None and reading.batch_used_mcpu > 0 else None

    reading = await eventually(look, "a reading with batch use")
    assert reading.capacity_mcpu == 1000 * len(os.sched_getaffinity(0))
    assert 0 <= reading.online_used_mcpu <= reading.capacity_mcpu + 100
    assert reading.batch_used_mcpu <= reading.capacity_mcpu + 100


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 3", 3), ("kill -SEGV $$", 139), ("sleep 60 & exit 4", 4)],
    ids=["success", "failure", "signal", "leaves a child behind"],
)
async def test_an_end_is_told_with_its_exit_code_and_leaves_no_group(runtime, policy, script, code):
    await start(runtime, a_run(script))
    exited = await next_exit(runtime)
    assert (exited.replica, exited.attempt, exited.exit_code, exited.oom) == ("job/main/0", 1, code, False)
    assert CgroupTree(ROOT, policy.subtree).children("batch") == ()


async def test_sigterm_ends_what_listens_and_sigkill_ends_what_does_not(runtime, policy):
    await start(runtime, a_run(SPIN))
    await runtime.signal(signal("term"))
    assert (await next_exit(runtime)).exit_code == 143
    stubborn = "trap 'echo heard' TERM; echo ready; while :; do sleep 0.05; done"
    await start(runtime, a_run(stubborn, replica="job/main/1"))
    output = Path(policy.state_dir) / "attempts" / "job.main.1@1" / "stdout"
    eventually_blocking(lambda: output.read_text() == "ready\n", "the replica to set its trap")
    await runtime.signal(signal("term", "job/main/1"))
    eventually_blocking(lambda: output.read_text() == "ready\nheard\n", "the replica to hear SIGTERM")
    assert runtime.poll_exits() == ()
    await runtime.signal(signal("kill", "job/main/1"))
    assert (await next_exit(runtime)).exit_code == 137


def a_kill_tier(policy: ProcessPolicy) -> KillTier:
    """The groups in which the executor kills, as another program sees them."""
    return KillTier(CgroupTree(ROOT, f"{policy.subtree}{SUFFIX}", controllers=CONTROLLERS))


def cpu_group(pid: int) -> str:
    """The control group that a process gets its CPU from."""
    rows = (line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines())
    return next(path for _, controllers, path in rows if controllers == "" or "cpu" in controllers.split(","))


async def test_a_killed_replica_dies_where_nobody_is_given_precedence(runtime, policy):
    launched = await start(runtime, a_run(SPIN))
    token, group, home = "job.main.0@1", "batch/job.main.0@1", CgroupTree(ROOT, policy.subtree)
    leaving = a_kill_tier(policy)
    assert cpu_group(launched.pid) == f"/{policy.subtree}/{group}"
    leaving.move_out(home, group, token)
    assert cpu_group(launched.pid) == f"/{policy.subtree}-leaving/{token}"
    assert home.pids(group) == ()
    assert [leaving.tree.value("cpu-idle", path) for path in ("", token)] == ["0", "0"]
    assert leaving.tree.quota_us(token) == -1
    await runtime.signal(signal("kill"))
    assert (await next_exit(runtime)).exit_code == 137
    assert leaving.tree.children("") == ()
    # One that nothing is left of makes no groups.
    assert leaving.kill(home, group, token)
    # The tier that this test made is not in the executor's journal.
    assert leaving.tree.remove("")


async def test_what_an_executor_was_killing_when_it_died_is_ended_by_the_next(policy):
    kill_9(executor(policy, "run", "trap '' TERM; sleep 60"))
    async for runtime in opened_after_crash(policy):
        home, leaving = CgroupTree(ROOT, policy.subtree), a_kill_tier(policy)
        (token,) = home.children("batch")
        leaving.move_out(home, f"batch/{token}", token)
        pids = leaving.tree.pids(token)
        assert pids
        (found,) = (await runtime.adopt(1)).replicas
        assert not found.alive
        assert (await next_exit(runtime)).replica == "job/main/0"
        assert leaving.tree.children("") == ()
        assert leaving.tree.remove("")
        assert [start_ticks("/proc", pid) for pid in pids] == [None] * len(pids)


async def test_who_was_asked_to_end_goes_before_all_other_batch_work(runtime, policy):
    deaf = "trap '' TERM; echo deaf; while :; do sleep 0.05; done"
    await start(runtime, a_run(deaf))
    tree = CgroupTree(ROOT, policy.subtree)
    await runtime.signal(signal("term"))
    assert tree.value(Knob.CPU_WEIGHT, "batch/job.main.0@1") == ("262144" if tree.version == 1 else "10000")
    assert tree.value(Knob.CPU_IDLE, "") == "1", "and gives way to everything else"
    assert await runtime.reconcile() is None


async def test_the_end_of_a_replica_with_a_limit_delays_no_shrink(runtime):
    # Under cgroup v1 the kernel compares quotas with those of a group that was just removed.
    limits = ResourceLimits(cpu_mcpu=1_000)
    for attempt in range(1, 4):
        placement = replace(a_run("exit 0", mcpu=500), attempt=attempt)
        assert isinstance(runtime.set_ceiling(1_500), CeilingWritten)
        await start(runtime, replace(placement, run=replace(placement.run, limits=limits)))
        await next_exit(runtime)
        shrunk = runtime.set_ceiling(300)
        assert isinstance(shrunk, CeilingWritten), shrunk


async def test_a_replica_above_its_memory_is_killed_and_told_so(runtime):
    program = f"{sys.executable} -c 'b = bytearray(1) * (200 << 20)'"
    await start(runtime, a_run(program, memory_bytes=64 << 20))
    exited = await next_exit(runtime)
    assert exited.oom
    assert exited.exit_code == 137


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"command": ()}, "run.command: must name a program"),
        ({"command": ("no-such-program",)}, "run.command[0]: must be a program that exists"),
        ({"command": ("sh", "a\0b")}, "run.command: must be at most"),
        ({"command": ("sh",), "env": {"BAD NAME": "1"}}, "run.env['BAD NAME']"),
    ],
    ids=["no command", "unknown program", "zero byte", "environment"],
)
async def test_what_cannot_be_started_is_refused_with_the_field_and_leaves_nothing(runtime, policy, change, text):
    placement = replace(a_placement(), run=RunSpec(**change))
    failed = await runtime.launch(placement, 1)
    assert isinstance(failed, LaunchFailed)
    assert failed.reason is Reason.START_FAILED
    assert text in failed.detail
    assert CgroupTree(ROOT, policy.subtree).children("batch") == ()


async def test_the_environment_of_a_replica_is_its_own_and_not_the_executors(runtime, policy, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_EXECUTOR", "1")
    await start(runtime, replace(a_run("env; pwd"), run=RunSpec(command=("sh", "-c", "env; pwd"), env={"MINE": "yes"})))
    await next_exit(runtime)
    output = (Path(policy.state_dir) / "attempts" / "job.main.0@1" / "stdout").read_text()
    assert "SECRET_OF_THE_EXECUTOR" not in output
    assert "MINE=yes" in output
    assert "COLO_REPLICA=job/main/0" in output
    assert output.rstrip().endswith("/attempts/job.main.0@1/work")


async def test_no_variable_of_a_job_reaches_a_process_before_it_is_the_jobs_user(policy, tmp_path):
    seen, theirs = tmp_path / "seen", tmp_path / "theirs"
    theirs.mkdir()
    # What the job would like to be run in place of the prefix.
    (theirs / "sh").write_text(f"#!/bin/sh\ntouch {tmp_path}/chosen-by-the-job\n")
    (theirs / "sh").chmod(0o755)
    becomes = "setpriv --reuid=65534 --regid=65534 --clear-groups --"
    prefix = ("sh", "-c", f'cat /proc/$PPID/environ /proc/$$/environ >{seen}; exec {becomes} "$@"', "prefix")
    env = {"LD_PRELOAD": "/theirs.so", "PATH": f"{theirs}:/usr/bin:/bin", "TEXT": "it's\n$HOME `id`"}
    async with adopted(replace(policy, users={}, command_prefix=prefix)) as runtime:
        await start(runtime, replace(a_run("env"), run=RunSpec(command=("env", "-0"), env=env)))
        assert (await next_exit(runtime)).exit_code == 0
    output = (Path(policy.state_dir) / "attempts" / "job.main.0@1" / "stdout").read_text().split("\0")
    assert {f"{name}={value}" for name, value in env.items()} <= set(output)
    assert "PATH=" in seen.read_text()
    assert not [name for name in (*env.values(), "COLO_JOB") if name in seen.read_text()]
    assert not (tmp_path / "chosen-by-the-job").exists()


async def test_a_replica_is_told_its_own_devices_whatever_its_job_says(runtime, policy):
    mine = DeviceShare(kind="gpu", device=1, zone=0, core_pct=50, memory_bytes=8 << 30)
    env = {"CUDA_VISIBLE_DEVICES": "0", "COLO_DEVICES": "all"}
    asked = replace(a_run("env"), run=RunSpec(command=("env",), env=env), devices=(mine,))
    await start(runtime, asked)
    await next_exit(runtime)
    output = (Path(policy.state_dir) / "attempts" / "job.main.0@1" / "stdout").read_text().splitlines()
    shown = sorted(line for line in output if line.startswith(("CUDA_VISIBLE_", "NVIDIA_")))
    assert shown == ["CUDA_VISIBLE_DEVICES=1", "NVIDIA_VISIBLE_DEVICES=1"]
    (devices,) = (line.partition("=")[2] for line in output if line.startswith("COLO_DEVICES="))
    assert json.loads(devices) == [
        {"kind": "gpu", "device": 1, "zone": 0, "core_pct": 50, "memory_bytes": 8 << 30},
    ]


async def test_capped_replicas_follow_the_ceiling_in_an_order_the_kernel_accepts(policy):
    capped = replace(policy, desired=DesiredPolicy(cap_at_request=True))
    async with adopted(capped) as runtime:
        tree = CgroupTree(ROOT, policy.subtree)
        runtime.set_ceiling(1500)
        await start(runtime, a_run("sleep 60", mcpu=1000))
        for ceiling, child in ((300, 300), (2000, 1000), (700, 700), (50, 50), (1500, 1000)):
            written = runtime.set_ceiling(ceiling)
            assert isinstance(written, CeilingWritten), written
            assert tree.quota_us("batch") == ceiling * 100
            assert tree.quota_us("batch/job.main.0@1") == child * 100


async def test_two_executors_cannot_share_a_state_directory(runtime, policy):
    with pytest.raises(JournalBusy):
        ProcessRuntime(policy)


def executor(policy: ProcessPolicy, mode: str, *scripts: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.system.process_executor", policy.state_dir, policy.subtree, mode, *scripts]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def kill_9(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.kill()
    process.wait()
    process.stdout.close()


async def test_after_kill_9_what_runs_is_adopted_and_what_ended_unseen_is_told_with_its_code(policy, tmp_path):
    go = tmp_path / "go"
    waits = f"while [ ! -e {go} ]; do sleep 0.02; done; "
    kill_9(executor(policy, "run", "sleep 60", waits + "exit 7", waits + f"sleep 0; [ -e {go}2 ] || exit 5; exit 6"))
    go.touch()
    ended = Path(policy.state_dir) / "attempts" / "job.main.1@1" / "status"
    eventually_blocking(lambda: ended.read_text().strip() == "7", "the replica to end while no executor lives")
    # The shell that wrote it ends a moment later.
    group = CgroupTree(ROOT, policy.subtree)
    eventually_blocking(lambda: not group.pids("batch/job.main.1@1"), "its last process to end")
    runtime = ProcessRuntime(policy)
    try:
        adopted = await runtime.adopt(1)
        found = {one.placement.replica: one.alive for one in adopted.replicas}
        assert found["job/main/0"] is True
        assert found["job/main/1"] is False
        codes = {}

        async def look() -> bool:
            codes.update({exited.replica: exited.exit_code for exited in runtime.poll_exits()})
            return len(codes) == 2

        await eventually(look, "two ends")
        assert codes == {"job/main/1": 7, "job/main/2": 5}
        await runtime.signal(signal("term"))
        exited = await next_exit(runtime)
        assert exited.replica == "job/main/0"
        assert exited.exit_code == 143, "the code of a process that is not our child is known all the same"
        assert exited.cpu_used_ms >= 0
    finally:
        await runtime.restore()
        await runtime.close()


async def test_a_stop_under_way_is_remembered_over_kill_9(policy):
    kill_9(executor(policy, "stop", "trap '' TERM; while :; do sleep 0.05; done"))
    async for runtime in opened_after_crash(policy):
        adopted = await runtime.adopt(1)
        (found,) = adopted.replicas
        assert found.stop is not None
        # What is left of its grace, by the clock of this executor.
        assert 1 < found.stop.kill_at_ms <= 1 + 600_000


async def opened_after_crash(policy: ProcessPolicy) -> AsyncIterator[ProcessRuntime]:
    made = ProcessRuntime(policy)
    try:
        yield made
    finally:
        await made.restore()
        await made.close()


async def test_a_crash_before_the_gate_opens_runs_nothing_of_the_command(policy, tmp_path):
    trace = tmp_path / "ran"
    process = executor(policy, "gate", f"touch {trace}; sleep 60")
    assert process.wait(60) == 9
    assert process.stdout is not None
    process.stdout.close()
    async for runtime in opened_after_crash(policy):
        adopted = await runtime.adopt(1)
        assert [one.placement.replica for one in adopted.replicas] == ["job/main/0"]
        # Either it is seen as gone already, or it goes now: the shell's input has ended.
        assert (await next_exit(runtime)).exit_code in (125, None)
    assert not trace.exists()


async def test_ends_are_remembered_for_the_next_executor(policy):
    first = ProcessRuntime(policy)
    await first.adopt(1)
    placement = a_run("exit 0")
    await start(first, placement)
    await next_exit(first)
    await first.remember(RememberEnd(fact=an_end(placement)))
    await first.close()
    async for second in opened_after_crash(policy):
        adopted = await second.adopt(1)
        assert adopted.replicas == ()
        assert [fact.replica for fact in adopted.ended] == ["job/main/0"]


async def test_what_somebody_else_changed_is_put_back_and_nothing_is_written_otherwise(runtime, policy):
    launched = await start(runtime, a_run("sleep 60"))
    runtime.set_ceiling(500)
    assert await runtime.reconcile() is None
    tree = CgroupTree(ROOT, policy.subtree)
    changed = {}
    for knob, group, value in (
        (Knob.CPU_IDLE, "", 0),
        (Knob.CPU_QUOTA, "batch", -1),
        (Knob.CPU_WEIGHT, "batch/job.main.0@1", 512),
        # v1 keeps the limit of memory below that of memory and swap, where it counts swap.
        *([(Knob.MEMORY_SWAP_LIMIT, "batch/job.main.0@1", 2 << 30)] if Knob.MEMORY_SWAP_LIMIT in tree.has() else []),
        (Knob.MEMORY_LIMIT, "batch/job.main.0@1", 1 << 30),
    ):
        belongs = tree.value(knob, group)
        written = tree.write(KnobWrite(path=group, knob=knob, value=value))
        changed[written.path] = (belongs, written.value)
    drift = await runtime.reconcile()
    assert drift is not None
    assert drift.failed == ()
    assert {knob.path: (knob.value, knob.before) for knob in drift.knobs} == changed
    for path, (belongs, _) in changed.items():
        assert (Path(ROOT) / path).read_text().strip() == belongs
    assert await runtime.reconcile() is None
    assert launched.pid in tree.pids("batch/job.main.0@1")


async def test_batch_work_does_not_swap_unless_it_may(policy):
    for desired, swap_bytes in ((DesiredPolicy(), 0), (DesiredPolicy(swap_most_bytes=64 << 20), 64 << 20)):
        async with adopted(replace(policy, desired=desired)) as runtime:
            await start(runtime, a_run("sleep 60"))
            tree = CgroupTree(ROOT, policy.subtree)
            if not {Knob.MEMORY_SWAP_LIMIT, Knob.SWAP_LIMIT} & tree.has():
                pytest.skip("this kernel counts no swap")
            limit = int(tree.value(Knob.MEMORY_LIMIT, "batch/job.main.0@1"))
            if tree.version == 1:
                assert int(tree.value(Knob.MEMORY_SWAP_LIMIT, "batch/job.main.0@1")) == limit + swap_bytes
            else:
                assert int(tree.value(Knob.SWAP_LIMIT, "batch/job.main.0@1")) == swap_bytes
            # Both directions of a change of somebody else, which the kernel takes in one order only.
            if tree.version == 1:
                for factor in (2, 1 / 2):
                    both = (Knob.MEMORY_SWAP_LIMIT, Knob.MEMORY_LIMIT)
                    for knob in both if factor > 1 else reversed(both):
                        tree.write(KnobWrite(path="batch/job.main.0@1", knob=knob, value=int(limit * factor)))
                    drift = await runtime.reconcile()
                    assert drift is not None
                    assert (len(drift.knobs), drift.failed) == (2, ())
            assert await runtime.reconcile() is None
            await runtime.restore()


async def test_a_kernel_that_keeps_a_launch_waiting_delays_nothing_and_the_launch_is_undone(
    policy, tmp_path, monkeypatch
):
    mark, may_go_on, attach = tmp_path / "mark", threading.Event(), CgroupTree.attach
    late = a_run(f"echo ran > {mark}; sleep 60", replica="job/main/0")

    def blocked(tree: CgroupTree, group: str, pid: int) -> None:
        if "job.main.0" in group:
            may_go_on.wait(60)
        attach(tree, group, pid)

    monkeypatch.setattr(CgroupTree, "attach", blocked)
    async with adopted(replace(policy, launch_most_s=0.2)) as runtime:
        refused = await runtime.launch(late, 1)
        assert isinstance(refused, LaunchFailed)
        assert (refused.reason, refused.detail) == (
            Reason.CGROUP_REFUSED,
            "the kernel did not take the process within 0.2 s: a write to a control group is blocked",
        )
        other = await start(runtime, a_run("sleep 60", replica="job/main/1"))
        await runtime.signal(SignalReplica(replica=other.replica, attempt=1, signal="kill", intent=INTENT))
        assert (await next_exit(runtime)).replica == "job/main/1"
        may_go_on.set()

        async def is_undone() -> bool:
            return not list(Path(ROOT).glob(f"*/{policy.subtree}/batch/job.main.0@1"))

        await eventually(is_undone, "the group of the late launch is gone")
        assert not mark.exists()
        assert isinstance(await runtime.launch(late, 1), ReplicaLaunched)


async def test_a_kernel_that_takes_nothing_is_asked_for_two_launches_and_no_more(policy, monkeypatch):
    may_go_on, attach = threading.Event(), CgroupTree.attach

    def blocked(tree: CgroupTree, group: str, pid: int) -> None:
        may_go_on.wait(60)
        attach(tree, group, pid)

    monkeypatch.setattr(CgroupTree, "attach", blocked)
    async with adopted(replace(policy, launch_most_s=0.2)) as runtime:
        answers = [await runtime.launch(a_run("sleep 60", replica=f"job/main/{index}"), 1) for index in range(4)]
        may_go_on.set()
        assert [answer.detail.partition(":")[0] for answer in answers if isinstance(answer, LaunchFailed)] == [
            "the kernel did not take the process within 0.2 s",
            "the kernel did not take the process within 0.2 s",
            "2 earlier launches still wait for the kernel to take their processes",
            "2 earlier launches still wait for the kernel to take their processes",
        ]

        async def takes_again() -> bool:
            return isinstance(await runtime.launch(a_run("sleep 60", replica="job/main/2"), 1), ReplicaLaunched)

        await eventually(takes_again, "a launch")


async def test_restore_ends_everything_and_removes_every_group(policy):
    runtime = ProcessRuntime(policy)
    await runtime.adopt(1)
    launched = await start(runtime, a_run(SPIN))
    assert groups(policy)
    exits = await runtime.restore()
    await runtime.close()
    assert [exited.replica for exited in exits] == ["job/main/0"]
    assert not groups(policy)
    assert not Path(f"/proc/{launched.pid}").exists()


def suspend(is_suspended: bool, *replicas: str) -> SuspendReplicas:
    return SuspendReplicas(attempts=tuple((replica, 1) for replica in replicas), is_suspended=is_suspended)


def used_us(policy: ProcessPolicy, replica: str) -> int:
    token = replica.replace("/", ".")
    return CgroupTree(ROOT, policy.subtree).cpu_used_us(f"batch/{token}@1")


@pytest.mark.parametrize("has_freezer", [True, False])
async def test_a_suspended_replica_gets_no_cpu_hears_its_end_and_runs_on_when_resumed(
    policy: ProcessPolicy, has_freezer: bool
) -> None:
    # Not of the idle class: beside other work that would stand still by itself.
    async with adopted(replace(policy, desired=DesiredPolicy(idle=False))) as runtime:
        mounts = runtime._tier.tree.hierarchy.mounts
        freezer = mounts["freezer"]
        if not has_freezer:
            # A machine without one: every process is stopped by a signal instead.
            del mounts["freezer"]
        try:
            codes = await stand_still_and_end(runtime, policy)
        finally:
            mounts["freezer"] = freezer
    assert codes == [7, 137], "resumed it heard SIGTERM; the other one was killed as it was"


async def test_batch_work_is_frozen_as_a_whole_and_no_end_and_no_restart_leaves_it_so(policy: ProcessPolicy) -> None:
    # Not of the idle class: beside other work that would stand still by itself.
    policy = replace(policy, desired=DesiredPolicy(idle=False))
    tree = CgroupTree(ROOT, policy.subtree)
    async with adopted(policy) as runtime:
        await start(runtime, a_run(f"trap 'exit 7' TERM; echo listens; {SPIN}"))
        await start(runtime, a_run(SPIN, replica="job/main/1"))
        both = ("job/main/0", "job/main/1")

        output = Path(policy.state_dir) / "attempts" / "job.main.0@1" / "stdout"

        async def both_run() -> bool:
            return output.read_text() == "listens\n" and all(used_us(policy, replica) > 20_000 for replica in both)

        await eventually(both_run, "both use CPU")
        # An operator suspends one of them while all are frozen, and that one alone stays so.
        assert isinstance(runtime.set_frozen(is_frozen=True), FreezeWritten)
        assert runtime.read_frozen()
        assert (await runtime.suspend(suspend(True, both[1]))).failed == ()
        await eventually(lambda: stands_still(policy, *both), "both stand still")
        assert (await runtime.reconcile()) is None, "our own freeze is no drift"
        await runtime.signal(signal("term"))
        refused = runtime.set_frozen(is_frozen=True)
        assert isinstance(refused, FreezeRefused)
        assert "being ended" in refused.detail
        reading = None
        for _ in range(3):
            reading = runtime.read_fast(1) or reading
        assert reading is not None
        assert not reading.may_freeze
        assert isinstance(runtime.set_frozen(is_frozen=False), FreezeWritten)
        assert (await next_exit(runtime)).exit_code == 7, "it heard SIGTERM as soon as it ran again"
        assert await stands_still(policy, both[1])
        assert isinstance(runtime.set_frozen(is_frozen=True), FreezeWritten), "nobody is being ended any more"
        await runtime.close()
        # The next executor finds the group frozen.
        async with adopted(policy) as second:
            assert not second.read_frozen()
            # Nobody journaled the end of the first one, so the next executor ends it too, and until then nothing is frozen.
            assert (await next_exit(second)).replica == both[0]
            assert (await second.suspend(suspend(False, both[1]))).failed == ()
            before = used_us(policy, both[1])

            async def runs_on() -> bool:
                return used_us(policy, both[1]) > before

            await eventually(runs_on, "it runs again")
            assert isinstance(second.set_frozen(is_frozen=True), FreezeWritten)
            # A reflex that stands still: the watchdog lets it run. Nobody beats here.
            watched = Watched(second.quota_path, 20_000, 500, second.frozen_path)

            async def is_thawed() -> bool:
                return not second.read_frozen()

            await eventually(is_thawed, "the watchdog")
            await watched.leave()
            # `restore` ends what is frozen.
            assert isinstance(second.set_frozen(is_frozen=True), FreezeWritten)
    assert not tree.exists("batch")


async def stands_still(policy: ProcessPolicy, *replicas: str) -> bool:
    """Whether none of them uses CPU while another process of this machine does, for a tenth of a second."""
    before = [used_us(policy, replica) for replica in replicas]
    other = await asyncio.create_subprocess_exec("timeout", "0.1", "sh", "-c", SPIN)
    await other.wait()
    return [used_us(policy, replica) for replica in replicas] == before


async def stand_still_and_end(runtime: ProcessRuntime, policy: ProcessPolicy) -> list[int | None]:
    both = ("job/main/0", "job/main/1")
    listens = a_run(f"trap 'exit 7' TERM; echo listens; {SPIN}")
    await start(runtime, listens)
    await start(runtime, a_run(SPIN, replica=both[1]))
    output = Path(policy.state_dir) / "attempts" / "job.main.0@1" / "stdout"

    async def both_run() -> bool:
        return output.read_text() == "listens\n" and all(used_us(policy, replica) > 20_000 for replica in both)

    await eventually(both_run, "both use CPU")
    done = await runtime.suspend(suspend(True, *both, "job/main/9"))
    assert done.failed == ()

    await eventually(lambda: stands_still(policy, *both), "both stand still")

    await runtime.suspend(suspend(False, both[0]))
    await runtime.signal(signal("term"))
    ended = await next_exit(runtime)
    await runtime.signal(signal("kill", both[1]))
    return [ended.exit_code, (await next_exit(runtime)).exit_code]
