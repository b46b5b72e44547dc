"""A signal to a control group reaches its processes, and none that got the number of one meanwhile."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from colo_executor.cgroup import CgroupTree
from tests.support.cgroup2_files import Cgroup2Files


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    yield started
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CgroupTree:
    tree = CgroupTree(str(Cgroup2Files(tmp_path, monkeypatch).root), "colo")
    tree.make("")
    return tree


def put(tree: CgroupTree, *pids: int) -> None:
    """Let the group have these processes."""
    (Path(tree.cpu_path) / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))


@pytest.mark.parametrize("call", ["terminate", "kill_now"])
def test_a_process_that_has_left_the_group_since_it_was_listed_hears_nothing(
    processes: list[subprocess.Popen[bytes]], tree: CgroupTree, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    member, stranger = processes
    put(tree, member.pid, stranger.pid)
    pidfd_open = os.pidfd_open

    def left(pid: int) -> int:
        # As when the listed process ended, and the stranger, who is in another group, got its number.
        put(tree, member.pid)
        return pidfd_open(pid)

    monkeypatch.setattr(os, "pidfd_open", left)
    getattr(tree, call)("")
    assert member.wait(10) in (-signal.SIGTERM, -signal.SIGKILL)
    assert stranger.poll() is None


def test_without_descriptors_the_processes_of_the_group_still_end(
    processes: list[subprocess.Popen[bytes]], tree: CgroupTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", refused)
    put(tree, *(process.pid for process in processes))
    tree.kill_now("")
    monkeypatch.undo()
    assert [process.wait(10) for process in processes] == [-signal.SIGKILL] * 2
