"""Places that the ledger holds and of which nobody has said here that they run: when to ask about them, and which to tell again.

Who committed a place may have ended before it told anybody, and an order may be lost with the stream that kept it. So what is not
known to have started is asked for, of the jobs service, once it is ten seconds old; most work of which nothing need be known has
ended by then. What was not started is told again, and asked for again each time after twice as long: its row is read first, the
fact and the order are those of the first time, and the bus drops what it has had.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from colo_scheduler.attempts import Held, Over
from colo_scheduler.heard import AskStarted
from colo_scheduler.ledger import Attempt
from colo_scheduler.reservation.held_place import name_of
from colo_scheduler.shards import Shards

__all__ = ["TOLD_WITHIN_MS", "Untold"]

TOLD_WITHIN_MS: Final = 2_000
"""A place that was decided longer ago was told, or its scheduler did not live to tell it."""
_FIRST_MS: Final = 10_000
_LONGEST_MS: Final = 3_600_000
_EVERY_MS: Final = 1_000
"""What grew old enough within so long is asked for together."""
_MOST: Final = 5_000
"""So many are asked for at once, those that were committed first."""
_TOLD_MOST: Final = 1_000
"""Of the ones that were asked for before, so many at once: it may be that all of them are to be told again."""


class Untold:
    """What is committed and not known to run. What is over is left alone, and so is what is another scheduler's to tell."""

    def __init__(self, held: Mapping[Attempt, Held], over: Over, shards: Shards) -> None:
        self._held = held
        self._over = over
        self._shards = shards
        # Never asked for, nearly in the order in which they were committed.
        self._new: dict[Attempt, None] = {}
        # By the age in ms at which it is asked for again.
        self._again_ms: dict[Attempt, int] = {}
        self._to_tell: dict[str, dict[Attempt, None]] = {}
        self._next_ms = 0

    def __len__(self) -> int:
        return len(self._new) + len(self._again_ms)

    def add(self, attempt: Attempt) -> None:
        """The ledger holds it, and nobody has said that it runs. What stands for a reservation never does."""
        if attempt not in self._again_ms and not name_of(attempt[0]):
            self._new[attempt] = None

    def remove(self, attempt: Attempt) -> None:
        """It runs, or it holds nothing any more. What was not added is no error."""
        if attempt in self._new:
            del self._new[attempt]
        else:
            self._again_ms.pop(attempt, None)

    def waits(self, attempt: Attempt, least_ms: int, now_ms: int) -> bool:
        """Whether it is ours, held, not known to run nor to be over, and was decided at least `least_ms` ago."""
        held = self._held.get(attempt)
        if held is None or held.is_assumed or held.is_confirmed or attempt in self._over:
            return False
        return now_ms - held.placement.decided_at_ms >= least_ms and self._shards.owns(held.placement.job)

    # ---- asking

    def deadline_ms(self) -> int | None:
        """When `ask` has something to ask for; None while nothing is new."""
        first = next(iter(self._new), None)
        if first is None:
            return None
        held = self._held.get(first)
        return self._next_ms if held is None else max(self._next_ms, held.placement.decided_at_ms + _FIRST_MS)

    def ask(self, now_ms: int) -> list[AskStarted]:
        """Ask for what is old enough and was never asked for; at most _MOST attempts."""
        due_ms = self.deadline_ms()
        if due_ms is None or due_ms > now_ms:
            return []
        self._next_ms = now_ms + _EVERY_MS
        due: list[Attempt] = []
        for attempt in self._new:
            held = self._held.get(attempt)
            if len(due) >= _MOST or (held and now_ms - held.placement.decided_at_ms < _FIRST_MS):
                break
            due.append(attempt)
        return self._ask(due, now_ms)

    def ask_again(self, now_ms: int) -> list[AskStarted]:
        """Ask for what is twice as old as the last time; at most _TOLD_MOST attempts."""
        due: list[Attempt] = []
        for attempt, age_ms in self._again_ms.items():
            held = self._held.get(attempt)
            if held is None or held.is_confirmed or now_ms - held.placement.decided_at_ms >= age_ms:
                due.append(attempt)
                if len(due) >= _TOLD_MOST:
                    break
        return self._ask(due, now_ms)

    def ask_all(self, least_ms: int, now_ms: int) -> list[AskStarted]:
        """Ask for everything that was decided at least `least_ms` ago, also for what was asked for only just now."""
        every = [*self._again_ms, *self._new]
        return self._ask([attempt for attempt in every if self.waits(attempt, least_ms, now_ms)], now_ms)

    def _ask(self, attempts: list[Attempt], now_ms: int) -> list[AskStarted]:
        asked = []
        for attempt in attempts:
            self.remove(attempt)
            held = self._held.get(attempt)
            if held is None or held.is_confirmed:
                continue
            waited_ms = max(_FIRST_MS // 2, now_ms - held.placement.decided_at_ms)
            self._again_ms[attempt] = waited_ms + min(waited_ms, _LONGEST_MS)
            if self.waits(attempt, 0, now_ms):
                asked.append(attempt)
        return [AskStarted(attempts=tuple(asked))] if asked else []

    # ---- telling

    def tell(self, attempts: Iterable[Attempt], now_ms: int) -> list[str]:
        """Of these nobody has started those that wait: the nodes whose rows are to be read, then `take` says what to tell."""
        nodes = set()
        for attempt in attempts:
            if self.waits(attempt, 0, now_ms):
                node = self._held[attempt].placement.node
                self._to_tell.setdefault(node, {})[attempt] = None
                nodes.add(node)
        return sorted(nodes)

    def take(self, node: str, now_ms: int) -> list[Held]:
        """The node's row was read: what is told again there, once for each time."""
        attempts = self._to_tell.pop(node, ())
        return [self._held[attempt] for attempt in attempts if self.waits(attempt, 0, now_ms)]
