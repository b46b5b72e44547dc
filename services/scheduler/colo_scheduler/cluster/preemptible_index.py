"""How much of a pool is held by replicas of each importance, as arrays over all rows: the amounts that preemption could free.

The amounts are upper bounds only: a search for victims begins where they show that preemption could be enough. There are at most
LEVELS_MOST levels. While there are fewer, each importance is a level of its own; of more, one counts in the nearest level below it.
So no replica counts in a level above its importance. A level without holds is deleted.
"""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from colo_common.model.invalid import InvariantBroken
from colo_common.model.placement import ZoneShare
from colo_common.model.qos import PriorityBand
from colo_scheduler.numa.zones import IntArray

__all__ = ["LEVELS_MOST", "PreemptibleIndex", "Importance", "ImportanceLevel", "importance_of"]

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
