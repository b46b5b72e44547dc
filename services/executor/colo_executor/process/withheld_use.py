"""What the CPUs that nobody is given were used: it is the system's use, and must not count as that of online work as well."""

import os
from collections import deque
from typing import Final

from colo_common.model.cpuset import CpuSet

__all__ = ["WithheldUse"]

_EVERY_NS: Final = 100_000_000
_USED_FIELDS: Final = 3
"""user, nice and system; a guest is in user. Interrupts and stolen time are counted for the whole machine, by the fast reading."""


class WithheldUse:
    """Reads the CPUs' lines of /proc/stat at most every 100 ms, and not at all while no CPU is withheld.

    The kernel counts in ticks of mostly 10 ms, and the text has a number for each interrupt of a large machine.
    """

    def __init__(self, proc_root: str) -> None:
        self._path = os.path.join(proc_root, "stat")
        self._tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        self._cpus = CpuSet()
        self._lines: frozenset[str] = frozenset()
        self._readings: deque[tuple[int, int]] = deque(maxlen=2)

    def watch(self, cpus: CpuSet) -> None:
        """Read these CPUs from now on."""
        if cpus != self._cpus:
            self._cpus, self._lines = cpus, frozenset(f"cpu{cpu}" for cpu in cpus)
            self._readings.clear()

    def used_mcpu(self, at_ns: int) -> int:
        """Their use between the last two readings (rounded down), at most all of them; 0 before the second one.

        Raises OSError, or ValueError for a text that is none of the kernel's.
        """
        if not self._lines:
            return 0
        if not self._readings or at_ns - self._readings[-1][0] >= _EVERY_NS:
            self._readings.append((at_ns, self._ticks()))
        (first_ns, first), (last_ns, last) = self._readings[0], self._readings[-1]
        if last_ns <= first_ns:
            return 0
        used_mcpu = max(0, last - first) * self._tick_ns * 1_000 // (last_ns - first_ns)
        return min(used_mcpu, len(self._lines) * 1_000)

    def close(self) -> None:
        """Forget the readings, which are of before a gap."""
        self._readings.clear()

    def _ticks(self) -> int:
        total = 0
        with open(self._path, encoding="ascii") as file:
            for line in file:
                if not line.startswith("cpu"):
                    break
                name, *fields = line.split()
                if name in self._lines:
                    total += sum(int(field) for field in fields[:_USED_FIELDS])
        return total
