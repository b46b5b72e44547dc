"""Waiting until other work leaves the CPUs alone, for tests that state how long something takes or how much CPU it gets.

The load average is no help: it falls for minutes after the work has ended. What the CPUs did in the last windows is read instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.waiting import NeverHappened, eventually_blocking

__all__ = ["BUSY_MOST", "BusyShare", "CpuTime", "NeverQuiet", "cpu_time", "wait_until_quiet"]

BUSY_MOST: Final = 0.8
"""The share of all CPU time that others may use: on two CPUs two fifths of one are left, which is more than tests ask for."""
LIMIT_S: Final = 60.0
_WINDOW_S: Final = 0.2
_WINDOWS: Final = 3
"""So many windows in a row must be quiet, so that a pause between two processes is not taken for the end of the work."""


class NeverQuiet(AssertionError):
    """Other work kept the machine busy up to the limit."""


class CpuTime(NamedTuple):
    """What all CPUs together did since the machine started, in ticks."""

    busy: int
    total: int


def cpu_time(stat: Path = Path("/proc/stat")) -> CpuTime:
    """Read the first line of /proc/stat. Waiting for a disk counts as idle, time taken by the hypervisor as busy."""
    # user nice system idle iowait irq softirq steal; guests are counted in user already.
    ticks = [int(word) for word in stat.read_text().partition("\n")[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return CpuTime(busy=sum(ticks) - idle, total=sum(ticks))


class BusyShare:
    """The busy share of each window of `window_s`; `look` says whether the last windows were quiet."""

    def __init__(
        self,
        busy_most: float,
        *,
        window_s: float = _WINDOW_S,
        read: Callable[[], CpuTime] = cpu_time,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.shares: list[float] = []
        self._busy_most = busy_most
        self._window_s = window_s
        self._read = read
        self._now_s = now_s
        self._since_s = now_s()
        self._before = read()

    def look(self) -> bool:
        """Close the window when it is over; whether each of the last three was quiet."""
        if self._now_s() - self._since_s >= self._window_s:
            now = self._read()
            ticks = max(1, now.total - self._before.total)
            self.shares.append((now.busy - self._before.busy) / ticks)
            self._since_s, self._before = self._now_s(), now
        last = self.shares[-_WINDOWS:]
        return len(last) == _WINDOWS and max(last) <= self._busy_most


def wait_until_quiet(busy_most: float = BUSY_MOST, *, limit_s: float = LIMIT_S) -> None:
    """Return after most of a second in which at most this share of all CPU time was used; raise NeverQuiet at the limit.

    It waits in real time and blocks the thread: call it before a loop runs, or in a fixture that is no coroutine.
    """
    share = BusyShare(busy_most)
    try:
        eventually_blocking(share.look, "a quiet machine", limit_s=limit_s)
    except NeverHappened:
        seen = ", ".join(f"{100 * each:.0f} %" for each in share.shares[-_WINDOWS:])
        sentence = f"other work keeps this machine busy: {seen} in the last windows after {limit_s:g} s"
        raise NeverQuiet(f"{sentence}, at most {100 * busy_most:.0f} % may be") from None
