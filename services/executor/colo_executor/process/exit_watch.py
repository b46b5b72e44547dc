"""Learns of the end of first processes by their descriptors, so that no number of a process is ever mistaken for a later one's."""

import asyncio
import contextlib
import os
from collections.abc import Callable

from colo_executor.process.ending import RunningAttempt
from colo_executor.process.machine import is_same_process

__all__ = ["ExitWatch"]


class ExitWatch:
    """`collect` is called on the loop's thread with each attempt whose first process exited. Attached attempts have none."""

    def __init__(self, proc_root: str, collect: Callable[[RunningAttempt], None]) -> None:
        self._proc_root = proc_root
        self._collect = collect

    def watch(self, running: RunningAttempt) -> None:
        """Watch a process that this executor started."""
        if running.attached is not None:
            return
        try:
            running.pidfd = os.pidfd_open(running.pid)
        except OSError:
            self._collect(running)
            return
        asyncio.get_running_loop().add_reader(running.pidfd, self._collect, running)

    def watch_again(self, running: RunningAttempt, ticks: int) -> bool:
        """Watch a process of an earlier executor; False when it has exited, or an attached group has no process."""
        if running.attached is not None:
            return running.attached.runs()
        if running.pid not in running.tree.pids(running.group):
            return False
        try:
            running.pidfd = os.pidfd_open(running.pid)
        except OSError:
            return False
        # Checked after the descriptor refers to the process, so that its pid cannot be reused in between.
        if not is_same_process(self._proc_root, running.pid, ticks):
            os.close(running.pidfd)
            running.pidfd = -1
            return False
        asyncio.get_running_loop().add_reader(running.pidfd, self._collect, running)
        return True

    def unwatch(self, running: RunningAttempt) -> None:
        """Watch it no more."""
        if running.pidfd >= 0:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop().remove_reader(running.pidfd)
            os.close(running.pidfd)
            running.pidfd = -1
