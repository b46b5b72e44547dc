"""A process that may open no more files, or is not allowed to ask, knows nothing of its replicas: that ends none of them."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from colo_executor import group_dirs
from colo_executor.cgroup import CgroupTree
from colo_executor.journal_lines import AttachedTo
from colo_executor.local import ReplicaExited
from colo_executor.main import main
from colo_executor.process.attached_use import AttachedUse
from colo_executor.process.ending import Ending, RunningAttempt
from colo_executor.process.exit_watch import ExitWatch
from colo_executor.process.launch import attempt_dir
from colo_executor.process.machine import start_ticks
from tests.support.builders import a_placement
from tests.support.cgroup2_files import Cgroup2Files
from tests.support.waiting import eventually

GROUP, TOKEN = "ls.web.main.0@1", "web.main.0@1"


class Refusals:
    """What the kernel refuses from now on: a descriptor of a process, or one of any file in a control group."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of_processes: int = 0
        self.of_files: int = 0
        self.asked = 0
        pidfd_open, read_at = os.pidfd_open, group_dirs.read_at

        def open_process(pid: int, flags: int = 0) -> int:
            self._refuse(self.of_processes)
            return pidfd_open(pid, flags)

        def read(name: str, dir_fd: int) -> str:
            self._refuse(self.of_files)
            return read_at(name, dir_fd)

        monkeypatch.setattr(os, "pidfd_open", open_process)
        monkeypatch.setattr(group_dirs, "read_at", read)

    def _refuse(self, number: int) -> None:
        if number:
            self.asked += 1
            raise OSError(number, os.strerror(number))


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> Refusals:
    return Refusals(monkeypatch)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(["sleep", "60"])
    yield started
    started.kill()
    started.wait()


@pytest.fixture
def running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process: subprocess.Popen[bytes], refusals: Refusals
) -> RunningAttempt:
    """An attempt in a group of plain files, whose one process is real."""
    tree = CgroupTree(str(Cgroup2Files(tmp_path, monkeypatch).root), "colo")
    tree.make("")
    tree.make(GROUP)
    (Path(tree.cpu_path) / GROUP / "cgroup.procs").write_text(f"{process.pid}\n")
    placement = a_placement("web/main/0")
    attempt = RunningAttempt(placement=placement, token=TOKEN, tree=tree, group=GROUP, pid=process.pid)
    attempt.keep_in(tmp_path)
    return attempt


def empty(running: RunningAttempt) -> None:
    """Let the group have no process any more."""
    (Path(running.tree.cpu_path) / running.group / "cgroup.procs").write_text("")


def watch(watch: ExitWatch, running: RunningAttempt) -> bool:
    watch.watch(running)
    return True


def watch_again(watch: ExitWatch, running: RunningAttempt) -> bool:
    return watch.watch_again(running, start_ticks("/proc", running.pid) or 0)


def watch_one_without_a_number(watch: ExitWatch, running: RunningAttempt) -> bool:
    running.pid = 0
    return watch.watch_again(running, watch.first(running))


@pytest.mark.parametrize("way", [watch, watch_again, watch_one_without_a_number], ids=lambda way: way.__name__)
@pytest.mark.parametrize(
    ("of", "number"),
    [
        ("of_processes", errno.EMFILE),
        ("of_processes", errno.ENFILE),
        ("of_processes", errno.EPERM),
        ("of_processes", errno.ENOSYS),
        ("of_files", errno.EMFILE),
        ("of_files", errno.ENOMEM),
    ],
    ids=["EMFILE", "ENFILE", "EPERM by seccomp", "ENOSYS", "EMFILE at the list", "ENOMEM at the list"],
)
async def test_a_replica_that_cannot_be_watched_runs_on_and_is_watched_when_it_can(
    running: RunningAttempt,
    refusals: Refusals,
    process: subprocess.Popen[bytes],
    way: Callable[[ExitWatch, RunningAttempt], bool],
    of: str,
    number: int,
) -> None:
    collected: list[RunningAttempt] = []
    exits = ExitWatch("/proc", collected.append)
    setattr(refusals, of, number)
    assert way(exits, running)
    exits.look()
    assert collected == []
    setattr(refusals, of, 0)
    exits.look()
    assert running.pidfd >= 0
    process.kill()

    async def ended() -> list[RunningAttempt]:
        return collected

    assert (await eventually(ended, "the end"))[0] is running
    exits.unwatch(running)


@pytest.mark.parametrize("way", [watch, watch_again, watch_one_without_a_number], ids=lambda way: way.__name__)
async def test_the_end_of_a_replica_that_can_never_be_watched_is_seen_by_its_number(
    running: RunningAttempt,
    refusals: Refusals,
    process: subprocess.Popen[bytes],
    way: Callable[[ExitWatch, RunningAttempt], bool],
) -> None:
    collected: list[RunningAttempt] = []
    exits = ExitWatch("/proc", collected.append)
    refusals.of_processes = errno.EPERM
    assert way(exits, running)
    exits.look()
    assert collected == []
    process.kill()
    # It stays as a zombie until it is reaped, and has its number.
    await asyncio.to_thread(os.waitid, os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    exits.look()
    assert collected == [running]
    exits.look()
    assert collected == [running]


@pytest.mark.parametrize(
    ("number", "is_deleted"),
    [(errno.ENOENT, True), (errno.ENODEV, True), (errno.EMFILE, False), (errno.ENOMEM, False), (errno.EACCES, False)],
    ids=["ENOENT", "ENODEV", "EMFILE", "ENOMEM", "EACCES"],
)
def test_only_a_group_that_is_deleted_has_no_process(
    running: RunningAttempt, refusals: Refusals, number: int, *, is_deleted: bool
) -> None:
    refusals.of_files = number
    if is_deleted:
        assert running.tree.pids(GROUP) == ()
        assert running.tree.kill_now(GROUP)
        return
    with pytest.raises(OSError, match=os.strerror(number)):
        running.tree.pids(GROUP)
    with pytest.raises(OSError, match=os.strerror(number)):
        running.tree.kill_now(GROUP)


def test_an_attached_group_that_cannot_be_looked_at_still_runs(running: RunningAttempt, refusals: Refusals) -> None:
    to = AttachedTo(group=f"colo/{GROUP}", identity=running.tree.identity(GROUP), boot_id="b")
    use = AttachedUse(running.tree, GROUP, to, "b")
    refusals.of_files = errno.EMFILE
    assert use.runs()
    refusals.of_files = 0
    assert use.runs()
    empty(running)
    assert not use.runs()


class Ends:
    """The ends that `Ending` tells, of attempts whose group is never removed but by the test."""

    def __init__(self) -> None:
        self.seen: list[ReplicaExited] = []
        self.ending = Ending(
            lambda running: running.tree.kill_now(running.group),
            lambda running: True,
            lambda running, exited: self.seen.append(exited),
        )


async def test_a_kill_goes_on_until_the_group_is_known_to_be_empty(
    tmp_path: Path, running: RunningAttempt, refusals: Refusals, process: subprocess.Popen[bytes]
) -> None:
    ends = Ends()
    refusals.of_files = errno.EMFILE
    kill = ends.ending.kill(running)

    async def asked() -> bool:
        return refusals.asked > 2

    await eventually(asked, "a few tries")
    assert not kill.done()
    refusals.of_files = 0
    assert await asyncio.to_thread(process.wait, 10) == -signal.SIGKILL
    empty(running)
    await kill


async def test_an_order_to_kill_what_was_empty_once_kills_what_is_there_now(
    tmp_path: Path, running: RunningAttempt, process: subprocess.Popen[bytes]
) -> None:
    ends = Ends()
    procs = Path(running.tree.cpu_path) / running.group / "cgroup.procs"
    listed = procs.read_text()
    empty(running)
    await ends.ending.kill(running)
    procs.write_text(listed)
    kill = ends.ending.kill(running)
    assert await asyncio.to_thread(process.wait, 10) == -signal.SIGKILL
    empty(running)
    await kill


async def test_how_an_attempt_ended_is_read_when_files_can_be_opened_again(
    tmp_path: Path, running: RunningAttempt, refusals: Refusals
) -> None:
    directory = attempt_dir(tmp_path, TOKEN)
    directory.mkdir(parents=True)
    (directory / "status").write_text("3\n")
    ends = Ends()
    empty(running)
    await ends.ending.kill(running)
    refusals.of_files = errno.EMFILE
    ends.ending.collect(running)

    async def asked() -> bool:
        return refusals.asked > 2

    await eventually(asked, "a few tries")
    assert ends.seen == []
    refusals.of_files = 0

    async def ended() -> list[ReplicaExited]:
        return ends.seen

    (exited,) = await eventually(ended, "the end")
    assert exited.exit_code == 3


def test_descriptors_of_processes_leave_room_to_list_them(
    running: RunningAttempt, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    pidfd_open, close = os.pidfd_open, os.close

    def open_process(pid: int) -> int:
        held.append(pidfd_open(pid))
        return held[-1]

    def listed() -> tuple[int, ...]:
        if held:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return (process.pid,)

    def close_one(fd: int) -> None:
        if fd in held:
            held.remove(fd)
        close(fd)

    monkeypatch.setattr(os, "pidfd_open", open_process)
    monkeypatch.setattr(os, "close", close_one)
    monkeypatch.setattr(running.tree, "pids", lambda group: listed())
    running.tree.terminate(GROUP)
    monkeypatch.undo()
    assert process.wait(10) == -signal.SIGTERM


def test_the_executor_may_open_as_many_files_as_the_machine_lets_it(capsys: pytest.CaptureFixture[str]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, soft), hard))
        assert main(["--help"]) == 0
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "--process-state-dir" in capsys.readouterr().out
