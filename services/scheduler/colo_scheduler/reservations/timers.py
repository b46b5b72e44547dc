"""Moments that are waited for, one a name at most, the earliest first."""

import heapq
from typing import Final

__all__ = ["ReservationTimers"]

_STALE_MOST: Final = 64


class ReservationTimers:
    """Setting a name again replaces its moment. What was replaced is cleared away before it outgrows what is waited for."""

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        """How many entries are kept, replaced ones included."""
        return len(self._heap)

    def at(self, name: str) -> int | None:
        """The moment of a name, None when nothing is waited for."""
        return self._at.get(name)

    def set(self, name: str, at_ms: int | None) -> None:
        """Wait for this moment; None: for none."""
        if at_ms is None:
            self._at.pop(name, None)
            return
        if self._at.get(name) == at_ms:
            return
        self._at[name] = at_ms
        heapq.heappush(self._heap, (at_ms, name))
        if len(self._heap) > 2 * len(self._at) + _STALE_MOST:
            self._heap = sorted((at, of) for of, at in self._at.items())

    def first(self) -> tuple[int, str] | None:
        """The earliest moment and its name; of equal moments the first name."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None
