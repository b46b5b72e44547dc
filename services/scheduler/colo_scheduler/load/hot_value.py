"""How many workloads came to a node lately: a brake against everybody choosing the same idle node while its load lags behind.

hot value = sum over policies of floor(arrivals younger than the range / count), after crane-scheduler's annotator.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from colo_common.model.invalid import InvalidInput

__all__ = ["ARRIVALS_MAX", "Arrivals", "HotPolicy", "hot_value"]

IntArray = npt.NDArray[np.int64]

ARRIVALS_MAX: Final = 65_536
"""How many arrivals of all nodes together are remembered; the oldest is forgotten."""


class HotPolicy(Struct, frozen=True, kw_only=True):
    """`count` arrivals within `range_ms` make a node hotter by one."""

    range_ms: int
    count: int

    def validate(self) -> None:
        """Raise InvalidInput unless both are at least 1."""
        for name in ("range_ms", "count"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"hot.{name}", "must be at least 1", getattr(self, name))


def hot_value(ages_ms: Iterable[int], policies: Sequence[HotPolicy]) -> int:
    """The hot value of one node from the ages of its arrivals; an age equal to a range is outside."""
    ages = list(ages_ms)
    return sum(sum(age < policy.range_ms for age in ages) // policy.count for policy in policies)


class Arrivals:
    """The newest arrivals of all nodes, as a ring of rows and times."""

    def __init__(self, size: int = ARRIVALS_MAX) -> None:
        if size < 1:
            raise InvalidInput("size", "must be at least 1", size)
        self._row: IntArray = np.zeros(size, dtype=np.int64)
        self._at_ms: IntArray = np.zeros(size, dtype=np.int64)
        self._next = 0
        self._count = 0

    def add(self, row: int, at_ms: int) -> None:
        """Remember that something was placed on the node of that row."""
        self._row[self._next], self._at_ms[self._next] = row, at_ms
        self._next = (self._next + 1) % len(self._row)
        self._count = min(self._count + 1, len(self._row))

    def hot_values(self, nodes: int, policies: Sequence[HotPolicy], now_ms: int) -> IntArray:
        """`hot_value` of the first `nodes` rows: int64, shape (nodes,)."""
        row, at_ms = self._row[: self._count], self._at_ms[: self._count]
        values = np.zeros(nodes, dtype=np.int64)
        for policy in policies:
            young = row[(now_ms - at_ms < policy.range_ms) & (row < nodes)]
            values += np.bincount(young, minlength=nodes) // policy.count
        return values
