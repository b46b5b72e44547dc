"""The gate of an attempt: what ends it before its command began."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_common.model.workload import RunSpec
from colo_executor.process.launch import exit_status, launch, make_attempt_dir
from colo_executor.process.run_as import UserIds
from tests.support.builders import a_placement

PATH = "/usr/bin:/bin"
OWN = UserIds(os.geteuid(), os.getegid())


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)], ids=str
)
def test_a_signal_before_the_command_ends_the_attempt(tmp_path: Path, number: signal.Signals, code: int) -> None:
    run = RunSpec(command=("/bin/sh", "-c", "echo ran"))
    directory = make_attempt_dir(tmp_path, "job.main.0@1")
    gate = launch(replace(a_placement(), run=run), run.command, directory, PATH, account=OWN)
    # When it heeds signals the shell says in no file, so its traps are read from the kernel. The last one is for SIGHUP; SIGINT is
    # caught before its trap is there, as some shells do that for themselves.
    last = 1 << (signal.SIGHUP - 1)
    while not last & _caught(gate.pid):
        os.sched_yield()
    os.kill(gate.pid, number)
    gate.open()
    os.waitid(os.P_PID, gate.pid, os.WEXITED | os.WNOWAIT)
    assert exit_status(directory, gate.pid) == code
    assert (directory / "status").read_text() == f"\n{code}\n"
    assert (directory / "stdout").read_text() == ""


def test_without_a_signal_the_command_runs(tmp_path: Path) -> None:
    run = RunSpec(command=("/bin/sh", "-c", "echo ran; exit 3"))
    directory = make_attempt_dir(tmp_path, "job.main.0@1")
    gate = launch(replace(a_placement(), run=run), run.command, directory, PATH, account=OWN)
    gate.open()
    os.waitid(os.P_PID, gate.pid, os.WEXITED | os.WNOWAIT)
    assert exit_status(directory, gate.pid) == 3
    assert (directory / "stdout").read_text() == "ran\n"


def test_who_may_give_no_files_away_leaves_the_directory_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "fchown", refused)
    run = RunSpec(command=("/bin/sh", "-c", "echo ran"))
    directory = make_attempt_dir(tmp_path, "job.main.0@1")
    gate = launch(replace(a_placement(), run=run), run.command, directory, PATH, account=UserIds(65_534, 65_534))
    gate.open()
    os.waitid(os.P_PID, gate.pid, os.WEXITED | os.WNOWAIT)
    assert (directory / "stdout").read_text() == "ran\n"
    assert (directory / "work").stat().st_mode & 0o7777 == 0o1777
    assert exit_status(directory, gate.pid) == 0


def test_nobody_else_comes_into_the_directory_before_the_user_has_it(tmp_path: Path) -> None:
    run = RunSpec(command=("/bin/sh", "-c", "echo ran"))
    directory = make_attempt_dir(tmp_path, "job.main.0@1")
    assert (directory / "work").stat().st_mode & 0o7777 == 0o700
    launch(replace(a_placement(), run=run), run.command, directory, PATH, account=OWN).close()
    assert (directory / "work").stat().st_mode & 0o7777 == 0o700


def test_a_user_that_is_not_known_finds_the_directory_open(tmp_path: Path) -> None:
    run = RunSpec(command=("/bin/sh", "-c", "echo ran"))
    directory = make_attempt_dir(tmp_path, "job.main.0@1")
    launch(replace(a_placement(), run=run), run.command, directory, PATH).close()
    assert (directory / "work").stat().st_mode & 0o7777 == 0o1777


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's command is not root by itself: needs root")
@pytest.mark.parametrize(("prefix", "code", "output"), [
    (("env",), 125, ""),
    (("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"), 0, "65534\n"),
])  # fmt: skip
def test_a_prefix_that_leaves_the_command_root_starts_none(
    tmp_path: Path, prefix: tuple[str, ...], code: int, output: str
) -> None:
    run = RunSpec(command=("/usr/bin/id", "-u"))
    directory = make_attempt_dir(tmp_path, "job.main.0@1")
    gate = launch(replace(a_placement(), run=run), run.command, directory, PATH, prefix)
    gate.open()
    os.waitid(os.P_PID, gate.pid, os.WEXITED | os.WNOWAIT)
    assert (exit_status(directory, gate.pid), (directory / "stdout").read_text()) == (code, output)
    assert ("process_users: must name a user" in (directory / "stderr").read_text()) == bool(code)


def _caught(pid: int) -> int:
    """The signals that a process catches."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("SigCgt:")).split()[1], 16)
