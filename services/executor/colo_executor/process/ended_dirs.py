"""The directories of attempts that ended: the working directory goes with the attempt, the outputs of the last ones stay."""

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from colo_executor.process.launch import WORK, attempt_dir, attempts_dir
from colo_executor.process.output import rotate_all
from colo_executor.process.remove_tree import remove_tree
from colo_executor.process.settings import ProcessPolicy

__all__ = ["EndedDirs", "prune_attempts"]

_ASIDE: Final = "work.ended"
_BLOCK_BYTES: Final = 512


class EndedDirs:
    """Removes them in a thread of its own, one after the other: what a job left may be as large as its disk, and the threads that
    kill and start must not wait for that. The thread does not keep a process from ending; the next start goes on.

    So many attempts stay as the policy keeps, beside those that are `in_use`, which is called in that thread; together they take as
    much as it says at most, and each of their outputs what it may have, as while they ran.
    """

    def __init__(self, state_dir: Path, policy: ProcessPolicy, in_use: Callable[[], frozenset[str]]) -> None:
        self._state_dir = state_dir
        self._policy = policy
        self._in_use = in_use
        self._due: SimpleQueue[Path | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def begin(self, running: frozenset[str]) -> None:
        """Remove the working directories that an earlier executor left, but of the attempts that still run.

        They are renamed here and now: an attempt that is launched later may have the name of one that never ran.
        """
        for name in _names(attempts_dir(self._state_dir)):
            if name in running:
                continue
            directory = attempt_dir(self._state_dir, name)
            with contextlib.suppress(OSError):
                os.rename(directory / WORK, directory / _ASIDE)
            if (directory / _ASIDE).is_dir():
                self._put(directory / _ASIDE)

    def ended(self, directory: Path) -> None:
        """Remove the working directory in this directory of an attempt, and all of the oldest attempts beside it."""
        self._put(directory / WORK)

    def close(self) -> None:
        """Remove no more than is under way."""
        if self._thread is not None:
            self._due.put(None)

    def _put(self, directory: Path) -> None:
        self._due.put(directory)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ended-dirs", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (directory := self._due.get()) is not None:
            remove_tree(directory)
            # What it wrote between the last look and its end.
            rotate_all([directory.parent], self._policy.output_most_bytes)
            place = directory.parents[2]
            prune_attempts(place, self._policy.attempts_kept, self._policy.attempts_kept_bytes, self._in_use())


def prune_attempts(state_dir: Path, kept: int, kept_bytes: int, in_use: frozenset[str]) -> None:
    """Keep the `kept` newest directories of attempts that are not in use, and of these as many as take `kept_bytes` together.

    The newest one stays, whatever it takes.
    """
    root = attempts_dir(state_dir)
    with contextlib.suppress(OSError):
        found = [(entry.stat(follow_symlinks=False).st_mtime_ns, entry.name) for entry in os.scandir(root)]
        ended = [name for _, name in sorted(found, reverse=True) if name not in in_use]
        taken_bytes = 0
        for at, name in enumerate(ended):
            taken_bytes += _taken_bytes(root / name)
            if at >= kept or (at and taken_bytes > kept_bytes):
                remove_tree(root / name)


def _taken_bytes(directory: Path) -> int:
    """What the files directly in the directory take of the disk."""
    try:
        with os.scandir(directory) as entries:
            return sum(entry.stat(follow_symlinks=False).st_blocks for entry in entries) * _BLOCK_BYTES
    except OSError:
        return 0


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []
