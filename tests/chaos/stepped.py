"""`python -m tests.chaos.stepped` runs a service whose wall clock another program steps: a stand-in for libfaketime.

CHAOS_MODULE is the service, CHAOS_CLOCK a file of eight bytes: the nanoseconds by which its wall clock is ahead. The monotonic
clock is the machine's.
"""

from __future__ import annotations

import mmap
import os
import runpy
import struct
import sys
import time
from pathlib import Path
from typing import Final

__all__ = ["StepFile"]

_LAYOUT: Final = struct.Struct("<q")


class StepFile:
    """The file of a step."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(_LAYOUT.pack(0))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _LAYOUT.size)

    @property
    def ahead_ns(self) -> int:
        """The nanoseconds by which the clock is ahead."""
        return int(_LAYOUT.unpack_from(self._memory)[0])

    def step_to(self, ahead_ns: int) -> None:
        """Step the clock: from now on it is ahead by this, behind when it is below 0."""
        _LAYOUT.pack_into(self._memory, 0, ahead_ns)


def _run() -> None:
    step = StepFile(Path(os.environ["CHAOS_CLOCK"]))
    real_ns = time.time_ns

    def time_ns() -> int:
        return real_ns() + step.ahead_ns

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9
    module = os.environ["CHAOS_MODULE"]
    # The command line is the service's own.
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run()
