"""When the jobs service is asked for pending requests: after shards were taken, after requests were left out, and regularly.

Schedulers that share the work receive requests live, and a missed request is not published again: it would wait for ever. So a
scheduler that holds shards asks every `ask_every_ms`. `Redelivery` asks which attempts were started.
"""

from colo_common.events.effects import Effect
from colo_common.model.partition import PartitionsHeld
from colo_scheduler.commit.commit import Commits
from colo_scheduler.commit.held import PUBLISHED_WITHIN_MS
from colo_scheduler.commit.jobs_asked import AskPending
from colo_scheduler.policy import SchedulerPolicy
from colo_scheduler.requests.queue import RequestQueue

__all__ = ["Asking"]


class Asking:
    """The moments at which the jobs service is asked for pending requests."""

    def __init__(self, policy: SchedulerPolicy, commits: Commits, queue: RequestQueue) -> None:
        self._policy = policy
        self._commits = commits
        self._queue = queue
        self._has_overflowed = False
        self._again_at_ms: int | None = None
        self._next_at_ms: int | None = None
        self._soon_at_ms: int | None = None

    def shared(self, event: PartitionsHeld, *, has_new: bool, now_ms: int) -> None:
        """These shards are held now. The caller asks for new shards at once, and `wake` asks once more `ask_again_ms` later.

        Only the second answer has the requests published after the last owner stopped and before this scheduler subscribed.
        """
        if has_new:
            self._again_at_ms = now_ms + self._policy.ask_again_ms
        if not event.fences:
            self._next_at_ms = None
        elif self._next_at_ms is None and self._policy.ask_every_ms:
            self._next_at_ms = now_ms + self._policy.ask_every_ms

    def at(self, moment_ms: int) -> None:
        """Ask at this moment, or earlier."""
        if self._soon_at_ms is None or moment_ms < self._soon_at_ms:
            self._soon_at_ms = moment_ms

    def left_out(self) -> None:
        """A request found no room in the queue."""
        self._has_overflowed = True

    def deadline_ms(self) -> int | None:
        """When `wake` has something to do, apart from room in the queue."""
        moments = (self._again_at_ms, self._next_at_ms, self._soon_at_ms)
        return min((moment for moment in moments if moment is not None), default=None)

    def wake(self, now_ms: int) -> list[Effect]:
        """Ask for pending requests where that is due; `ask_again_ms` after shards were taken also ask which attempts started."""
        is_again = self._again_at_ms is not None and now_ms >= self._again_at_ms
        is_next = self._next_at_ms is not None and now_ms >= self._next_at_ms
        is_soon = self._soon_at_ms is not None and now_ms >= self._soon_at_ms
        has_room = self._has_overflowed and len(self._queue) * 2 <= self._policy.waiting_max
        effects: list[Effect] = [AskPending()] if is_again or is_next or is_soon or has_room else []
        if is_again:
            self._again_at_ms = None
            self._commits.redelivery.ask_all(now_ms, least_ms=PUBLISHED_WITHIN_MS)
        if is_soon:
            self._soon_at_ms = None
        if is_next:
            self._next_at_ms = now_ms + self._policy.ask_every_ms
        if has_room:
            self._has_overflowed = False
        return effects
