"""The capacity that batch work could be promised on each empty machine, zone by zone."""

from collections.abc import Iterable
from typing import Final

import numpy as np

from colo_common.events.placement import NearestMiss
from colo_scheduler.numa.zones import CPU_MAX_MCPU, MEMORY_MAX_BYTES, IntArray, rows_holding

__all__ = ["BatchCapacity"]

_ANSWERS_MAX: Final = 10_000


class BatchCapacity:
    """Capacity by row and column. Results are cached until a machine changes."""

    def __init__(self, size: int, columns: int) -> None:
        self._could_hold: dict[tuple[int, int], bool] = {}
        self.too_large: dict[tuple[int, int], NearestMiss | None] = {}
        """By mcpu and bytes that no machine could hold: the cached result of `capacity`."""
        self.allocate(size, columns)

    def allocate(self, size: int, columns: int) -> None:
        """Make the arrays (size, columns) and clear all rows."""
        self._cpu: IntArray = np.zeros((size, columns), dtype=np.int64, order="F")
        self._memory: IntArray = np.zeros((size, columns), dtype=np.int64, order="F")
        self._forget_answers()

    def write(self, row: int, zones: Iterable[tuple[int, int]]) -> None:
        """Set mcpu and bytes of each zone of a row; without zones the row is vacant."""
        self._cpu[row] = self._memory[row] = 0
        for slot, (cpu_mcpu, memory_bytes) in enumerate(zones):
            self._cpu[row, slot] = min(cpu_mcpu, CPU_MAX_MCPU)
            self._memory[row, slot] = min(memory_bytes, MEMORY_MAX_BYTES)
        self._forget_answers()

    def of_row(self, row: int) -> tuple[list[int], list[int]]:
        """Mcpu and bytes of a row, by column."""
        return self._cpu[row].tolist(), self._memory[row].tolist()

    def of_rows(self, count: int) -> tuple[IntArray, IntArray]:
        """Mcpu and bytes of the first rows, shape (count, columns)."""
        return self._cpu[:count], self._memory[:count]

    def could_hold(self, cpu_mcpu: int, memory_bytes: int) -> bool:
        """Whether some empty machine could hold so much batch work."""
        wanted = (cpu_mcpu, memory_bytes)
        if len(self._could_hold) > _ANSWERS_MAX:
            self._forget_answers()
        if wanted not in self._could_hold:
            everyone = np.arange(len(self._cpu), dtype=np.int64)
            self._could_hold[wanted] = bool(rows_holding(*wanted, self._cpu, self._memory, everyone).any())
        return self._could_hold[wanted]

    def _forget_answers(self) -> None:
        self._could_hold.clear()
        self.too_large.clear()
