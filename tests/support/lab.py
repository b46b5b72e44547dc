"""A lab as its users see it: `colo lab` in a process of its own, what it printed, and what it left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.waiting import LIMIT_S, eventually_blocking

__all__ = ["CGROUP_ROOT", "Lab", "LabEnd", "groups_of", "lab"]

CGROUP_ROOT = Path("/sys/fs/cgroup")


class LabEnd(NamedTuple):
    """How a lab ended: exit code, output, and the seconds from the signal (or the wait for it) to the end."""

    code: int
    stdout: str
    stderr: str
    took_s: float

    @property
    def verdict(self) -> dict[str, Any]:
        """The one JSON object on its standard output."""
        verdict: dict[str, Any] = json.loads(self.stdout)
        return verdict


class Lab:
    """A running lab. Its temporary directory is in `directory`, so that what it leaves there is its own."""

    def __init__(self, process: subprocess.Popen[str], directory: Path) -> None:
        self.process = process
        self.directory = directory
        self.children: dict[int, str] = {}
        #: Each port on which it listened, and the number of the socket: a port may be somebody else's afterwards.
        self.ports: dict[int, str] = {}

    @property
    def subtree(self) -> str:
        """The name of the control groups of its real node."""
        return f"colo-lab-{self.process.pid}"

    def note_children(self) -> None:
        """Remember every process below the lab, and the ports on which they listen."""
        for pid in _descendants(self.process.pid):
            self.children[pid] = _start_of(pid)
            self.ports |= _listening(pid)

    def wait_for_log(self, event: str, limit_s: float = LIMIT_S) -> None:
        """Return when some service of it has logged the event."""
        eventually_blocking(lambda: self._has_logged(event), f"{event} in a log", limit_s=limit_s)

    def _has_logged(self, event: str) -> bool:
        ended = self.process.poll()
        assert ended is None, f"the lab ended with {ended}: {self.process.communicate()}"
        needle = f'"event":"{event}"'
        return any(needle in path.read_text("utf-8", "replace") for path in self.directory.glob("colo-lab-*/*.log"))

    def interrupt(self, limit_s: float = LIMIT_S, *, number: int = signal.SIGINT) -> LabEnd:
        """Ctrl-C, or another signal."""
        self.process.send_signal(number)
        return self.end(limit_s)

    def end(self, limit_s: float = 60.0) -> LabEnd:
        """Wait for its end."""
        begun_s = time.monotonic()
        stdout, stderr = self.process.communicate(timeout=limit_s)
        return LabEnd(self.process.returncode, stdout, stderr, time.monotonic() - begun_s)

    def left_behind(self) -> list[str]:
        """Processes, control groups, files and ports of it that are still there: empty for a clean end."""
        found = [f"process {pid}" for pid, start in self.children.items() if start and _start_of(pid) == start]
        found += [str(path) for path in groups_of(self.subtree)]
        found += [str(path) for path in self.directory.iterdir()]
        listening = _listening_sockets()
        return found + [f"port {port}" for port, inode in sorted(self.ports.items()) if listening.get(port) == inode]


@contextmanager
def lab(
    directory: Path, *arguments: str, wrapper: Sequence[str] = (), settings: Mapping[str, str] | None = None
) -> Iterator[Lab]:
    """`colo lab ARGUMENTS` with its temporary files in `directory`, which is removed; ended at the latest with the block.

    `wrapper` is a command that becomes the lab, such as setpriv.
    """
    process = subprocess.Popen(
        [*wrapper, sys.executable, "-m", "colo_cli", "lab", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**_environment(), **(settings or {}), "TMPDIR": str(directory)},
    )
    try:
        yield Lab(process, directory)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        shutil.rmtree(directory, ignore_errors=True)


def groups_of(subtree: str) -> list[Path]:
    """The directories of a subtree, under whichever controller."""
    return sorted((*CGROUP_ROOT.glob(f"*/{subtree}"), *CGROUP_ROOT.glob(subtree)))


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("COLO_")}


def _descendants(pid: int) -> Sequence[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(word) for word in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *_descendants(child)]
    return found


def _start_of(pid: int) -> str:
    """When the process started, "" when it is gone: a number may be given again."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _listening(pid: int) -> dict[int, str]:
    """TCP ports on which the process listens, each with the number of its socket."""
    held = set()
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            # A descriptor that it closes meanwhile takes none of the others away.
            with suppress(OSError):
                held.add(os.readlink(entry))
    return {port: inode for port, inode in _listening_sockets().items() if f"socket:[{inode}]" in held}


def _listening_sockets() -> dict[int, str]:
    """Every TCP port of this machine on which somebody listens, with the number of the socket."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16): row[9] for row in rows if row[3] == "0A"}
