"""The free part of one band's capacity, zone by zone: exact integers a row, and the same as arrays over all rows.

The batch pool is the capacity that overcommit promises batch work, the mid pool what it promises the tier between batch and online
work; the prod pool is the machine's capacity less its reserved amounts. Each is held from separately: `free = allocatable - held`,
per zone. The integers of a row are the truth and change with every hold; the arrays follow at the next read (`sync`), only in the
rows that changed since.

Beside the exact numbers the arrays keep, as 32-bit floats, the free percentage of a node, rounded so that it is never too low, and
the percentage of one unit. They serve upper bounds only: they select the nodes on which a scorer does its exact division.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from colo_common.model.invalid import InvariantBroken
from colo_common.model.qos import PriorityBand
from colo_scheduler.numa.zones import IntArray

__all__ = ["CPU_BITS", "CPU_MAX", "RANK_BITS", "RANK_MAX", "FloatArray", "Pool", "PoolName", "PoolRow", "pool_of"]

FloatArray = npt.NDArray[np.float32]

RANK_BITS: Final = 17
CPU_BITS: Final = 24
RANK_MAX: Final = (1 << RANK_BITS) - 1
CPU_MAX: Final = (1 << CPU_BITS) - 1
"""Nodes are compared by one integer (`scoring.sort_keys`): 22 bits of weighted score, then free CPU left, then the rank."""

# More than the total rounding error of a share of at most 100 in 32-bit floats (four steps, each less than 2^-17).
_ROUNDING: Final = 2**-14
# Up to so many changed rows are written number by number, which is then quicker.
_FEW: Final = 9


class PoolName(StrEnum):
    """The band from whose capacity a hold takes."""

    BATCH = "batch"
    MID = "mid"
    PROD = "prod"


_POOL_OF: Final = {PriorityBand.PROD: PoolName.PROD, PriorityBand.MID: PoolName.MID}


def pool_of(band: PriorityBand) -> PoolName:
    """The pool that work of a band is placed in."""
    return _POOL_OF.get(band, PoolName.BATCH)


class PoolRow:
    """One node's numbers, an entry for each column (zones first, padding after): mcpu and bytes; `whole_*` is allocatable in all.

    Only its pool changes it in place.
    """

    __slots__ = ("allocatable_cpu", "allocatable_memory", "cpu", "memory", "whole_cpu", "whole_memory")

    def __init__(self, columns: int) -> None:
        self.allocatable_cpu: tuple[int, ...] = (0,) * columns
        self.allocatable_memory: tuple[int, ...] = (0,) * columns
        self.whole_cpu = self.whole_memory = 0
        self.cpu = [0] * columns
        self.memory = [0] * columns

    def copy(self) -> "PoolRow":
        """An independent copy of the row."""
        other = PoolRow(0)
        other.allocatable_cpu, other.allocatable_memory = self.allocatable_cpu, self.allocatable_memory
        other.whole_cpu, other.whole_memory = self.whole_cpu, self.whole_memory
        other.cpu, other.memory = self.cpu[:], self.memory[:]
        return other

    def widen(self, columns: int) -> None:
        """Add columns of zeros."""
        more = columns - len(self.cpu)
        self.allocatable_cpu += (0,) * more
        self.allocatable_memory += (0,) * more
        self.cpu.extend([0] * more)
        self.memory.extend([0] * more)


class Pool:
    """Rows and arrays of one pool. All arrays are int64 of shape (size,) or (size, columns) unless stated otherwise."""

    def __init__(self, size: int, columns: int) -> None:
        self.rows: list[PoolRow] = []
        self.dirty: set[int] = set()
        self._promised: set[int] = set()
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
        self._cpu_unit = np.zeros(size, dtype=np.float64)
        self._memory_unit = np.zeros(size, dtype=np.float64)
        self.cpu_pct: FloatArray = np.zeros(size, dtype=np.float32)
        self.memory_pct: FloatArray = np.zeros(size, dtype=np.float32)
        self.cpu_unit_pct: FloatArray = np.zeros(size, dtype=np.float32)
        self.memory_unit_pct: FloatArray = np.zeros(size, dtype=np.float32)
        self.tie: IntArray = np.zeros(size, dtype=np.int64)
        self._last: IntArray = np.zeros(size, dtype=np.int64)
        self.dirty = set(range(len(self.rows)))
        self._promised = set(self.dirty)

    def resize(self, size: int, columns: int) -> None:
        """Make room for `size` rows of `columns` zones; neither ever shrinks."""
        for number in range(len(self.rows)):
            self._mine(number).widen(columns)
        self._allocate(size, columns)

    def add(self) -> None:
        """Add one row of zeros."""
        self.rows.append(PoolRow(self.columns))
        self._promised.add(len(self.rows) - 1)

    # ---- changes

    def clear_row(self, number: int) -> None:
        """The row is vacant: it has no capacity and no holds."""
        self.rows[number] = PoolRow(self.columns)
        if self._own is not None:
            self._own.add(number)
        self._promised.add(number)

    def promise(self, number: int, cpu: Sequence[int], memory: Sequence[int]) -> None:
        """Set the capacity of a row, a number for each of its zones."""
        row = self._mine(number)
        before_cpu, before_memory = row.allocatable_cpu, row.allocatable_memory
        row.allocatable_cpu, row.allocatable_memory = self.padded(cpu, memory)
        row.whole_cpu, row.whole_memory = sum(cpu), sum(memory)
        # Holds stay as they are.
        row.cpu[:] = map(_moved, row.cpu, before_cpu, row.allocatable_cpu)
        row.memory[:] = map(_moved, row.memory, before_memory, row.allocatable_memory)
        self._promised.add(number)

    def padded(self, cpu: Sequence[int], memory: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The same numbers, padded with zeros in the columns for which the node has no zones."""
        pad = (0,) * (self.columns - len(cpu))
        return (*cpu, *pad), (*memory, *pad)

    def take(self, number: int, column: int, cpu_mcpu: int, memory_bytes: int) -> None:
        """Hold so much of a column; negative amounts give back."""
        row = self.rows[number] if self._own is None else self._mine(number)
        row.cpu[column] -= cpu_mcpu
        row.memory[column] -= memory_bytes
        self.dirty.add(number)

    def forget(self, number: int) -> None:
        """Clear the holds of a row; the caller takes them again afterwards."""
        row = self._mine(number)
        row.cpu[:] = row.allocatable_cpu
        row.memory[:] = row.allocatable_memory
        self.dirty.add(number)

    def _mine(self, number: int) -> PoolRow:
        if self._own is not None and number not in self._own:
            self.rows[number] = self.rows[number].copy()
            self._own.add(number)
        return self.rows[number]

    def fork(self) -> "Pool":
        """An independent pool with the same content: a hold in one is not in the other."""
        self.sync()
        other = Pool(0, self.columns)
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if isinstance(value, np.ndarray) else value)
        # Rows are copied when they change, on either side; most never do.
        other.rows, other.dirty, other._promised, other._own = list(self.rows), set(), set(), set()
        self._own = set()
        return other

    # ---- arrays

    def rank(self, ranks: IntArray) -> None:
        """Take the order in which equal nodes are chosen, a number below 2^17 each, shape (rows,)."""
        self.sync()
        self._last[: ranks.size] = RANK_MAX - ranks
        self.tie = (self.node_free_cpu << RANK_BITS) + self._last

    def sync(self) -> None:
        """Bring the arrays up to date with the rows."""
        if self._promised:
            numbers = sorted(self._promised)
            self._promised.clear()
            self.dirty.update(numbers)
            self._write_promised(numbers)
        if not self.dirty:
            return
        numbers = sorted(self.dirty)
        self.dirty.clear()
        if len(numbers) <= _FEW:
            for number in numbers:
                self._write_one(number)
            return
        self._write_free(numbers)

    def _write_free(self, numbers: Sequence[int]) -> None:
        rows = self.rows
        at = np.array(numbers, dtype=np.int64)
        both: IntArray = np.array([rows[number].cpu + rows[number].memory for number in numbers], dtype=np.int64)
        cpu, memory = both[:, : self.columns], both[:, self.columns :]
        node_cpu, node_memory = np.add.reduce(cpu, axis=1), np.add.reduce(memory, axis=1)
        self.free_cpu[at], self.free_memory[at] = cpu, memory
        self.node_free_cpu[at], self.node_free_memory[at] = node_cpu, node_memory
        self.tie[at] = (node_cpu << RANK_BITS) + self._last[at]
        self.cpu_pct[at] = node_cpu * self._cpu_unit[at] + _ROUNDING
        self.memory_pct[at] = node_memory * self._memory_unit[at] + _ROUNDING

    def _write_one(self, number: int) -> None:
        row = self.rows[number]
        for slot, cpu in enumerate(row.cpu):
            self.free_cpu[number, slot] = cpu
            self.free_memory[number, slot] = row.memory[slot]
        node_cpu, node_memory = sum(row.cpu), sum(row.memory)
        self.node_free_cpu[number] = node_cpu
        self.node_free_memory[number] = node_memory
        self.tie[number] = (node_cpu << RANK_BITS) + int(self._last[number])
        self.cpu_pct[number] = node_cpu * float(self._cpu_unit[number]) + _ROUNDING
        self.memory_pct[number] = node_memory * float(self._memory_unit[number]) + _ROUNDING

    def _write_promised(self, numbers: Sequence[int]) -> None:
        at = np.array(numbers, dtype=np.int64)
        rows = [self.rows[number] for number in numbers]
        for whole, unit, unit_pct, sums in (
            (self.allocatable_cpu, self._cpu_unit, self.cpu_unit_pct, [row.whole_cpu for row in rows]),
            (self.allocatable_memory, self._memory_unit, self.memory_unit_pct, [row.whole_memory for row in rows]),
        ):
            whole[at] = sums
            unit[at] = np.where(whole[at] > 0, 100.0 / np.maximum(whole[at], 1), 0.0)
            unit_pct[at] = unit[at]

    def check(self, rows: range) -> None:
        """Raise InvariantBroken unless the arrays equal these rows. Only these rows are brought up to date."""
        if not rows:
            return
        late = [number for number in rows if number in self._promised or number in self.dirty]
        self._promised.difference_update(late)
        self.dirty.difference_update(late)
        if late:
            self._write_promised(late)
            self._write_free(late)
        part = slice(rows.start, rows.stop)
        arrays = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        kept = {name: value[part].copy() for name, value in arrays.items()}
        self._write_promised(rows)
        self._write_free(rows)
        wrong = [name for name, before in kept.items() if (before != arrays[name][part]).any()]
        for name in wrong:
            arrays[name][part] = kept[name]
        if wrong:
            raise InvariantBroken("an array differs from its rows", array=wrong[0])


def _moved(free: int, before: int, after: int) -> int:
    return free + after - before
