"""The eviction budget of the cluster: a bound on the evictions of any 60 s."""

from collections import deque
from collections.abc import Iterable

__all__ = ["WINDOW_MS", "Budget"]

WINDOW_MS = 60_000


class Budget:
    """A sliding window of 60 s that allows `per_minute` evictions. `refused` counts refusals since the last allowed eviction."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._taken_at_ms: deque[int] = deque()
        self.refused = 0

    def take(self, now_ms: int) -> bool:
        """Count one eviction and return True, or return False when the budget is used up."""
        while self._taken_at_ms and now_ms - self._taken_at_ms[0] >= WINDOW_MS:
            self._taken_at_ms.popleft()
        if len(self._taken_at_ms) >= self.per_minute:
            self.refused += 1
            return False
        self._taken_at_ms.append(now_ms)
        self.refused = 0
        return True

    def taken(self, at_ms: Iterable[int]) -> None:
        """Count evictions of an earlier run."""
        self._taken_at_ms = deque(sorted([*self._taken_at_ms, *at_ms]))

    def replace(self, at_ms: Iterable[int]) -> None:
        """Count exactly these evictions."""
        self._taken_at_ms = deque(sorted(at_ms))

    @property
    def times(self) -> tuple[int, ...]:
        """When the counted evictions were."""
        return tuple(self._taken_at_ms)

    def __len__(self) -> int:
        """The evictions of the last 60 s, as of the last `take`."""
        return len(self._taken_at_ms)
