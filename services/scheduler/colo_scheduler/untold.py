"""Places that the ledger holds and that are not known to run: when to ask the jobs service about them, and which to tell again.

Who committed a place may have ended before it told anybody, and an order may be lost with the stream that kept it. So what is still
held ten seconds after its decision is asked for; most work of which nothing need be known has ended by then. What nobody has
started is asked for again, each time when it is twice as old, and from the second time on it is told again: a jobs service that
has only fallen behind knows better by then. It is told again a little at a time, for whoever has fallen behind gets it all twice.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

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
_NEW_EVERY_MS: Final = 1_000
_NEW_MOST: Final = 5_000
"""So many that were never asked for at once, those that were committed first."""
_AGAIN_EVERY_MS: Final = 30_000
_AGAIN_MOST: Final = 20_000
_TELL_EVERY_MS: Final = 200
_TELL_MOST: Final = 100
"""Of so many nodes rows are read at once: about 90 ms, where each holds 80 replicas."""
_ENOUGH: Final = 2
"""So often it must have been asked for before it is told again."""


class _Asked(Struct, gc=False):
    """One that was asked for: how often, and the age in ms at which it is asked for again."""

    times: int
    again_ms: int


class Untold:
    """What is committed and not known to run. Of what is another scheduler's to tell nothing is asked."""

    def __init__(self, held: Mapping[Attempt, Held], over: Over, shards: Shards) -> None:
        self._held = held
        self._over = over
        self._shards = shards
        # Never asked for, nearly in the order in which they were committed.
        self._new: dict[Attempt, None] = {}
        self._asked: dict[Attempt, _Asked] = {}
        # By node: what was not started and is to be told once the row was read, and what waits for that.
        self._to_read: dict[str, dict[Attempt, None]] = {}
        self._reading: dict[str, dict[Attempt, None]] = {}
        self._new_at_ms = self._again_at_ms = self._tell_at_ms = 0

    def add(self, attempt: Attempt) -> None:
        """The ledger holds it, and nobody has said that it runs. What stands for a reservation never does."""
        if attempt not in self._asked and not name_of(attempt[0]):
            self._new[attempt] = None

    def remove(self, attempt: Attempt) -> None:
        """It runs, or it holds nothing any more. What was not added is no error."""
        if attempt in self._new:
            del self._new[attempt]
        else:
            self._asked.pop(attempt, None)

    def waits(self, attempt: Attempt) -> bool:
        """Whether it is ours, held, and neither known to run nor to be over."""
        held = self._held.get(attempt)
        if held is None or held.is_assumed or held.is_confirmed or attempt in self._over:
            return False
        return self._shards.owns(held.placement.job)

    def waits_long(self, attempt: Attempt, now_ms: int) -> bool:
        """Whether it waits and was decided so long ago that it was told, or never will be by whoever decided it."""
        return self.waits(attempt) and not self._is_younger(attempt, TOLD_WITHIN_MS, now_ms)

    def _is_younger(self, attempt: Attempt, age_ms: int, now_ms: int) -> bool:
        # What was decided later than now was decided by another clock: nobody knows its age, and it counts as old.
        return 0 <= now_ms - self._held[attempt].placement.decided_at_ms < age_ms

    # ---- asking

    def deadline_ms(self) -> int | None:
        """When `wake` may have something to do; None while nothing is here."""
        moments = []
        if self._new:
            moments.append(self._new_at_ms)
        if self._asked:
            moments.append(self._again_at_ms)
        if self._to_read:
            moments.append(self._tell_at_ms)
        return min(moments, default=None)

    def ask(self, now_ms: int) -> list[AskStarted]:
        """Ask for what is old enough and was never asked for, and now and then for what is twice as old as the last time."""
        due: list[Attempt] = []
        if now_ms >= self._new_at_ms:
            self._new_at_ms = now_ms + _NEW_EVERY_MS
            due += self._due_new(now_ms)
        if now_ms >= self._again_at_ms:
            self._again_at_ms = now_ms + _AGAIN_EVERY_MS
            due += self._due_again(now_ms)
        return self._ask(due, 1, now_ms)

    def ask_all(self, now_ms: int, *, least_ms: int = 0) -> list[AskStarted]:
        """Ask for everything that is held and was decided `least_ms` ago or earlier; what nobody has started is told at once."""
        every = [each for each, held in self._held.items() if not held.is_confirmed and not name_of(each[0])]
        due = [each for each in every if self.waits(each) and not self._is_younger(each, least_ms, now_ms)]
        return self._ask(due, _ENOUGH, now_ms)

    def _due_new(self, now_ms: int) -> list[Attempt]:
        due: list[Attempt] = []
        others: list[Attempt] = []
        for attempt in self._new:
            if attempt in self._held and self._is_younger(attempt, _FIRST_MS, now_ms):
                break
            if not self.waits(attempt):
                others.append(attempt)
                continue
            due.append(attempt)
            if len(due) >= _NEW_MOST:
                break
        # Who takes over a shard looks through all that is held.
        for attempt in others:
            del self._new[attempt]
        return due

    def _due_again(self, now_ms: int) -> list[Attempt]:
        due: list[Attempt] = []
        others: list[Attempt] = []
        for attempt, asked in self._asked.items():
            if not self.waits(attempt):
                others.append(attempt)
            elif not self._is_younger(attempt, asked.again_ms, now_ms):
                due.append(attempt)
                if len(due) >= _AGAIN_MOST:
                    break
        for attempt in others:
            del self._asked[attempt]
        return due

    def _ask(self, due: list[Attempt], times: int, now_ms: int) -> list[AskStarted]:
        for attempt in due:
            before = self._asked.pop(attempt, None)
            self._new.pop(attempt, None)
            age_ms = max(_FIRST_MS // 2, now_ms - self._held[attempt].placement.decided_at_ms)
            times_now = times + (before.times if before is not None else 0)
            self._asked[attempt] = _Asked(times=times_now, again_ms=age_ms + min(age_ms, _LONGEST_MS))
        return [AskStarted(attempts=tuple(due))] if due else []

    # ---- telling

    def not_started(self, attempts: Iterable[Attempt]) -> None:
        """Nobody has started these, says the jobs service: those that still wait, and were asked for twice, are told again."""
        for attempt in attempts:
            asked = self._asked.get(attempt)
            if asked is not None and asked.times >= _ENOUGH and self.waits(attempt):
                self._to_read.setdefault(self._held[attempt].placement.node, {})[attempt] = None

    def read(self, now_ms: int) -> list[str]:
        """The nodes whose rows are to be read now, after which `take` says what to tell; at most _TELL_MOST, in order of name."""
        if not self._to_read or now_ms < self._tell_at_ms:
            return []
        self._tell_at_ms = now_ms + _TELL_EVERY_MS
        nodes = [node for node, _ in zip(self._to_read, range(_TELL_MOST), strict=False)]
        for node in nodes:
            self._reading.setdefault(node, {}).update(self._to_read.pop(node))
        return sorted(nodes)

    def take(self, node: str) -> list[Held]:
        """The node's row was read: what is told again there, once for each time."""
        return [self._held[attempt] for attempt in self._reading.pop(node, ()) if self.waits(attempt)]
