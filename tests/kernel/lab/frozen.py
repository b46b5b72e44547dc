"""When a machine counts as frozen: its own kernel has said that it stands still, and nothing has been heard of it since."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["SILENCE_S", "STALL_S", "FrozenRule", "stalls_in"]

STALL_S: Final = 10
"""How long the kernel waits before it reports a stall, half of what it waits on its own (21 s), to be told earlier. Not less: on a
host that gives the emulator a fraction of its CPUs one CPU of the machine may well stand still for seconds."""

SILENCE_S: Final = 20.0
"""How long nothing may be heard after a report. Alone neither counts: stalls pass, and commands are quiet."""

_STALL: Final = re.compile(
    r"rcu: INFO: \S+ (?:detected (?:expedited )?stalls|self-detected stall)|watchdog: BUG: soft lockup"
)
_PASSED: Final = re.compile(r"INFO: Stall ended before state dump start")


def stalls_in(console: str) -> int:
    """How many stalls the kernel has reported on its console, without those that it says were over when it looked closer.

    Hung tasks are not counted: a task may wait for a command's own reasons.
    """
    return max(0, len(_STALL.findall(console)) - len(_PASSED.findall(console)))


class FrozenRule:
    """Frozen is who has reported a stall and then said nothing for `silence_s`: neither output nor status.

    Whatever is heard shows that the stalls reported before have passed; a stall that lasts is reported again.
    """

    def __init__(self, silence_s: float = SILENCE_S) -> None:
        self._silence_s = silence_s
        self._received = 0
        self._stalls = 0
        self._passed = 0
        self._quiet_since_s = 0.0

    def look(self, now_s: float, *, stalls: int, received: int) -> bool:
        """Whether the machine is frozen. `stalls` are those reported so far, `received` the bytes of output and status so far.

        A report and a word that come between two looks count as if the report had come last.
        """
        # A report that the kernel takes back was none, also of those that had passed.
        self._passed = min(self._passed, stalls)
        if received != self._received:
            self._received, self._passed, self._quiet_since_s = received, self._stalls, now_s
        elif self._stalls <= self._passed < stalls:
            self._quiet_since_s = now_s
        self._stalls = stalls
        return stalls > self._passed and now_s - self._quiet_since_s >= self._silence_s
