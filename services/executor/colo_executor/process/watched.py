"""Starts the watchdog of this executor's reflex, and beats for it."""

import asyncio
import contextlib
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

import structlog

from colo_executor.process import watchdog

__all__ = ["Watched"]

_LIMIT_S: Final = 30.0
_LOOK_S: Final = 1.0
_PROGRAM: Final = watchdog.__file__


class Watched:
    """One watchdog process. `beat` is cheap; `look_after` starts another one when it ended, and `leave` ends it. Where none can be
    started that is logged, and tried again.

    `take` moves a new one, by its pid, out of the executor's control groups, and returns "" or why it could not: in a container the
    end of these groups would be its end, too.
    """

    def __init__(
        self,
        quota_path: str,
        floor_us: int,
        after_ms: int,
        frozen_path: str = "",
        take: Callable[[int], str] = lambda pid: "",
    ) -> None:
        self._fd = os.memfd_create("colo-beat", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, watchdog.BEAT_BYTES)
        self._beat = mmap.mmap(self._fd, watchdog.BEAT_BYTES)
        self._arguments = (str(os.getpid()), quota_path, str(floor_us), str(after_ms), frozen_path)
        self._take = take
        self._log = structlog.get_logger("executor")
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False
        self.beat()
        self._start()

    @property
    def pid(self) -> int:
        """The pid of the watchdog, 0 without one."""
        return 0 if self._process is None else self._process.pid

    async def look_after(self) -> None:
        """Start another watchdog when it has ended, such as by the kernel for want of memory, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            if self._process is not None and self._process.poll() is not None and not self._is_over:
                self._log.warning("watchdog-ended", code=self._process.returncode)
                self._process = None
            if self._process is None and not self._is_over:
                await asyncio.to_thread(self._start)

    def _start(self) -> None:
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", _PROGRAM, str(self._fd), *self._arguments],
                pass_fds=(self._fd,),
                stdin=subprocess.DEVNULL,
                # It outlives a container, whose runtime would wait for these to be closed.
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                env={},
            )
        except OSError as error:
            self._log.warning("no-watchdog", error=str(error))
            return
        if refusal := self._take(self._process.pid):
            self._log.warning("watchdog-not-apart", detail=refusal)

    def start_no_more(self) -> None:
        """Let the present one watch on, and start no other: the machine is about to be put back, which ends it."""
        self._is_over = True

    def beat(self) -> None:
        """Say that the reflex runs."""
        self._beat[: watchdog.BEAT_BYTES] = time.monotonic_ns().to_bytes(watchdog.BEAT_BYTES, "little")

    async def leave(self) -> None:
        """Say that no reflex runs any more, in order, and wait a bounded time for the watchdog to end."""
        self._is_over = True
        self._beat[: watchdog.BEAT_BYTES] = bytes(watchdog.BEAT_BYTES)
        await asyncio.to_thread(self._reap)

    def _reap(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LIMIT_S)
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()
        self._process = None
