"""Starts the watchdog of this executor's reflex, and beats for it."""

import asyncio
import contextlib
import mmap
import os
import subprocess
import sys
import time
from typing import Final

import structlog

from colo_executor.process import watchdog

__all__ = ["Watched"]

_LIMIT_S: Final = 30.0
_PROGRAM: Final = watchdog.__file__


class Watched:
    """One watchdog process. `beat` is cheap; `leave` ends the process. Where it cannot be started that is logged, and there is no
    watchdog.
    """

    def __init__(self, quota_path: str, floor_us: int, after_ms: int, frozen_path: str = "") -> None:
        fd = os.memfd_create("colo-beat", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, watchdog.BEAT_BYTES)
            self._beat = mmap.mmap(fd, watchdog.BEAT_BYTES)
            self.beat()
            command = [sys.executable, "-I", "-S", _PROGRAM, str(fd), str(os.getpid()), quota_path]
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                [*command, str(floor_us), str(after_ms), frozen_path],
                pass_fds=(fd,),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                env={},
            )
        except OSError as error:
            self._process = None
            structlog.get_logger("executor").warning("no-watchdog", error=str(error))
        finally:
            os.close(fd)

    def beat(self) -> None:
        """Say that the reflex runs."""
        self._beat[: watchdog.BEAT_BYTES] = time.monotonic_ns().to_bytes(watchdog.BEAT_BYTES, "little")

    async def leave(self) -> None:
        """Say that no reflex runs any more, in order, and wait a bounded time for the watchdog to end."""
        self._beat[: watchdog.BEAT_BYTES] = bytes(watchdog.BEAT_BYTES)
        await asyncio.to_thread(self._reap)

    def _reap(self) -> None:
        if self._process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LIMIT_S)
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()
        self._process = None
