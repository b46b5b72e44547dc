"""Looks what the outputs and working directories of replicas take of the disk, and says which take more than they may."""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import structlog

from colo_common.model.placement import Placement, replica_token
from colo_common.model.quantity import bytes_text
from colo_executor.disk_limits import DiskLimit, disk_limit
from colo_executor.local import DiskOverused
from colo_executor.process.disk_walk import DEPTH_MOST, count

__all__ = ["DiskWatch"]

_ENTRY_S: Final = 0.000_2
# What takes longer would keep all others waiting, and empties the disk of inodes besides.
_ENTRIES_MOST: Final = 1_000_000


class DiskWatch:
    """A thread of its own, because a disk may let it wait; it does not keep the process from ending.

    It counts 5,000 files a second at most, so that replicas with many of them take no CPU from anything else; those without a limit
    are not looked at. `running` are those with their directories; it is called in that thread.
    """

    def __init__(
        self, limits: Mapping[str, str], every_s: float, running: Callable[[], list[tuple[Placement, Path]]]
    ) -> None:
        self._limits = limits
        self._every_s = every_s
        self._running = running
        self._found: deque[DiskOverused] = deque()
        self._unknown: dict[str, str] = {}
        self._is_over = threading.Event()
        self._log = structlog.get_logger("executor")

    def begin(self) -> None:
        """Begin to look."""
        threading.Thread(target=self._run, name="disk-watch", daemon=True).start()

    def close(self) -> None:
        """Look no more; does not wait for the disk."""
        self._is_over.set()

    def found(self) -> tuple[DiskOverused, ...]:
        """What was found since the last call. For any thread."""
        found = []
        while self._found:
            found.append(self._found.popleft())
        return tuple(found)

    def _run(self) -> None:
        while not self._is_over.wait(self._every_s):
            unknown_before, self._unknown = self._unknown, {}
            for placement, directory in self._running():
                if (limit := disk_limit(placement, self._limits)) is None:
                    continue
                token = replica_token(placement.replica, placement.attempt)
                overused, why_unknown = self._look(directory, limit)
                if self._is_over.is_set():
                    return
                if overused:
                    self._found.append(
                        DiskOverused(replica=placement.replica, attempt=placement.attempt, detail=overused)
                    )
                if why_unknown:
                    self._unknown[token] = why_unknown
                    if unknown_before.get(token) != why_unknown:
                        self._log.warning("disk-not-counted", replica=token, detail=why_unknown)

    def _look(self, directory: Path, limit: DiskLimit) -> tuple[str, str]:
        """Two sentences: that the directory takes too much, and why not all of it could be counted; "" if it is not so."""
        refused = entries = 0
        try:
            for counted in count(directory):
                refused = counted.refused
                entries += counted.entries
                if counted.taken_bytes > limit.most_bytes:
                    return limit.overused(bytes_text(counted.taken_bytes)), ""
                if counted.deep:
                    return limit.overused(f"what is not counted, more than {DEPTH_MOST} directories deep"), ""
                if entries > _ENTRIES_MOST:
                    return limit.overused(f"more than the {_ENTRIES_MOST} files that are counted"), ""
                if self._is_over.wait(counted.entries * _ENTRY_S):
                    return "", ""
        except FileNotFoundError:
            return "", ""
        except OSError as error:
            return "", str(error)
        return "", f"{refused} directories could not be entered" if refused else ""
