"""Ends attempts beside the command loop: kills until nothing is left, reads what the attempt used, removes its group."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import structlog
from msgspec import Struct

from colo_common.model.placement import Placement
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.local import ReplicaExited
from colo_executor.process.attached_use import AttachedUse
from colo_executor.process.launch import NO_ROOM, attempt_dir, exit_status
from colo_executor.process.output import OUTPUTS

__all__ = ["Ending", "RunningAttempt"]

_FIRST_WAIT_S: Final = 0.001
_LONGEST_WAIT_S: Final = 1.0
_STUCK_AFTER_S: Final = 10.0


class RunningAttempt(Struct, kw_only=True):
    """An attempt with a group in `tree`. `pid` is its first process, 0 when none is known; `pidfd` -1 when nobody watches it.

    `attached`: the group and its processes are somebody else's. `output_dir` is where its outputs are; another one may be set
    since it was started.
    """

    placement: Placement
    token: str
    tree: CgroupTree
    group: str
    pid: int
    pidfd: int = -1
    attached: AttachedUse | None = None
    output_dir: Path = Path()
    directory: Path = Path()

    def keep_in(self, output_dir: Path) -> None:
        """Have its outputs in `output_dir`: `directory` is that of its outputs, its exit status and its working directory."""
        # Kept and not put together each time: the outputs of every attempt are looked at once a second.
        self.output_dir, self.directory = output_dir, attempt_dir(output_dir, self.token)


class Ending:
    """One task an attempt. An attempt has ended when its group is gone, and no sooner: until then it is tried again, each second.

    `kill_now` sends SIGKILL once and says whether nothing is left; `drop` removes the group and says whether it is gone. Both run
    in threads and do not wait, so that one attempt that cannot die delays no other.
    """

    def __init__(
        self,
        kill_now: Callable[[RunningAttempt], bool],
        drop: Callable[[RunningAttempt], bool],
        ended: Callable[[RunningAttempt, ReplicaExited], None],
    ) -> None:
        self._kill_now = kill_now
        self._drop = drop
        self._ended = ended
        self._kills: dict[str, asyncio.Task[None]] = {}
        self._collecting: dict[str, asyncio.Task[None]] = {}
        self._stuck: set[str] = set()
        self._undone: deque[RunningAttempt] = deque()
        self._log = structlog.get_logger("executor")

    @property
    def stuck_count(self) -> int:
        """The attempts that have not ended ten seconds after the first SIGKILL."""
        return len(self._stuck)

    def kill(self, running: RunningAttempt) -> asyncio.Task[None]:
        """Kill the attempt until nothing of it is left; the task that does it, also when it is under way already.

        One that has ended begins anew: the group is still there, and what came into it since is to be killed too.
        """
        task = self._kills.get(running.token)
        if task is None or task.done():
            task = asyncio.get_running_loop().create_task(
                self._until(running, self._kill_now, "has processes that SIGKILL does not end")
            )
            self._kills[running.token] = task
        return task

    def collect(self, running: RunningAttempt) -> None:
        """Finish an attempt whose first process exited."""
        if running.token not in self._collecting:
            self._collecting[running.token] = asyncio.get_running_loop().create_task(self._collect(running))

    def undo(self, running: RunningAttempt) -> None:
        """Remove the group of an attempt that never began; what the kernel refuses now each `undo_again` tries. For any thread."""
        if not _whether(self._drop, running):
            self._undone.append(running)

    def undo_again(self) -> None:
        """Try once more to remove the groups of attempts that never began. Nobody is told: their launches have failed. Blocks."""
        for _ in range(len(self._undone)):
            running = self._undone.popleft()
            if not _whether(self._is_undone, running):
                self._undone.append(running)

    def _is_undone(self, running: RunningAttempt) -> bool:
        # A group that is gone may be made again, by an attempt of that name which begins.
        return not running.tree.exists(running.group) or (self._kill_now(running) and self._drop(running))

    async def close(self) -> None:
        """Stop; what has not ended is found by the next executor."""
        tasks = (*self._kills.values(), *self._collecting.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._kills.clear()
        self._collecting.clear()

    async def _collect(self, running: RunningAttempt) -> None:
        await self.kill(running)
        ends: list[ReplicaExited] = []
        await self._until(
            running, partial(self._account, ends), "has ended, and this process may open no file to see how"
        )
        await self._until(running, self._drop, "has a control group that cannot be removed")
        self._stuck.discard(running.token)
        self._kills.pop(running.token, None)
        self._collecting.pop(running.token, None)
        self._ended(running, ends[0])

    async def _until(self, running: RunningAttempt, step: Callable[[RunningAttempt], bool], what: str) -> None:
        wait_s, began_s = _FIRST_WAIT_S, time.monotonic()
        while not await asyncio.to_thread(_whether, step, running):
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
            if time.monotonic() - began_s > _STUCK_AFTER_S and running.token not in self._stuck:
                self._stuck.add(running.token)
                self._log.warning("replica-stuck", group=running.group, what=what)

    def _account(self, ends: list[ReplicaExited], running: RunningAttempt) -> bool:
        """Add the attempt's end to `ends`. Raises CgroupError or OSError when nothing can be read for the moment."""
        attached = running.attached
        ends.append(self._exited(running) if attached is None else attached.exited(running.placement))
        return True

    def _exited(self, running: RunningAttempt) -> ReplicaExited:
        tree, group = running.tree, running.group
        directory = running.directory
        cpu_used_ms, memory_peak_bytes, oom, remarks = 0, 0, False, []
        try:
            cpu_used_ms = tree.cpu_used_us(group) // 1_000
            oom = tree.oom_kills(group) > 0
            memory_peak_bytes = tree.memory_peak_bytes(group)
        except (CgroupError, OSError, ValueError) as error:
            cause = error.__cause__ if isinstance(error, CgroupError) else error
            if isinstance(cause, OSError) and cause.errno in NO_ROOM:
                raise
        # Last, because it reaps the process.
        exit_code = exit_status(directory, running.pid)
        if exit_code is None:
            remarks.append("its exit code is not known, because no executor watched when it ended")
        sizes = [f"{name} {_size(directory / name)} bytes" for name in OUTPUTS]
        remarks.append(f"output in {directory} ({', '.join(sizes)})")
        return ReplicaExited(
            replica=running.placement.replica,
            attempt=running.placement.attempt,
            exit_code=exit_code,
            oom=oom,
            cpu_used_ms=cpu_used_ms,
            detail="; ".join(remarks),
            memory_peak_bytes=memory_peak_bytes,
        )


def _whether(step: Callable[[RunningAttempt], bool], running: RunningAttempt) -> bool:
    """Whether the step succeeded; one that the kernel refused is tried again."""
    try:
        return step(running)
    except (CgroupError, OSError):
        return False


def _size(path: Path) -> int:
    try:
        return path.stat(follow_symlinks=False).st_size
    except OSError:
        return 0
