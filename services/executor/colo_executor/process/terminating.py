"""SIGTERM to an attempt, and to a command that had not begun: the shell that starts it hears the signal in its place and waits on.

Batch work that is ordered to end right after its start has little CPU beside online work, so that the shell may be between the gate
and its command for seconds. The signal that came in that time is sent again, once, to the command alone: no other process of the
attempt hears it twice. So it is in a PID namespace of the attempt's own, whose first process hears nothing before it has handlers.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from typing import Final

from colo_executor.cgroup import CgroupError
from colo_executor.group_signals import send
from colo_executor.process.namespaces import makes_namespaces

__all__ = ["Terminating", "command_of"]

_FIRST_WAIT_S: Final = 0.02
_LONGEST_WAIT_S: Final = 0.5
_PARENT, _STACK = 1, 25
_COMMAND_LINE_MOST: Final = 4_096


class Terminating:
    """One task an attempt that has not heard it all yet; it ends with the signal, or with the attempt."""

    def __init__(self, proc_root: str) -> None:
        self._proc_root = proc_root
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def terminate(
        self, token: str, shell: int, pids: Callable[[], tuple[int, ...]], send_all: Callable[[], bool]
    ) -> None:
        """Let every process of the attempt have SIGTERM by `send_all`; where it says False, the command as well when it begins.

        `pids` are the attempt's processes, none when it has ended. Both run in threads, and again after a while where they raise
        CgroupError or OSError.
        """
        is_sent = True
        try:
            if await asyncio.to_thread(send_all):
                return
        except (CgroupError, OSError):
            is_sent = False
        if token not in self._tasks:
            task = asyncio.get_running_loop().create_task(
                self._until_received(shell, pids, None if is_sent else send_all)
            )
            self._tasks[token] = task
            task.add_done_callback(lambda _: self._tasks.pop(token, None))

    async def close(self) -> None:
        """Stop; the executor's next start sends nothing again."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _until_received(
        self, shell: int, pids: Callable[[], tuple[int, ...]], send_all: Callable[[], bool] | None
    ) -> None:
        wait_s = _FIRST_WAIT_S
        while True:
            with contextlib.suppress(CgroupError, OSError):
                found = await asyncio.to_thread(pids)
                if not found or (send_all is not None and await asyncio.to_thread(send_all)):
                    return
                send_all = None
                command = command_of(self._proc_root, shell, found)
                if command is not None:
                    await asyncio.to_thread(send, signal.SIGTERM, (command,), pids)
                    return
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


def command_of(proc_root: str, shell: int, pids: tuple[int, ...]) -> int | None:
    """The process that becomes the command, None before there is one: from then on a signal reaches the command or ends it.

    It is the child of the shell that runs a program of its own; in a PID namespace that child makes the namespace, its child is the
    first process there, which waits, and the child of this one is the command.
    """
    child = _program_of(proc_root, shell, pids)
    if child is None or not makes_namespaces(_words(proc_root, child)):
        return child
    first = _program_of(proc_root, child, pids)
    return None if first is None else _program_of(proc_root, first, pids)


def _program_of(proc_root: str, parent: int, pids: tuple[int, ...]) -> int | None:
    """The child of the process that runs a program of its own.

    A child that has not executed anything yet is its parent's copy, with its handlers and its stack; the kernel places the stack of
    each program again.
    """
    own = _stat(proc_root, parent)
    if own is None:
        return None
    for pid in sorted(pids):
        fields = _stat(proc_root, pid)
        if fields is not None and fields[_PARENT] == str(parent) and fields[_STACK] != own[_STACK]:
            return pid
    return None


def _words(proc_root: str, pid: int) -> list[str]:
    """The command line of a process; none when it is gone."""
    try:
        with open(os.path.join(proc_root, str(pid), "cmdline"), encoding="utf-8", errors="replace") as file:
            return file.read(_COMMAND_LINE_MOST).split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def _stat(proc_root: str, pid: int) -> list[str] | None:
    """The fields of a process' stat file after its name, which may hold spaces and brackets; None when it is gone."""
    try:
        with open(os.path.join(proc_root, str(pid), "stat"), encoding="utf-8", errors="replace") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 2 :].split()
