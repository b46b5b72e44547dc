"""One band's capacity: what is free of it, zone by zone, and what preemption could free, by importance.

The batch pool is the capacity that overcommit promises batch work, the mid pool what it promises the tier between batch and online
work; the prod pool is the machine's capacity less its reserved amounts. Each is held from separately: `free = allocatable - held`,
per zone. The integers of a row are the truth and change with every hold; the arrays over all rows follow at the next read (`sync`),
only in the rows that changed since.

Beside the exact numbers the arrays keep, as 32-bit floats, the free percentage of a node, rounded so that it is never too low, and
the percentage of one unit. They serve upper bounds only: they select the nodes on which a scorer does its exact division.

What is held by replicas of each importance is an upper bound too (`PreemptibleIndex`): a search for victims begins where it shows
that preemption could be enough. There are at most LEVELS_MOST levels. While there are fewer, each importance is a level of its own;
of more, one counts in the nearest level below it. So no replica counts in a level above its importance. A level without holds is
deleted.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final, overload

import numpy as np
import numpy.typing as npt

from colo_common.model.invalid import InvariantBroken
from colo_common.model.placement import ZoneShare
from colo_common.model.qos import PriorityBand
from colo_scheduler.numa.zones import IntArray

__all__ = [
    "AWAY_RANK",
    "CPU_BITS",
    "CPU_MAX",
    "LEVELS_MOST",
    "RANK_BITS",
    "RANK_MAX",
    "FloatArray",
    "Importance",
    "ImportanceLevel",
    "Pool",
    "PoolName",
    "PoolRow",
    "PreemptibleIndex",
    "importance_of",
    "pool_of",
    "rank_key",
]

FloatArray = npt.NDArray[np.float32]

RANK_BITS: Final = 17
CPU_BITS: Final = 24
RANK_MAX: Final = (1 << RANK_BITS) - 1
CPU_MAX: Final = (1 << CPU_BITS) - 1
AWAY_RANK: Final = 1 << (RANK_BITS - 1)
"""Nodes are compared by one integer (`scoring.sort_keys`): 22 bits of weighted score, then free CPU left, then the rank. Ranks of
other schedulers' nodes (`Cluster.prefer`) begin at AWAY_RANK."""
_OWN_KEY: Final = 20 << (CPU_BITS + RANK_BITS)


@overload
def rank_key(rank: int) -> int: ...
@overload
def rank_key(rank: IntArray) -> IntArray: ...
def rank_key(rank: int | IntArray) -> int | IntArray:
    """What a node's key has by its rank: the earlier one more, and a scheduler's own node 20 points of weighted score more."""
    return RANK_MAX - rank + (rank < AWAY_RANK) * _OWN_KEY


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
    """Rows and arrays of one pool. All arrays are int64 of shape (size,) or (size, columns) unless stated otherwise.

    `preemptible`: what is held by replicas that preemption could choose; whoever takes for one of them enters it there as well.
    """

    def __init__(self, size: int, columns: int) -> None:
        self.rows: list[PoolRow] = []
        self.dirty: set[int] = set()
        self._promised: set[int] = set()
        self._own: set[int] | None = None
        self.preemptible = PreemptibleIndex(size)
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
        self.preemptible.resize(size)

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
        other.preemptible = self.preemptible.fork()
        self._own = set()
        return other

    # ---- arrays

    def rank(self, ranks: IntArray) -> None:
        """Take the order in which equal nodes are chosen, a number below 2^17 each, shape (rows,)."""
        self.sync()
        self._last[: ranks.size] = rank_key(ranks)
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


LEVELS_MOST: Final = 16
_REMEMBERED: Final = 1_024

CountArray = npt.NDArray[np.int32]
Importance = tuple[int, int]
"""Rank of the band, then priority: a higher value is more important."""


def importance_of(band: PriorityBand, priority: int) -> Importance:
    """The importance of work of a band and priority."""
    return (band.rank, priority)


class ImportanceLevel:
    """The amounts held at one importance or somewhat above: mcpu and bytes by row, int64 of shape (size,).

    `least`: the lowest importance in the level. `apart`: how many of its `holds` are of another importance than `least`. `holds_on`
    and `apart_on`: the same by row, int32.
    """

    __slots__ = ("apart", "apart_on", "cpu", "holds", "holds_on", "least", "memory")

    def __init__(self, least: Importance, size: int) -> None:
        self.least = least
        self.cpu: IntArray = np.zeros(size, dtype=np.int64)
        self.memory: IntArray = np.zeros(size, dtype=np.int64)
        self.holds = self.apart = 0
        self.holds_on: CountArray = np.zeros(size, dtype=np.int32)
        self.apart_on: CountArray = np.zeros(size, dtype=np.int32)

    def by_row(self) -> tuple[IntArray, IntArray, CountArray, CountArray]:
        """The arrays of the level: mcpu, bytes, `holds_on`, `apart_on`."""
        return self.cpu, self.memory, self.holds_on, self.apart_on


class PreemptibleIndex:
    """The levels of one pool. `largest_*`: no hold was larger since the pool was last empty.

    `price_pct`: the most that held CPU may cost the pool, in percent.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._levels: list[ImportanceLevel] = []
        self._of: dict[Importance, ImportanceLevel] = {}
        self.largest_mcpu = self.largest_bytes = 0
        self.price_pct = 100

    # ---- rows

    def resize(self, size: int) -> None:
        """Make room for `size` rows."""
        more, none = np.zeros(size - self._size, dtype=np.int64), np.zeros(size - self._size, dtype=np.int32)
        for level in self._levels:
            level.cpu, level.memory = np.concatenate([level.cpu, more]), np.concatenate([level.memory, more])
            level.holds_on = np.concatenate([level.holds_on, none])
            level.apart_on = np.concatenate([level.apart_on, none])
        self._size = size

    def fork(self) -> "PreemptibleIndex":
        """An independent index with the same content."""
        other = PreemptibleIndex(self._size)
        for level in self._levels:
            copy = ImportanceLevel(level.least, 0)
            copy.cpu, copy.memory = level.cpu.copy(), level.memory.copy()
            copy.holds, copy.apart = level.holds, level.apart
            copy.holds_on, copy.apart_on = level.holds_on.copy(), level.apart_on.copy()
            other._levels.append(copy)
        other.largest_mcpu, other.largest_bytes = self.largest_mcpu, self.largest_bytes
        other.price_pct = self.price_pct
        return other

    # ---- changes

    def hold(self, row: int, importance: Importance, shares: tuple[ZoneShare, ...]) -> None:
        """Add the shares of a replica of this importance."""
        level = self._of.get(importance) or self._level(importance)
        mcpu, size_bytes = _amounts(shares)
        level.cpu[row] += mcpu
        level.memory[row] += size_bytes
        level.holds += 1
        level.holds_on[row] += 1
        if importance != level.least:
            level.apart += 1
            level.apart_on[row] += 1
        if mcpu > self.largest_mcpu:
            self.largest_mcpu = mcpu
        if size_bytes > self.largest_bytes:
            self.largest_bytes = size_bytes

    def drop(self, row: int, importance: Importance, shares: tuple[ZoneShare, ...]) -> None:
        """Remove the shares of a replica of this importance. Raises InvariantBroken when none of that importance holds any."""
        level = self._of.get(importance) or self._find(importance)
        if level is None or level.holds == 0:
            raise InvariantBroken("nothing is held at an importance", importance=importance)
        mcpu, size_bytes = _amounts(shares)
        level.cpu[row] -= mcpu
        level.memory[row] -= size_bytes
        level.holds -= 1
        level.holds_on[row] -= 1
        if importance != level.least:
            level.apart -= 1
            level.apart_on[row] -= 1
        if level.holds == 0:
            self._levels.remove(level)
            self._of.clear()
            if not self._levels:
                self.largest_mcpu = self.largest_bytes = 0

    def _level(self, importance: Importance) -> ImportanceLevel:
        """The level that counts a hold of this importance, a new level where the limit allows it."""
        level = self._find(importance)
        # A new level between a level's least and the importances counted apart in it would take over these.
        if level is None or (level.least != importance and level.apart == 0):
            if len(self._levels) < LEVELS_MOST:
                level = ImportanceLevel(importance, self._size)
                self._levels.insert(bisect_right(self._levels, importance, key=_least), level)
                self._of.clear()
            elif level is None:
                # Less important than all levels: the lowest level is extended down to it.
                level = self._levels[0]
                level.least, level.apart, level.apart_on = importance, level.holds, level.holds_on.copy()
                self._of.clear()
        if len(self._of) >= _REMEMBERED:
            self._of.clear()
        self._of[importance] = level
        return level

    def _find(self, importance: Importance) -> ImportanceLevel | None:
        """The nearest level whose least importance is not above the importance."""
        at = bisect_right(self._levels, importance, key=_least)
        return self._levels[at - 1] if at else None

    # ---- reads

    def below(self, importance: Importance) -> tuple[ImportanceLevel, ...]:
        """The levels that may count a less important replica, the least important first."""
        return tuple(level for level in self._levels if level.least < importance)

    def check(self, expected: Iterable[tuple[int, Importance, tuple[ZoneShare, ...]]]) -> None:
        """`check_rows` of all rows, and `check_sums`."""
        self.check_rows(range(self._size), expected)
        self.check_sums()

    def check_rows(self, rows: range, expected: Iterable[tuple[int, Importance, tuple[ZoneShare, ...]]]) -> None:
        """Raise InvariantBroken unless these rows equal the sums of their holds (row, importance, shares)."""
        sums = {id(level): tuple([0] * len(rows) for _ in level.by_row()) for level in self._levels}
        found: dict[Importance, ImportanceLevel | None] = {}
        for row, importance, shares in expected:
            level = found[importance] if importance in found else found.setdefault(importance, self._find(importance))
            if level is None:
                raise InvariantBroken("somebody is in no level", importance=importance)
            mcpu, size_bytes = _amounts(shares)
            cpu, memory, holds, apart = sums[id(level)]
            at = row - rows.start
            cpu[at] += mcpu
            memory[at] += size_bytes
            holds[at] += 1
            apart[at] += importance != level.least
            if mcpu > self.largest_mcpu or size_bytes > self.largest_bytes:
                raise InvariantBroken("a hold is larger than the largest", mcpu=mcpu, size_bytes=size_bytes)
        for level in self._levels:
            kept = tuple(each[rows.start : rows.stop].tolist() for each in level.by_row())
            if kept != sums[id(level)]:
                raise InvariantBroken("a level differs from what is held", least=level.least)

    def check_sums(self) -> None:
        """Raise InvariantBroken unless the levels are in order, none is empty, and its counts are the sums of its rows."""
        for level in self._levels:
            sums = (int(level.holds_on.sum()), int(level.apart_on.sum()))
            if (level.holds, level.apart) != sums or level.holds < 1:
                raise InvariantBroken("a level counts others than its rows do", least=level.least, in_rows=sums)
        if any(low.least >= high.least for low, high in pairwise(self._levels)):
            raise InvariantBroken("levels are out of order")


def _least(level: ImportanceLevel) -> Importance:
    return level.least


def _amounts(shares: tuple[ZoneShare, ...]) -> tuple[int, int]:
    """mcpu and bytes of all zones."""
    if len(shares) == 1:
        share = shares[0]
        return share.cpu_mcpu, share.memory_bytes
    return sum(share.cpu_mcpu for share in shares), sum(share.memory_bytes for share in shares)
