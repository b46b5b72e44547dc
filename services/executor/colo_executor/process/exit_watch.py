"""Learns of the end of first processes by their descriptors, so that no number of a process is ever mistaken for a later one's."""

import asyncio
import contextlib
import os
from collections.abc import Callable

from colo_executor.cgroup import CgroupError
from colo_executor.process.ending import RunningAttempt
from colo_executor.process.found import first_process
from colo_executor.process.machine import start_ticks

__all__ = ["ExitWatch"]


class ExitWatch:
    """`collect` is called on the loop's thread with each attempt whose first process exited. Attached attempts have none.

    Only a kernel that says that there is no such process ends an attempt. One that gives no descriptor, because this process has
    no room for another one or is not allowed the call, is asked again at each `look`, which meanwhile goes by number and start.
    """

    def __init__(self, proc_root: str, collect: Callable[[RunningAttempt], None]) -> None:
        self._proc_root = proc_root
        self._collect = collect
        self._unwatched: dict[str, tuple[RunningAttempt, int | None]] = {}

    def watch(self, running: RunningAttempt) -> None:
        """Watch a process that this executor started."""
        # Its number is nobody else's before this executor has reaped it, so that its start need not be compared.
        if running.attached is None and not self._begin(running, None):
            self._collect(running)

    def watch_again(self, running: RunningAttempt, ticks: int) -> bool:
        """Watch a process of an earlier executor; False when it has exited, or an attached group has no process.

        One that has no number yet is the oldest of its group.
        """
        return self._begin(running, ticks) if running.attached is None else running.attached.runs()

    def look(self) -> None:
        """Try again what could not be watched. To be called every second or so."""
        for running, ticks in tuple(self._unwatched.values()):
            if not self._begin(running, ticks):
                self._collect(running)

    def unwatch(self, running: RunningAttempt) -> None:
        """Watch it no more."""
        self._unwatched.pop(running.token, None)
        if running.pidfd >= 0:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop().remove_reader(running.pidfd)
            os.close(running.pidfd)
            running.pidfd = -1

    def first(self, running: RunningAttempt) -> int:
        """Take the oldest process of the group for the attempt's own; its start (clock ticks), 0 when none is or can be known."""
        with contextlib.suppress(CgroupError, OSError):
            return self._find(running)
        return 0

    def _find(self, running: RunningAttempt) -> int:
        found = first_process(self._proc_root, running.tree.pids(running.group))
        running.pid, ticks = (0, 0) if found is None else found
        return ticks

    def _begin(self, running: RunningAttempt, ticks: int | None) -> bool:
        """Watch the process from now on, or look at it again later; False when it is known to have exited."""
        self._unwatched.pop(running.token, None)
        try:
            if ticks is not None:
                ticks = ticks if running.pid else self._find(running)
                if running.pid not in running.tree.pids(running.group):
                    return False
            return self._open(running, ticks)
        except ProcessLookupError:
            return False
        except (CgroupError, OSError):
            with contextlib.suppress(OSError):
                if running.pid and not self._is_same(running, ticks):
                    return False
            self._unwatched[running.token] = running, ticks
            return True

    def _open(self, running: RunningAttempt, ticks: int | None) -> bool:
        pidfd = os.pidfd_open(running.pid)
        is_watched = False
        try:
            # Asked when the descriptor refers to the process, so that its number cannot be another's in between.
            if ticks is None or self._is_same(running, ticks):
                asyncio.get_running_loop().add_reader(pidfd, self._collect, running)
                running.pidfd, is_watched = pidfd, True
        finally:
            if not is_watched:
                os.close(pidfd)
        return is_watched

    def _is_same(self, running: RunningAttempt, ticks: int | None) -> bool:
        """Whether the process is alive and, where its start is given, the one that started then."""
        now = start_ticks(self._proc_root, running.pid)
        return now is not None and ticks in (None, now)
