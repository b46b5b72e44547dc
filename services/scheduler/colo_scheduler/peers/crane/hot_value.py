"""How many workloads came to a node lately: a brake against all work choosing the same idle node while its load lags behind.

hot value = sum over policies of floor(arrivals younger than the range / count), after crane-scheduler's annotator.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from colo_common.model.invalid import InvalidInput

__all__ = ["ARRIVALS_MAX", "Arrivals", "HotPolicy"]

IntArray = npt.NDArray[np.int64]

_Guest = tuple[int, tuple[str, int]]
"""A row, and an attempt there."""

ARRIVALS_MAX: Final = 65_536
"""How many arrivals of all nodes together are remembered; the oldest is forgotten."""


_NEVER_MS: Final = -(1 << 62)
_NOBODY: Final = (0, 0)


class HotPolicy(Struct, frozen=True, kw_only=True):
    """`count` arrivals within `range_ms` make a node hotter by one."""

    range_ms: int
    count: int

    def validate(self) -> None:
        """Raise InvalidInput unless both are at least 1."""
        for name in ("range_ms", "count"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"hot.{name}", "must be at least 1", getattr(self, name))


class Arrivals:
    """The arrivals of attempts on all nodes, and the number of them in each time range.

    An attempt that left no longer counts. Counts are those of the newest time that was queried.
    """

    def __init__(self, policies: Sequence[HotPolicy], size: int = ARRIVALS_MAX) -> None:
        if size < 1:
            raise InvalidInput("size", "must be at least 1", size)
        self._policies = tuple(policies)
        self._longest_ms = max((policy.range_ms for policy in self._policies), default=0)
        self._size = size
        self._seen_ms = _NEVER_MS
        self._came: OrderedDict[_Guest, tuple[int, int]] = OrderedDict()
        self._number = 0
        self._left: dict[_Guest, int] | None = None
        self._ends: list[list[tuple[int, int, _Guest]]] = [[] for _ in self._policies]
        self._counts: list[IntArray] = [np.zeros(64, dtype=np.int64) for _ in self._policies]

    def fork(self) -> "Arrivals":
        """A copy that changes independently. An attempt that leaves and returns in it keeps its first arrival time."""
        other = Arrivals(self._policies, self._size)
        other._seen_ms, other._came, other._left = self._seen_ms, self._came.copy(), {}
        other._number = self._number
        other._ends = [ends.copy() for ends in self._ends]
        other._counts = [counts.copy() for counts in self._counts]
        return other

    def add(self, row: int, attempt: tuple[str, int], at_ms: int) -> None:
        """Note an arrival on the node of that row. An attempt that is already there keeps its first arrival time."""
        guest = (row, attempt)
        if self._left:
            at_ms = self._left.pop(guest, at_ms)
        if guest in self._came or at_ms + self._longest_ms <= self._seen_ms:
            return
        while len(self._came) >= self._size:
            self.drop(*next(iter(self._came)))
        self._number += 1
        self._came[guest] = (at_ms, self._number)
        for number, policy in enumerate(self._policies):
            if at_ms + policy.range_ms > self._seen_ms:
                heapq.heappush(self._ends[number], (at_ms + policy.range_ms, self._number, guest))
                self._count(number, row, 1)
                self._tidy(number)

    def drop(self, row: int, attempt: tuple[str, int]) -> None:
        """Forget the arrival of an attempt that left the node or never came."""
        came = self._came.pop((row, attempt), None)
        if came is None:
            return
        at_ms, _ = came
        if self._left is not None:
            self._left[row, attempt] = at_ms
        for number, policy in enumerate(self._policies):
            if at_ms + policy.range_ms > self._seen_ms:
                self._count(number, row, -1)

    def _count(self, number: int, row: int, change: int) -> None:
        counts = self._counts[number]
        if row >= len(counts):
            self._counts[number] = counts = np.concatenate([counts, np.zeros(row + 1, dtype=np.int64)])
        counts[row] += change

    def _tidy(self, number: int) -> None:
        """Remove the attempts that left from a heap when they are most of it."""
        ends = self._ends[number]
        if len(ends) > 4 * self._size:
            ends[:] = [end for end in ends if self._came.get(end[2], _NOBODY)[1] == end[1]]
            heapq.heapify(ends)

    def _look(self, now_ms: int) -> None:
        """Remove arrivals that a range no longer covers from its count. All other entries of a heap are covered, or left."""
        forgotten: list[_Guest] = []
        for number, policy in enumerate(self._policies):
            ends = self._ends[number]
            while ends and ends[0][0] <= now_ms:
                _, visit, guest = heapq.heappop(ends)
                if self._came.get(guest, _NOBODY)[1] != visit:
                    continue
                self._count(number, guest[0], -1)
                if policy.range_ms == self._longest_ms:
                    forgotten.append(guest)
        for guest in forgotten:
            self._came.pop(guest, None)
        self._seen_ms = max(self._seen_ms, now_ms)

    def is_right(self, row: int, attempts: Iterable[tuple[str, int]]) -> bool:
        """Whether the counts of a row are those of these attempts, which are all that may have come there."""
        came = [self._came[row, attempt][0] for attempt in attempts if (row, attempt) in self._came]
        return all(
            sum([at_ms + policy.range_ms > self._seen_ms for at_ms in came])
            == (counts[row] if row < len(counts) else 0)
            for policy, counts in zip(self._policies, self._counts, strict=True)
        )

    def hot_value_of(self, row: int, now_ms: int, more: int = 0) -> int:
        """The hot value of one row, with `more` that come now; an arrival as old as a range is outside of it."""
        return self.kept(row, now_ms)(more)

    def kept(self, row: int, now_ms: int) -> Callable[[int], int]:
        """`hot_value_of` one row by `more`, as it is now whenever it is asked for."""
        self._look(now_ms)
        covered = [
            (int(counts[row]) if row < len(counts) else 0, policy.count)
            for policy, counts in zip(self._policies, self._counts, strict=True)
        ]
        return lambda more: sum([(here + more) // count for here, count in covered])

    def hot_values(self, nodes: int, now_ms: int) -> IntArray:
        """The hot value of the first `nodes` rows: int64, shape (nodes,)."""
        self._look(now_ms)
        values = np.zeros(nodes, dtype=np.int64)
        for policy, counts in zip(self._policies, self._counts, strict=True):
            known = counts[:nodes]
            values[: len(known)] += known // policy.count
        return values
