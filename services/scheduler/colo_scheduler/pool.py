"""What is free of one band's capacity, zone by zone: exact integers a row, and the same as arrays over all rows.

The batch pool is what overcommit says may be promised; the prod pool is the machine's capacity less what is reserved on it. Each is
held from separately: `free = allocatable - held`, per zone. The integers of a row are the truth and change with every hold; the
arrays follow when somebody looks (`sync`), only in the rows that changed since.

Beside the exact numbers the arrays keep, as 32-bit floats, how many percent of a node are free and how many a unit takes. They
serve upper bounds only: a scorer that needs a division a node asks them which nodes are worth the exact one.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from colo_common.model.qos import PriorityBand
from colo_scheduler.zones import IntArray

__all__ = ["CPU_BITS", "RANK_BITS", "FloatArray", "Pool", "PoolName", "Row", "pool_of"]

FloatArray = npt.NDArray[np.float32]

RANK_BITS: Final = 20
CPU_BITS: Final = 27


class PoolName(StrEnum):
    """Whose capacity a hold takes from."""

    BATCH = "batch"
    PROD = "prod"


def pool_of(band: PriorityBand) -> PoolName:
    """The pool that work of a band is placed in."""
    return PoolName.PROD if band is PriorityBand.PROD else PoolName.BATCH


class Row:
    """One node's numbers, a list entry for each column (zones first, padding after): mcpu and bytes. Never changed in place by
    anybody but its pool.
    """

    __slots__ = ("allocatable_cpu", "allocatable_memory", "cpu", "held_cpu", "held_memory", "memory")

    def __init__(self, columns: int) -> None:
        self.allocatable_cpu = [0] * columns
        self.allocatable_memory = [0] * columns
        self.held_cpu = [0] * columns
        self.held_memory = [0] * columns
        self.cpu = [0] * columns
        self.memory = [0] * columns

    def copy(self) -> "Row":
        """A row that changes for itself."""
        other = Row(0)
        for name in Row.__slots__:
            setattr(other, name, list(getattr(self, name)))
        return other


class Pool:
    """Rows and arrays of one pool. All arrays are int64 of shape (size,) or (size, columns) unless said otherwise."""

    def __init__(self, size: int, columns: int) -> None:
        self.rows: list[Row] = []
        self.dirty: set[int] = set()
        self._own: set[int] | None = None
        self._allocate(size, columns)

    def _allocate(self, size: int, columns: int) -> None:
        self.size, self.columns = size, columns
        # Column after column in memory: a comparison of one zone of all nodes reads one long run.
        self.free_cpu: IntArray = np.zeros((size, columns), dtype=np.int64, order="F")
        self.free_memory: IntArray = np.zeros((size, columns), dtype=np.int64, order="F")
        self.node_free_cpu: IntArray = np.zeros(size, dtype=np.int64)
        self.node_free_memory: IntArray = np.zeros(size, dtype=np.int64)
        self.allocatable_cpu: IntArray = np.zeros(size, dtype=np.int64)
        self.allocatable_memory: IntArray = np.zeros(size, dtype=np.int64)
        self.cpu_pct: FloatArray = np.zeros(size, dtype=np.float32)
        self.memory_pct: FloatArray = np.zeros(size, dtype=np.float32)
        self.cpu_unit_pct: FloatArray = np.zeros(size, dtype=np.float32)
        self.memory_unit_pct: FloatArray = np.zeros(size, dtype=np.float32)
        self.dirty = set(range(len(self.rows)))

    def resize(self, size: int, columns: int) -> None:
        """Make room for `size` rows of `columns` zones; neither ever shrinks."""
        for row in self.rows:
            for name in Row.__slots__:
                values: list[int] = getattr(row, name)
                values.extend([0] * (columns - len(values)))
        self._allocate(size, columns)

    def add(self) -> None:
        """One more row, which has nothing."""
        self.rows.append(Row(self.columns))
        self.dirty.add(len(self.rows) - 1)

    # ---- changes

    def promise(self, number: int, cpu: Sequence[int], memory: Sequence[int]) -> None:
        """What may be held of a row from now on, a number for each of its zones."""
        row = self._mine(number)
        pad = [0] * (self.columns - len(cpu))
        row.allocatable_cpu[:] = [*cpu, *pad]
        row.allocatable_memory[:] = [*memory, *pad]
        row.cpu[:] = [may - has for may, has in zip(row.allocatable_cpu, row.held_cpu, strict=True)]
        row.memory[:] = [may - has for may, has in zip(row.allocatable_memory, row.held_memory, strict=True)]
        self.dirty.add(number)

    def take(self, number: int, column: int, cpu_mcpu: int, memory_bytes: int) -> None:
        """Hold so much of a column; negative amounts give back."""
        row = self._mine(number)
        row.held_cpu[column] += cpu_mcpu
        row.held_memory[column] += memory_bytes
        row.cpu[column] -= cpu_mcpu
        row.memory[column] -= memory_bytes
        self.dirty.add(number)

    def forget(self, number: int) -> None:
        """Nothing is held of a row any more; what holds it is taken again afterwards."""
        row = self._mine(number)
        row.held_cpu[:] = row.held_memory[:] = [0] * self.columns
        row.cpu[:] = row.allocatable_cpu
        row.memory[:] = row.allocatable_memory
        self.dirty.add(number)

    def _mine(self, number: int) -> Row:
        if self._own is not None and number not in self._own:
            self.rows[number] = self.rows[number].copy()
            self._own.add(number)
        return self.rows[number]

    def fork(self) -> "Pool":
        """A pool of its own that starts as this one is: what is taken of it is taken of nothing else."""
        self.sync()
        other = Pool(0, self.columns)
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if isinstance(value, np.ndarray) else value)
        # Rows are copied when they change; most never do.
        other.rows, other.dirty, other._own = list(self.rows), set(), set()
        return other

    # ---- arrays

    def sync(self) -> None:
        """Bring the arrays up to date with the rows."""
        if not self.dirty:
            return
        numbers = sorted(self.dirty)
        self.dirty.clear()
        rows = [self.rows[number] for number in numbers]
        at = np.array(numbers, dtype=np.int64)
        cpu = np.array([row.cpu for row in rows], dtype=np.int64)
        memory = np.array([row.memory for row in rows], dtype=np.int64)
        most_cpu = np.array([sum(row.allocatable_cpu) for row in rows], dtype=np.int64)
        most_memory = np.array([sum(row.allocatable_memory) for row in rows], dtype=np.int64)
        node_cpu, node_memory = cpu.sum(axis=1), memory.sum(axis=1)
        self.free_cpu[at], self.free_memory[at] = cpu, memory
        self.node_free_cpu[at], self.node_free_memory[at] = node_cpu, node_memory
        self.allocatable_cpu[at], self.allocatable_memory[at] = most_cpu, most_memory
        cpu_unit = np.where(most_cpu > 0, 100.0 / np.maximum(most_cpu, 1), 0.0)
        memory_unit = np.where(most_memory > 0, 100.0 / np.maximum(most_memory, 1), 0.0)
        self.cpu_unit_pct[at], self.memory_unit_pct[at] = cpu_unit, memory_unit
        self.cpu_pct[at], self.memory_pct[at] = node_cpu * cpu_unit, node_memory * memory_unit
