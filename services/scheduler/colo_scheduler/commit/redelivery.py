"""Places that the ledger holds and that are not known to run: when to ask the jobs service about them, and which to tell again.

Who committed a place may have ended before it told anybody, and an order may be lost with the stream that kept it. So what is still
held ten seconds after its decision is asked for; most work of which nothing need be known has ended by then. What nobody has
started is asked for again, each time when it is about twice as old, and with the second such answer it is told again: a jobs
service that has only fallen behind knows better by then. It is told again a little at a time, for who has fallen behind gets it
all twice.
"""

import heapq
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from colo_scheduler.commit.held import HeldAttempt, Over
from colo_scheduler.commit.jobs_asked import AskStarted
from colo_scheduler.ledger.port import Attempt
from colo_scheduler.ledger.reservation_names import name_of
from colo_scheduler.ledger.shards import Shards

__all__ = ["PUBLISHED_WITHIN_MS", "Redelivery"]

PUBLISHED_WITHIN_MS: Final = 2_000
"""A place that was decided longer ago was told, or its scheduler did not live to tell it."""
_FIRST_MS: Final = 10_000
_LEAST_WAIT_MS: Final = 5_000
_LONGEST_MS: Final = 3_600_000
_EVERY_MS: Final = 1_000
_SOON_MS: Final = 50
_MOST: Final = 5_000
"""So many are looked at, and asked for, in one turn."""
_TELL_EVERY_MS: Final = 200
_TELL_MOST: Final = 200
"""So many are told again at once, and whatever else waits on the node of the last of them."""
_ENOUGH: Final = 2
"""So many answers that nobody has started it let it be told again; after a start or a take-over one does."""


class _Asked(Struct, gc=False):
    """One that was asked for: after which wait and at which moment it is asked for again, and how many answers are missing."""

    wait_ms: int
    at_ms: int
    missing: int


class Redelivery:
    """What is committed and not known to run. Of what is another scheduler's to tell nothing is asked."""

    def __init__(self, held: Mapping[Attempt, HeldAttempt], over: Over, shards: Shards) -> None:
        self._held = held
        self._over = over
        self._shards = shards
        # Never asked for, nearly in the order in which they were committed.
        self._new: dict[Attempt, None] = {}
        self._asked: dict[Attempt, _Asked] = {}
        # The moments of `_asked`, the next one first; one that is not its attempt's moment any more says nothing.
        self._moments: list[tuple[int, Attempt]] = []
        # What `ask_all` has yet to look at, last first, and how old of that is asked for.
        self._sweep: list[Attempt] = []
        self._sweep_least_ms = 0
        # By node: what was not started and is to be told once the row was read, and what waits for that.
        self._to_read: dict[str, dict[Attempt, None]] = {}
        self._reading: dict[str, dict[Attempt, None]] = {}
        self._new_at_ms = self._sweep_at_ms = self._tell_at_ms = 0

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
        if held is None or held.is_confirmed or held.is_assumed or attempt in self._over:
            return False
        return self._shards.owns(held.placement.job)

    def waits_long(self, attempt: Attempt, now_ms: int) -> bool:
        """Whether it waits and was decided so long ago that it was told, or never will be by whoever decided it."""
        return self.waits(attempt) and not self._is_younger(attempt, PUBLISHED_WITHIN_MS, now_ms)

    def _is_younger(self, attempt: Attempt, age_ms: int, now_ms: int) -> bool:
        # What was decided later than now was decided by another clock: nobody knows its age, and it counts as old.
        return 0 <= now_ms - self._held[attempt].placement.decided_at_ms < age_ms

    # ---- asking

    def deadline_ms(self) -> int | None:
        """When `ask` or `read` may have something to do; None while nothing is here."""
        snapshots = []
        if self._new:
            snapshots.append(self._new_at_ms)
        if self._sweep:
            snapshots.append(self._sweep_at_ms)
        if self._moments:
            snapshots.append(self._moments[0][0])
        if self._to_read:
            snapshots.append(self._tell_at_ms)
        return min(snapshots, default=None)

    def ask_all(self, now_ms: int, *, least_ms: int = 0) -> None:
        """Ask soon, in parts, for everything that waits and was decided `least_ms` ago or earlier; one answer is enough for it."""
        self._sweep = list(self._held)[::-1]
        self._sweep_least_ms = least_ms
        self._sweep_at_ms = now_ms

    def ask(self, now_ms: int) -> list[AskStarted]:
        """Ask for what is due: of what `ask_all` began, for what was never asked for, and again for what nobody had started."""
        due: list[Attempt] = []
        if self._sweep and now_ms >= self._sweep_at_ms:
            due += self._due_of_all(now_ms)
        if self._new and now_ms >= self._new_at_ms:
            due += self._due_new(now_ms)
        due += self._due_again(now_ms)
        return [AskStarted(attempts=tuple(due))] if due else []

    def _due_of_all(self, now_ms: int) -> list[Attempt]:
        self._sweep_at_ms = now_ms + _SOON_MS
        part = self._sweep[-_MOST:]
        del self._sweep[-_MOST:]
        due: list[Attempt] = []
        for attempt in reversed(part):
            if not self.waits(attempt) or name_of(attempt[0]):
                continue
            if self._is_younger(attempt, self._sweep_least_ms, now_ms):
                self.add(attempt)
                continue
            due.append(attempt)
            self._note(attempt, 1, now_ms)
        return due

    def _due_new(self, now_ms: int) -> list[Attempt]:
        due: list[Attempt] = []
        looked: list[Attempt] = []
        self._new_at_ms = now_ms + _EVERY_MS
        for attempt in self._new:
            if attempt in self._held and self._is_younger(attempt, _FIRST_MS, now_ms):
                break
            if len(looked) >= _MOST:
                self._new_at_ms = now_ms + _SOON_MS
                break
            looked.append(attempt)
            if self.waits(attempt):
                due.append(attempt)
        # Of what is not ours nothing is kept: who takes over a shard looks through all that is held.
        for attempt in looked:
            del self._new[attempt]
        for attempt in due:
            self._note(attempt, _ENOUGH, now_ms)
        return due

    def _due_again(self, now_ms: int) -> list[Attempt]:
        due: list[Attempt] = []
        for _ in range(_MOST):
            if not self._moments or self._moments[0][0] > now_ms:
                break
            at_ms, attempt = heapq.heappop(self._moments)
            asked = self._asked.get(attempt)
            if asked is None or asked.at_ms != at_ms:
                continue
            if not self.waits(attempt):
                del self._asked[attempt]
                continue
            due.append(attempt)
            self._note(attempt, asked.missing, now_ms, min(2 * asked.wait_ms, _LONGEST_MS))
        return due

    def _note(self, attempt: Attempt, missing: int, now_ms: int, wait_ms: int = 0) -> None:
        """It is asked for now, and again when it is twice as old, at a whole second: what is due together is asked for together."""
        self._new.pop(attempt, None)
        age_ms = now_ms - self._held[attempt].placement.decided_at_ms
        wait_ms = wait_ms or min(max(_LEAST_WAIT_MS, age_ms), _LONGEST_MS)
        at_ms = -(-(now_ms + wait_ms) // _EVERY_MS) * _EVERY_MS
        self._asked[attempt] = _Asked(wait_ms=wait_ms, at_ms=at_ms, missing=missing)
        heapq.heappush(self._moments, (at_ms, attempt))

    # ---- telling

    def not_started(self, attempts: Iterable[Attempt]) -> None:
        """Nobody has started these, says the jobs service: of those that wait it tells those again of which that is said enough."""
        for attempt in attempts:
            asked = self._asked.get(attempt)
            if asked is None:
                continue
            asked.missing = max(0, asked.missing - 1)
            if not asked.missing and self.waits(attempt):
                self._to_read.setdefault(self._held[attempt].placement.node, {})[attempt] = None

    def read(self, now_ms: int) -> list[str]:
        """The nodes whose rows are to be read now, after which `take` says what to tell; in order of name."""
        if not self._to_read or now_ms < self._tell_at_ms:
            return []
        self._tell_at_ms = now_ms + _TELL_EVERY_MS
        nodes: list[str] = []
        count = 0
        for node, attempts in self._to_read.items():
            if count >= _TELL_MOST:
                break
            nodes.append(node)
            count += len(attempts)
        for node in nodes:
            self._reading.setdefault(node, {}).update(self._to_read.pop(node))
        return sorted(nodes)

    def take(self, node: str) -> list[HeldAttempt]:
        """The node's row was read: what is told again there, once for each time."""
        return [self._held[attempt] for attempt in self._reading.pop(node, ()) if self.waits(attempt)]
