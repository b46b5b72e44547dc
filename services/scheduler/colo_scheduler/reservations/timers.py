"""Deadlines by name, at most one a name, the earliest first."""

import heapq
from typing import Final

__all__ = ["ReservationTimers"]

_STALE_MOST: Final = 64


class ReservationTimers:
    """Setting a name again replaces its deadline. Replaced entries are deleted before they outnumber the current ones."""

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        """How many entries are kept, replaced ones included."""
        return len(self._heap)

    def at(self, name: str) -> int | None:
        """The deadline of a name, None when it has none."""
        return self._at.get(name)

    def set(self, name: str, at_ms: int | None) -> None:
        """Set the deadline of a name; None removes it."""
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
        """The earliest deadline and its name; of equal deadlines the first name."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None
