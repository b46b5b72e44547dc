"""Places that the ledger holds and that no node has said to have started: whom to remind of them, and when.

Who committed a place may have ended before it told anybody, and an order may be lost with the stream that kept it. So what is not
started is told again, each time after twice as long: its row is read first, the fact and the order are those of the first time, and
the bus drops what it has had.
"""

from collections.abc import Mapping
from typing import Final

from colo_scheduler.attempts import Held
from colo_scheduler.ledger import Attempt

__all__ = ["TOLD_WITHIN_MS", "Untold"]

TOLD_WITHIN_MS: Final = 2_000
"""A place that was decided longer ago was told, or its scheduler did not live to tell it."""
_FIRST_MS: Final = 10_000
_LONGEST_MS: Final = 3_600_000
_MOST: Final = 1_000
"""So many are told again at once, those that were committed first."""


class Untold:
    """What is committed and not started, by the age in ms at which it is told again; the oldest commit first."""

    def __init__(self, held: Mapping[Attempt, Held]) -> None:
        self._held = held
        self._age_ms: dict[Attempt, int] = {}
        self._nodes: set[str] = set()

    def __len__(self) -> int:
        return len(self._age_ms)

    def add(self, attempt: Attempt) -> None:
        """The ledger holds it, and nobody has said that it runs."""
        self._age_ms.setdefault(attempt, _FIRST_MS)

    def remove(self, attempt: Attempt) -> None:
        """It runs, or it holds nothing any more. What was not added is no error."""
        self._age_ms.pop(attempt, None)

    def waits(self, attempt: Attempt, least_ms: int, now_ms: int) -> bool:
        """Whether it is held, not started, and was decided at least `least_ms` ago."""
        held = self._held.get(attempt)
        if held is None or held.is_assumed or held.is_confirmed:
            return False
        return now_ms - held.placement.decided_at_ms >= least_ms

    def all_nodes(self, now_ms: int) -> list[str]:
        """The nodes of everything that waits for TOLD_WITHIN_MS, which `take` then takes."""
        return self._seek([each for each in self._age_ms if self.waits(each, TOLD_WITHIN_MS, now_ms)])

    def due_nodes(self, now_ms: int) -> list[str]:
        """The nodes of what is to be told again by its age, which `take` then takes; at most _MOST attempts."""
        due: list[Attempt] = []
        for attempt, age_ms in list(self._age_ms.items()):
            if len(due) >= _MOST:
                break
            held = self._held.get(attempt)
            if held is None or held.is_confirmed:
                del self._age_ms[attempt]
            elif self.waits(attempt, age_ms, now_ms):
                due.append(attempt)
        for attempt in due:
            waited_ms = now_ms - self._held[attempt].placement.decided_at_ms
            self._age_ms[attempt] = waited_ms + min(waited_ms, _LONGEST_MS)
        return self._seek(due)

    def _seek(self, attempts: list[Attempt]) -> list[str]:
        nodes = {self._held[attempt].placement.node for attempt in attempts}
        self._nodes |= nodes
        return sorted(nodes)

    def take(self, node: str) -> bool:
        """Whether the node's row was read for what is to be told again; once for each time."""
        if node not in self._nodes:
            return False
        self._nodes.discard(node)
        return True
