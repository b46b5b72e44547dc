"""`colo lab --real`: a real process in a real control group of this machine, with the values that the verdict reports."""

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from tests.support.lab import CGROUP_ROOT, Lab, groups_of, lab
from tests.support.servers import missing
from tests.support.waiting import NeverHappened, eventually_blocking

pytestmark = [pytest.mark.kernel, pytest.mark.server, pytest.mark.timeout(400)]

FIXED = ("cpu.shares", "cpu.weight", "cpuset.cpus", "cpuset.mems", "memory.limit_in_bytes", "memory.max", "pids.max")
"""Values of a replica that do not change while it runs, under either version of control groups."""


# The margin of a promise is not what is tested here; without it a machine that does other things as well has something to promise.
SETTINGS = {"COLO_OVERCOMMIT_CPU_RECLAIM_PCT": "100"}


def a_directory() -> Path:
    return Path(tempfile.mkdtemp(prefix="ct-"))


def replicas_with_processes(running: Lab) -> dict[str, dict[str, str]]:
    """Replica group -> the kernel's own files, of those in which the kernel shows a process of that replica's job."""
    running.note_children()
    alive: set[str] = set()
    values: dict[str, dict[str, str]] = {}
    for tree in groups_of(running.subtree):
        for group in sorted((tree / "batch").glob("real-*")):
            try:
                pids = (group / "cgroup.procs").read_text().split()
                files = [group / name for name in FIXED if (group / name).exists()]
                shown = {str(file.relative_to(CGROUP_ROOT)): file.read_text().strip() for file in files}
            except OSError:
                continue
            replica = group.name.partition("@")[0].replace(".", "/")
            if any(f"COLO_REPLICA={replica}".encode() in of_process(pid, "environ") for pid in pids):
                alive.add(group.name)
                values.setdefault(group.name, {}).update(shown)
    return {name: values[name] for name in alive}


def of_process(pid: int | str, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def until_a_replica_runs(running: Lab) -> dict[str, dict[str, str]]:
    """What the kernel shows of the first replica with a process. Where others use every CPU nothing is promised until they end."""
    try:
        return eventually_blocking(lambda: replicas_with_processes(running), "a replica with a process", limit_s=120)
    except NeverHappened:
        ended = running.interrupt()
        pytest.fail(f"no replica ran within 120 s: {ended.stderr or ended.verdict}")


def test_a_real_process_runs_in_a_control_group_with_the_values_that_are_reported() -> None:
    with lab(a_directory(), "--real", "--nodes", "2", "--json", settings=SETTINGS) as running:
        seen = until_a_replica_runs(running)
        # The lab looks four times a second; what it reports it has looked at itself.
        eventually_blocking(lambda: not seen.keys() & replicas_with_processes(running).keys(), "their end")
        ended = running.interrupt()
        left = running.left_behind()
    assert ended.code == 0, ended.stderr
    assert ended.took_s < 60
    real = ended.verdict["real"]
    assert real["replicas_run"] >= real["replicas_seen_in_the_kernel"] >= 1
    assert (real["subtree"], real["differs"]) == (running.subtree, [])
    assert real["pids"]
    # All real jobs ask for the same, so the values are the same whichever replica was looked at last.
    reported = {path.rpartition("/")[2]: value for path, value in real["knobs"].items() if "/real-" in path}
    for values in seen.values():
        for path, value in values.items():
            assert reported[path.rpartition("/")[2]] == value, path
    assert reported.get("memory.limit_in_bytes", reported.get("memory.max")) == str(64 << 20)
    assert 0 < real["ceiling_mcpu"]["least"] <= real["ceiling_mcpu"]["most"] <= 1_000 * (os.cpu_count() or 1)
    assert left == []


def test_an_interrupt_while_a_replica_runs_leaves_nothing() -> None:
    with lab(a_directory(), "--real", "--nodes", "2", "--json", settings=SETTINGS) as running:
        until_a_replica_runs(running)
        ended = running.interrupt()
        left = running.left_behind()
    assert ended.code == 0, ended.stderr
    assert ended.took_s < 60
    assert ended.verdict["real"]["replicas_run"] >= 1
    assert left == []


def test_what_a_killed_executor_left_is_put_back() -> None:
    with lab(a_directory(), "--real", "--nodes", "2", "--json", settings=SETTINGS) as running:
        until_a_replica_runs(running)
        (executor,) = (pid for pid in running.children if b"\0colo_executor\0" in of_process(pid, "cmdline"))
        running.process.send_signal(signal.SIGINT)
        os.kill(executor, signal.SIGKILL)
        ended = running.end()
        # The executor's watchdog outlives it by a second, and finds nothing to do.
        eventually_blocking(lambda: not running.left_behind(), "nothing is left")
    assert ended.code == 0, ended.stderr


def test_without_root_it_says_what_it_needs_and_goes_on() -> None:
    directory = a_directory()
    directory.chmod(0o777)
    with lab(directory, "--real", "--nodes", "2", "--duration", "3s", "--json", wrapper=nobody()) as running:
        ended = running.end()
        left = running.left_behind()
    assert ended.code == 0, ended.stderr
    verdict = ended.verdict
    assert verdict["nodes"] == 2
    assert (verdict["real"]["node"], verdict["real"]["lacking"]) == ("", "lacking: root, cgroup-write")
    assert any("--real needs root" in notice for notice in verdict["notices"])
    assert left == []


def nobody() -> list[str]:
    """A command that goes on as another user, who may still read this environment where it lies in root's directory."""
    program = shutil.which("setpriv")
    if program is None:
        missing("setpriv is not on the PATH")
    read_only = "-all,+dac_read_search"
    user = ("--reuid=65534", "--regid=65534", "--clear-groups")
    return [str(program), *user, f"--inh-caps={read_only}", f"--ambient-caps={read_only}", "--"]
