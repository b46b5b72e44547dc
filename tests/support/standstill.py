"""When this machine stood still, or had no CPU for a process that wanted one, for tests that state how soon something happens.

A virtual machine is stopped for seconds now and then, and beside other work every process waits. A process of its own sleeps for a
few milliseconds again and again; how much later it runs than it wanted is what the machine took from everybody.
"""

from __future__ import annotations

import json
import subprocess
import sys
from types import TracebackType
from typing import Final, Self

__all__ = ["Standstill"]

_TICK_S: Final = 0.005
_WATCH: Final = f"""
import json, select, sys, time
print("watches", flush=True)
gaps, ends = [], False
while not ends:
    due = time.monotonic() + {_TICK_S}
    ends = bool(select.select([sys.stdin], [], [], {_TICK_S})[0])
    now = time.monotonic()
    if now > due:
        gaps.append((due, now))
print(json.dumps(gaps))
"""


class Standstill:
    """Watches the machine while it is entered; `lost_s` tells afterwards."""

    def __init__(self) -> None:
        self._gaps: list[tuple[float, float]] = []

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WATCH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "watches\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        published, _ = self._process.communicate("ends\n")
        self._gaps = json.loads(published)

    def lost_s(self, begun_s: float = float("-inf"), ended_s: float = float("inf")) -> float:
        """The seconds between two moments of the monotonic clock in which a process that wanted to run did not."""
        return sum(max(0.0, min(end, ended_s) - max(begin, begun_s)) for begin, end in self._gaps)
