"""The timers of the replicas, ordered by their due times."""

import heapq
from collections.abc import Callable
from typing import Final

__all__ = ["JobTimers"]

_STALE_MIN: Final = 1_000


class JobTimers:
    """A heap of (due time, job, replica number).

    A changed or disarmed timer stays in the heap until its old due time, or until the heap is twice as long as the number of armed
    timers. `due_of` returns the due time that counts.
    """

    def __init__(self, due_of: Callable[[str, int], int]) -> None:
        self._due_of = due_of
        self._heap: list[tuple[int, str, int]] = []
        self._armed = 0

    def change(self, job: str, index: int, before_ms: int, due_ms: int) -> None:
        """Change a replica's timer from `before_ms` to `due_ms` (0: no timer)."""
        if before_ms == due_ms:
            return
        self._armed += (due_ms > 0) - (before_ms > 0)
        if due_ms:
            heapq.heappush(self._heap, (due_ms, job, index))
        if len(self._heap) > 2 * self._armed + _STALE_MIN:
            self._heap = sorted({entry for entry in self._heap if self._due_of(entry[1], entry[2]) == entry[0]})

    def next_ms(self) -> int | None:
        """The due time of the next timer, None without one."""
        while self._heap:
            due_ms, job, index = self._heap[0]
            if self._due_of(job, index) == due_ms:
                return due_ms
            heapq.heappop(self._heap)
        return None

    def due(self, now_ms: int) -> list[tuple[str, int]]:
        """Take out the timers that are due, in order of time, each replica once."""
        found: dict[tuple[str, int], None] = {}
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, job, index = heapq.heappop(self._heap)
            if self._due_of(job, index) == due_ms:
                found[job, index] = None
        return list(found)
