"""What a real replica inherits, how far it may go, and what is said about its end: real processes, needs root."""

from __future__ import annotations

import asyncio
import os
import pwd
import resource
import stat
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import Placement
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.workload import ResourceLimits, RunSpec
from colo_executor.cgroup import CgroupTree
from colo_executor.knob_table import Knob
from colo_executor.local import (
    CeilingWritten,
    DiskOverused,
    LaunchFailed,
    ReplicaExited,
    ReplicaLaunched,
    SignalReplica,
    StopIntent,
)
from colo_executor.main import restore
from colo_executor.process.hygiene import Hygiene, settle
from colo_executor.process.launch import attempt_dir
from colo_executor.process.machine import online_cpus
from colo_executor.process.namespaces import Namespaces, namespaces_prefix
from colo_executor.process.run_as import NOBODYS
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from colo_executor.settings import ExecutorSettings
from tests.support.adopted import adopted
from tests.support.builders import a_placement
from tests.support.waiting import LIMIT_S, eventually, eventually_blocking

pytestmark = pytest.mark.kernel

ROOT = "/sys/fs/cgroup"
MIB = 1 << 20


@pytest.fixture
def policy(tmp_path: Path) -> ProcessPolicy:
    return ProcessPolicy(
        state_dir=str(tmp_path / "state"),
        output_dir=str(tmp_path / "output"),
        subtree=f"colo-hygiene-{os.getpid()}",
        users={"red": "nobody", "default": "root"},
        output_most_bytes=8_192,
    )


@pytest.fixture
async def runtime(policy: ProcessPolicy) -> AsyncIterator[ProcessRuntime]:
    async with adopted(policy) as made:
        yield made


def a_run(script: str, index: int = 0, **run: object) -> Placement:
    placement = replace(a_placement(f"job/main/{index}", mcpu=500), memory_bytes=64 * MIB)
    return replace(placement, run=RunSpec(command=("sh", "-c", script), **run))


async def end_of(runtime: ProcessRuntime, placement: Placement) -> ReplicaExited:
    launched = await runtime.launch(placement, 1)
    assert isinstance(launched, ReplicaLaunched), launched

    async def look() -> tuple[ReplicaExited, ...]:
        return runtime.poll_exits()

    (exited,) = await eventually(look, "an exit")
    return exited


def output(policy: ProcessPolicy, index: int = 0, name: str = "stdout") -> str:
    return (attempt_dir(Path(policy.output_dir), f"job.main.{index}@1") / name).read_text()


SHOWS = "cat /proc/self/oom_score_adj; grep NoNewPrivs /proc/self/status; ulimit -n; ulimit -c; pwd"


async def test_what_a_replica_inherits_is_the_nodes_rule_and_not_the_executors(runtime, policy):
    assert (await end_of(runtime, a_run(SHOWS, directory="/usr"))).exit_code == 0
    score, privileges, files, core, where = output(policy).splitlines()
    assert (score, privileges.split()[-1], core, where) == ("1000", "1", "0", "/usr")
    assert int(files) <= policy.hygiene.open_files_most
    online = replace(a_run(SHOWS, 1), qos=QosClass.LS, band=PriorityBand.PROD)
    assert (await end_of(runtime, online)).exit_code == 0
    assert output(policy, 1).splitlines()[0] == "0"


def io_class_of(pid: int) -> str:
    return subprocess.run(["ionice", "-p", str(pid)], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("is_online", [False, True])
def test_how_the_executor_itself_is_scheduled_no_replica_inherits(is_online):
    command = ["taskset", "-c", "0", "chrt", "-f", "1", "nice", "-n", "-7", "ionice", "-c", "1", "sleep", "600"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            name = Path(f"/proc/{process.pid}/comm")
            eventually_blocking(lambda: name.read_text() == "sleep\n", "the program behind all of these")
            assert os.sched_getscheduler(process.pid) == os.SCHED_FIFO
            assert io_class_of(process.pid).startswith("realtime")
            settle(Hygiene(), "/proc", process.pid, is_online=is_online)
            assert os.sched_getscheduler(process.pid) == os.SCHED_OTHER
            assert os.sched_getaffinity(process.pid) == set(online_cpus("/sys"))
            assert os.getpriority(os.PRIO_PROCESS, process.pid) == 0
            assert io_class_of(process.pid).startswith("none")
            assert is_online or resource.prlimit(process.pid, resource.RLIMIT_RTPRIO) == (0, 0)
        finally:
            process.kill()


async def test_a_replica_runs_on_its_cpu_set_also_where_the_executor_is_pinned(policy):
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        async with adopted(policy) as runtime:
            assert (await end_of(runtime, a_run("grep Cpus_allowed_list /proc/self/status"))).exit_code == 0
    finally:
        os.sched_setaffinity(0, before)
    assert output(policy).split()[-1] == online_cpus("/sys").format()


async def test_a_tenants_user_has_a_home_of_his_own_and_reads_his_own_output(runtime, policy, tmp_path):
    # Whoever runs the tests keeps their directories to himself; those of an executor are open to pass.
    for above in (tmp_path, *tmp_path.parents[:2]):
        above.chmod(0o711)
    script = 'id -un; stat -c "%U %a" "$HOME"; touch "$HOME/mine" && ls "$HOME"; echo again >> /dev/stdout; '
    script += "cat /proc/self/fd/2 >/dev/null && echo read"
    exited = await end_of(runtime, replace(a_run(script), tenant="red"))
    assert output(policy).splitlines() == ["nobody", "nobody 700", "mine", "again", "read"], output(
        policy, name="stderr"
    )
    assert exited.exit_code == 0
    work = attempt_dir(Path(policy.output_dir), "job.main.0@1") / "work"
    eventually_blocking(lambda: not work.exists(), "the working directory ends with its attempt")


async def test_an_executor_that_is_root_runs_nobody_as_root_whom_no_rule_names_so(policy):
    first, last = map(int, NOBODYS.split("-"))
    async with adopted(replace(policy, users={})) as runtime:
        assert (await end_of(runtime, replace(a_run("id -u"), tenant="red"))).exit_code == 0
        assert (await end_of(runtime, a_run("id -u", 1))).exit_code == 0
    assert all(first <= int(output(policy, index)) <= last for index in (0, 1))
    async with adopted(replace(policy, users={"blue": "nobody"})) as runtime:
        refused = await runtime.launch(replace(a_run("id -u", 2), tenant="red"), 1)
        assert isinstance(refused, LaunchFailed)
        assert (refused.reason, "process_users" in refused.detail, '"red"' in refused.detail) == (
            Reason.START_FAILED,
            True,
            True,
        )
    async with adopted(replace(policy, users={}, command_prefix=("env",))) as runtime:
        assert (await end_of(runtime, a_run("id -u", 3))).exit_code == 125
    assert "process_users: must name a user" in output(policy, 3, "stderr")


async def test_jobs_of_one_number_are_two_users_on_a_node_also_for_the_next_executor(policy):
    # Both have the first of these numbers by their names.
    two = "200000-200001"
    names = [name for name in (f"job-{number}" for number in range(20)) if zlib.crc32(name.encode()) % 2 == 0][:2]
    policy = replace(policy, users={"red": two, "blue": two})
    found = []
    for name, tenant in zip((*names, names[0]), ("red", "blue", "red"), strict=True):
        index = len(found)
        placement = replace(a_run("id -u", index), replica=f"{name}/main/{index}", job=name, tenant=tenant)
        async with adopted(policy) as runtime:
            assert (await end_of(runtime, placement)).exit_code == 0
        found.append(int((attempt_dir(Path(policy.output_dir), f"{name}.main.{index}@1") / "stdout").read_text()))
    assert found == [200_000, 200_001, 200_000]


async def test_a_directory_that_the_user_may_not_enter_ends_it_with_a_word(runtime, policy):
    exited = await end_of(runtime, a_run("true", directory="/no/such/place"))
    assert exited.exit_code == 125
    assert "/no/such/place" in output(policy, name="stderr")


async def test_an_end_says_the_most_memory_that_was_used(runtime):
    exited = await end_of(runtime, a_run("head -c 20m /dev/zero | tail | wc -c"))
    assert 20 * MIB <= exited.memory_peak_bytes <= 64 * MIB


async def test_a_replica_that_talks_too_much_keeps_its_newest_words(runtime, policy):
    launched = await runtime.launch(
        a_run("n=0; while [ $n -lt 2000 ]; do n=$((n+1)); echo line $n; done; read -r x </dev/zero"), 1
    )
    assert isinstance(launched, ReplicaLaunched)
    directory = attempt_dir(Path(policy.output_dir), "job.main.0@1")

    async def is_rotated() -> bool:
        moved = directory / "stdout.1"
        return moved.exists() and (directory / "stdout").stat().st_size + moved.stat().st_size <= 2 * 8_192

    await eventually(is_rotated, "an output within its bound")
    assert (directory / "stdout.1").stat().st_size <= 8_192


@pytest.mark.parametrize(("job", "tenant", "field"), [(2, 64, "limits.disk of the job"), (64, 2, "(*)"), (0, 2, "(*)")])
async def test_a_replica_that_fills_the_disk_is_told_by_the_smallest_limit_and_its_neighbour_is_not(
    policy, job, tenant, field
):
    limits = ResourceLimits(disk_bytes=job * MIB)
    policy = replace(policy, disk_limits={"*": f"{tenant}Mi"}, disk_every_s=0.02)
    async with adopted(policy) as runtime:
        fills = a_run('mkdir "$HOME/a" && head -c 3m /dev/zero > "$HOME/a/file"; sleep 60', limits=limits)
        for placement in (fills, a_run("sleep 60", 1, limits=limits)):
            assert isinstance(await runtime.launch(placement, 1), ReplicaLaunched)

        async def look() -> tuple[DiskOverused, ...]:
            return runtime.poll_overused()

        found = await eventually(look, "a limit that is told")
        assert {one.replica for one in found} == {"job/main/0"}
        assert f"at most 2Mi by {field}" in found[0].detail.replace("process_disk_limits of the node ", "")


async def test_the_limit_is_enforced_and_follows_the_ceiling(runtime, policy):
    tree, group = CgroupTree(ROOT, policy.subtree), "batch/job.main.0@1"
    limits = ResourceLimits(cpu_mcpu=900, memory_bytes=128 * MIB)
    launched = await runtime.launch(a_run("sleep 60", limits=limits), 1)
    assert isinstance(launched, ReplicaLaunched)
    assert tree.value(Knob.MEMORY_LIMIT, group) == str(128 * MIB)
    assert tree.quota_us(group) == 90_000
    for ceiling, quota in ((300, 30_000), (2_000, 90_000), (600, 60_000)):
        assert isinstance(runtime.set_ceiling(ceiling), CeilingWritten)
        assert tree.quota_us(group) == quota
    online = replace(a_run("sleep 60", 1, limits=limits), qos=QosClass.LS, band=PriorityBand.PROD)
    launched = await runtime.launch(online, 1)
    assert isinstance(launched, ReplicaLaunched)
    assert CgroupTree(ROOT, f"{policy.subtree}-online").quota_us("ls.job.main.1@1") == 90_000


OPENS = 'for each in /dev/null /dev/urandom "$0"; do (exec 3< "$each") 2>/dev/null && echo open || echo closed; done'


@pytest.mark.skipif(
    Knob.DEVICES not in CgroupTree(ROOT, "colo").has(), reason="this kernel gives groups no rules of devices"
)
async def test_a_batch_replica_opens_what_it_was_given_and_no_other_device(policy, tmp_path):
    kernel_log = tmp_path / "kernel-log"
    try:
        os.mknod(kernel_log, 0o666 | stat.S_IFCHR, os.makedev(1, 11))
        kernel_log.open("rb").close()
    except PermissionError:
        pytest.skip("device files cannot be made or opened here")
    run = RunSpec(command=("sh", "-c", OPENS, str(kernel_log)))
    batch = replace(a_run("", 0), run=run)
    online = replace(batch, replica="job/main/1", qos=QosClass.LS, band=PriorityBand.PROD)
    async with adopted(policy) as runtime:
        await end_of(runtime, batch)
        await end_of(runtime, online)
        assert [output(policy), output(policy, 1)] == ["open\nopen\nclosed\n", "open\nopen\nopen\n"]
    async with adopted(replace(policy, devices="all")) as runtime:
        await end_of(runtime, replace(batch, replica="job/main/2"))
        assert output(policy, 2) == "open\nopen\nopen\n"
    async with adopted(replace(policy, device_files=("kmsg",))) as runtime:
        launched = await runtime.launch(replace(batch, replica="job/main/3"), 1)
        assert isinstance(launched, ReplicaLaunched)
        if Path("/dev/kmsg").exists():
            assert any("c 1:11 rwm" in knob.value for knob in launched.knobs)


#: Whether an executor may fence devices, whether batch replicas start all the same, and of whom it warns at what reason.
STARTS = """
import asyncio, sys
from msgspec.structs import replace
from structlog.testing import capture_logs
from colo_common.model.placement import DeviceShare
from colo_executor.knob_table import Knob
from colo_executor.local import ReplicaLaunched
from colo_executor.process.settings import ProcessPolicy
from colo_executor.settings import ExecutorSettings
from tests.support.adopted import adopted
from tests.system.test_process_hygiene import ROOT, CgroupTree, a_run

async def main():
    policy = ProcessPolicy(state_dir=sys.argv[1], subtree=sys.argv[2])
    async with adopted(policy) as runtime:
        runs = [a_run("exit 0")]
        runs += [replace(a_run("exit 0", n), devices=(DeviceShare(kind="gpu", device=n, zone=0),)) for n in (1, 2)]
        with capture_logs() as logs:
            launched = [await runtime.launch(run, 1) for run in runs]
        print(Knob.DEVICES in CgroupTree(ROOT, policy.subtree).has(), {type(each) for each in launched} == {ReplicaLaunched})
        for said in logs:
            if said["event"] == "devices-not-fenced":
                print(said["log_level"], said["replica"], said["detail"])

asyncio.run(main())
"""


def test_without_cap_sys_admin_batch_work_starts_and_that_it_is_not_fenced_is_said_once(policy):
    words = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin", sys.executable, "-c", STARTS]
    done = subprocess.run(
        [*words, policy.state_dir, policy.subtree],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    answer, *warnings = done.stdout.splitlines()[-2:]
    assert answer == "False True", done.stdout + done.stderr
    (warning,) = warnings
    assert warning.startswith("warning job/main/1 "), warning
    assert warning.endswith(": it can open every device file that its user may open")


@pytest.mark.skipif(
    Knob.DEVICES not in CgroupTree(ROOT, "colo").has() or CgroupTree(ROOT, "colo").version == 2,
    reason="this kernel has no files for device access (cgroup v1); of v2 tests/kernel/test_devices.py tells",
)
async def test_devices_that_somebody_opens_or_closes_are_put_back_also_by_the_next_executor(policy):
    group = Path(ROOT, "devices", policy.subtree, "batch", "job.main.0@1")

    def opened() -> set[str]:
        return set((group / "devices.list").read_text().splitlines())

    async def put_back(runtime: ProcessRuntime, name: str, rule: str) -> None:
        (group / name).write_text(rule)
        changed = (group / "devices.list").read_text().strip()
        drift = await runtime.reconcile()
        assert drift is not None
        assert [(knob.path, knob.before) for knob in drift.knobs] == [
            (str((group / "devices.list").relative_to(ROOT)), changed)
        ]
        assert opened() == rules

    runtime = ProcessRuntime(policy)
    try:
        await runtime.adopt(1)
        assert isinstance(await runtime.launch(a_run("sleep 3600"), 1), ReplicaLaunched)
        rules = opened()
        await put_back(runtime, "devices.allow", "a")
        await put_back(runtime, "devices.allow", "c 1:11 r")
        assert await runtime.reconcile() is None
    finally:
        await runtime.close()
        # The list is in the journal, and another policy has its list for later attempts.
        async with adopted(replace(policy, devices="all")) as later:
            await put_back(later, "devices.allow", "c 1:11 r")
            await put_back(later, "devices.deny", "c *:* m")


async def test_another_place_for_outputs_is_that_of_later_attempts_and_those_that_run_are_looked_after_where_they_are(
    policy,
):
    # Both jobs would get the same user of this range.
    users = {"default": "2000000000-2000000001"}
    before = replace(policy, output_dir="", users=users)
    script = "until [ -e go ]; do echo 0123456789; sleep 0.001; done; exit 7"
    first = ProcessRuntime(before)
    await first.adopt(1)
    assert isinstance(await first.launch(a_run(script), 1), ReplicaLaunched)
    await first.close()
    async with adopted(replace(policy, users=users)) as second:
        directory = attempt_dir(Path(policy.state_dir), "job.main.0@1")

        async def is_bounded() -> bool:
            return (directory / "stdout.1").exists()

        await eventually(is_bounded, "its output is bounded")
        other = replace(a_run("id -u", 1), replica="other/main/1", job="other")
        assert (await end_of(second, other)).exit_code == 0
        (directory / "work" / "go").touch()

        async def ends() -> tuple[ReplicaExited, ...]:
            return second.poll_exits()

        (exited,) = await eventually(ends, "an exit")
        assert exited.exit_code == 7
        assert str(directory) in exited.detail
        eventually_blocking(lambda: not (directory / "work").exists(), "its working directory is gone")
    users_of = {(directory / "stdout").stat().st_uid}
    users_of.add((attempt_dir(Path(policy.output_dir), "other.main.1@1") / "stdout").stat().st_uid)
    assert users_of == {2_000_000_000, 2_000_000_001}


@pytest.fixture
def permitted() -> None:
    """Leave a test out where not even root may make namespaces, as in most containers."""
    if refusal := namespaces_prefix("auto", ProcessPolicy().path)[1]:
        pytest.skip(f"namespaces are not permitted here: {refusal}")


def in_namespaces(policy: ProcessPolicy, wanted: Namespaces = "yes") -> ProcessPolicy:
    return replace(policy, hygiene=replace(policy.hygiene, namespaces=wanted))


@pytest.mark.usefixtures("permitted")
@pytest.mark.parametrize("tenant", ["", "red"])
async def test_a_replica_of_its_own_namespaces_sees_itself_alone_and_ends_as_any_other(policy, tenant):
    async with adopted(in_namespaces(policy)) as runtime:
        mine = "ls /proc | grep -c '^[0-9]'; grep NoNewPrivs /proc/self/status; id -u; exit 7"
        exited = await end_of(runtime, replace(a_run(mine), tenant=tenant))
        assert exited.exit_code == 7
        count, *rest = output(policy).split()
        assert int(count) < 10
        assert rest == ["NoNewPrivs:", "1", str(pwd.getpwnam("nobody").pw_uid if tenant else 0)]
        # It hears the signal, takes its time, and is gone with all that it started.
        graceful = "trap 'echo ended; exit 5' TERM; echo begun; while :; do sleep 0.05; done"
        placement = replace(a_run(graceful, 1), tenant=tenant)
        assert isinstance(await runtime.launch(placement, 1), ReplicaLaunched)

        async def begun() -> bool:
            return output(policy, 1) == "begun\n"

        await eventually(begun, "the command to begin")
        intent = StopIntent(cause=EndCause.STOPPED, reason=Reason.CANCELLED, kill_at_ms=0)
        await runtime.signal(SignalReplica(replica="job/main/1", attempt=1, signal="term", intent=intent))

        async def ends() -> tuple[ReplicaExited, ...]:
            return runtime.poll_exits()

        (exited,) = await eventually(ends, "an exit")
        assert (exited.exit_code, output(policy, 1)) == (5, "begun\nended\n")
        assert isinstance(await runtime.launch(replace(placement, replica="job/main/2"), 1), ReplicaLaunched)
        await runtime.signal(SignalReplica(replica="job/main/2", attempt=1, signal="kill", intent=intent))
        (exited,) = await eventually(ends, "an exit")
        assert exited.exit_code == 137


@pytest.mark.usefixtures("permitted")
async def test_a_replica_that_is_ended_while_it_is_started_hears_it_whatever_its_namespace_had_come_to(policy):
    async with adopted(in_namespaces(policy)) as runtime:
        intent = StopIntent(cause=EndCause.STOPPED, reason=Reason.CANCELLED, kill_at_ms=0)
        for index in range(3):
            assert isinstance(await runtime.launch(a_run("exec sleep 3600", index), 1), ReplicaLaunched)
            await runtime.signal(SignalReplica(replica=f"job/main/{index}", attempt=1, signal="term", intent=intent))

        exits: list[ReplicaExited] = []

        async def all_ended() -> bool:
            exits.extend(runtime.poll_exits())
            return len(exits) == 3

        await eventually(all_ended, "three exits")
        assert [exited.exit_code for exited in exits] == [143, 143, 143]


@pytest.mark.usefixtures("permitted")
async def test_what_a_replica_mounts_is_nobody_elses(policy, tmp_path):
    where = tmp_path / "mounted"
    where.mkdir()
    async with adopted(in_namespaces(policy)) as runtime:
        exited = await end_of(runtime, a_run(f"mount -t tmpfs none {where} && touch {where}/inside && ls {where}"))
        assert (exited.exit_code, output(policy)) == (0, "inside\n")
    assert list(where.iterdir()) == []


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A directory in which mounts propagate, as systemd has it for the whole machine."""
    path = tmp_path / "shared"
    path.mkdir()
    for words in (("--bind", path, path), ("--make-shared", path)):
        subprocess.run(["mount", *words], check=True)
    yield path
    subprocess.run(["umount", "--recursive", "--lazy", path], check=True)


@pytest.mark.usefixtures("permitted")
async def test_what_the_machine_mounts_and_unmounts_later_is_so_for_the_replica(policy, shared):
    disk = shared / "disk"
    disk.mkdir()
    inside = f"[ -e {disk}/inside ]"
    script = f"echo begun; until {inside}; do sleep 0.02; done; echo seen; while {inside}; do sleep 0.02; done"
    async with adopted(in_namespaces(policy)) as runtime:
        assert isinstance(await runtime.launch(a_run(script), 1), ReplicaLaunched)

        async def has_begun() -> bool:
            return output(policy) == "begun\n"

        async def has_seen() -> bool:
            return output(policy) == "begun\nseen\n"

        async def ends() -> tuple[ReplicaExited, ...]:
            return runtime.poll_exits()

        # It was not there when the namespace was made.
        await eventually(has_begun, "the command to begin")
        await asyncio.to_thread(subprocess.run, ["mount", "-t", "tmpfs", "tmpfs", disk], check=True)
        (disk / "inside").touch()
        await eventually(has_seen, "the replica to see it")
        await asyncio.to_thread(subprocess.run, ["umount", disk], check=True)
        (exited,) = await eventually(ends, "an exit")
        assert exited.exit_code == 0


@pytest.mark.skipif(not Path("/proc/sys/kernel/ns_last_pid").exists(), reason="this kernel lets nobody choose numbers")
@pytest.mark.usefixtures("permitted")
async def test_names_by_the_number_of_a_process_are_not_the_same_in_each_namespace(policy):
    async with adopted(in_namespaces(policy)) as runtime:
        for index in range(3):
            assert (await end_of(runtime, a_run("echo $$", index))).exit_code == 0
        numbers = [int(output(policy, index)) for index in range(3)]
        assert len(set(numbers)) == 3
        assert min(numbers) > 300


@pytest.mark.usefixtures("permitted")
async def test_where_they_are_permitted_a_replica_has_them_by_default_and_what_it_leaves_alone_is_reaped(policy):
    orphan = "orphan=$(sh -c 'sleep 0.01 >/dev/null & echo $!'); while [ -d /proc/$orphan ]; do sleep 0.01; done"
    shows = "readlink /proc/self/ns/pid /proc/self/ns/mnt; cat /proc/self/oom_score_adj"
    async with adopted(policy) as runtime:
        assert (await end_of(runtime, a_run(f"{orphan}; {shows}"))).exit_code == 0
    pids, mounts, score = output(policy).splitlines()
    assert pids != os.readlink("/proc/self/ns/pid")
    assert mounts != os.readlink("/proc/self/ns/mnt")
    assert score == "1000"


@pytest.mark.usefixtures("permitted")
def test_a_program_that_would_end_a_replica_before_its_grace_is_over_makes_none(tmp_path):
    # As unshare did before it let such signals wait.
    program = tmp_path / "unshare"
    program.write_text(f'#!/bin/sh\nPATH={ProcessPolicy().path}\nunshare "$@"\n')
    program.chmod(0o755)
    words, refusal = namespaces_prefix("auto", str(tmp_path))
    assert words == ()
    assert refusal.startswith(f"{program} ends at SIGTERM")
    with pytest.raises(InvalidInput, match="ends at SIGTERM"):
        namespaces_prefix("yes", str(tmp_path))
    # One that lacks an option says so in its first line, and its usage after that.
    program.write_text("#!/bin/sh\nprintf 'no such option\\nUsage: unshare\\n' >&2\nexit 1\n")
    assert namespaces_prefix("auto", str(tmp_path)) == ((), "no such option")


_AS_NOBODY = """
import os, sys
from colo_common.model.invalid import InvalidInput
from colo_executor.process.namespaces import namespaces_prefix
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
words, refusal = namespaces_prefix("auto", sys.argv[1])
assert words == () and refusal, (words, refusal)
try:
    namespaces_prefix("yes", sys.argv[1])
except InvalidInput as error:
    print(error)
"""


def test_an_ordinary_user_runs_without_them_by_default_and_is_told_what_yes_would_need():
    words = [sys.executable, "-c", _AS_NOBODY, ProcessPolicy().path]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("process_hygiene_namespaces: needs the right to make namespaces, or must be auto: ")


async def test_namespaces_that_are_not_permitted_are_refused_or_left_out_as_the_operator_says(policy):
    without = replace(policy, path="/nowhere")
    with pytest.raises(InvalidInput, match="there is no unshare in /nowhere"):
        ProcessRuntime(in_namespaces(without))
    # Nothing was kept: the next one may begin, and the machine can be put back whatever a start would need.
    runtime = ProcessRuntime(in_namespaces(without, "auto"))
    await runtime.close()
    settings = ExecutorSettings(process=in_namespaces(without))
    await restore(settings)
