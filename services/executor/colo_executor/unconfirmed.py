"""Replicas that no order has named for long: perhaps nobody knows that they run, so the node says it once more.

The scheduler orders what holds a place for long once more every ten minutes, the first time within twenty. Stores and streams that
are all emptied at once leave replicas that nobody orders, counts or stops any more.
"""

from collections import OrderedDict
from itertools import islice
from typing import Final

__all__ = ["Unconfirmed"]

_AT_ONCE: Final = 10
_EVERY_MS: Final = 1_000


class Unconfirmed:
    """When each replica was last ordered, or said to run. One is due `after_ms` later (0: never), at most ten in a second."""

    def __init__(self, after_ms: int) -> None:
        self._after_ms = after_ms
        # In the order of their times.
        self._confirmed_ms: OrderedDict[str, int] = OrderedDict()
        self._next_ms = 0

    def confirm(self, replica: str, now_ms: int) -> None:
        """Note that the replica was ordered, or is said to run, now."""
        self._confirmed_ms[replica] = now_ms
        self._confirmed_ms.move_to_end(replica)

    def forget(self, replica: str) -> None:
        """The replica ends or has ended."""
        self._confirmed_ms.pop(replica, None)

    def doubt(self, now_ms: int) -> None:
        """Perhaps nobody knows of any of them: all are due now."""
        for replica in self._confirmed_ms:
            self._confirmed_ms[replica] = now_ms - self._after_ms

    def due(self, now_ms: int) -> list[str]:
        """The replicas to be said to run now, the one that waits longest first; they are due again after the same time."""
        if (due_ms := self.deadline_ms()) is None or due_ms > now_ms:
            return []
        names = [
            name for name, at_ms in islice(self._confirmed_ms.items(), _AT_ONCE) if at_ms + self._after_ms <= now_ms
        ]
        for name in names:
            self.confirm(name, now_ms)
        self._next_ms = now_ms + _EVERY_MS
        return names

    def deadline_ms(self) -> int | None:
        """When the next ones are due; None without any."""
        if not self._after_ms or not self._confirmed_ms:
            return None
        return max(next(iter(self._confirmed_ms.values())) + self._after_ms, self._next_ms)
