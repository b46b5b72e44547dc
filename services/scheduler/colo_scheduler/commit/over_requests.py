"""Requests for attempts that are over: a job came back under an id that was used before, or the jobs service lost what it knew.

Such an attempt is never placed, and without these reports its job would wait for ever. The jobs service is told the newest attempt
that is over, and requests a newer one. It hears of places and ends over other streams than the scheduler, and of some only when
they are delivered again, so a request counts only when it still waits `over_after_ms` after it was seen first.
"""

from typing import Final

from colo_common.events.effects import Effect, Publish
from colo_common.events.job import PlacementRequest
from colo_common.events.placement import PlacementRejected
from colo_common.model.placement import Attempt, attempt_key
from colo_scheduler.commit.held import Over
from colo_scheduler.commit.relist import Asking

__all__ = ["OverRequests"]

_MOST: Final = 10_000


class OverRequests:
    """The requests of this kind that were seen, at most `_MOST`: of more the oldest are forgotten, and seen again later."""

    def __init__(self, over: Over, asking: Asking, after_ms: int) -> None:
        self._after_ms = after_ms
        self._over = over
        self._asking = asking
        self._since_ms: dict[Attempt, int] = {}

    def note(self, attempt: Attempt, now_ms: int) -> None:
        """A request of this attempt came although it is over: ask soon whether it still waits."""
        since_ms = self._since_ms.get(attempt)
        # A request that was last seen long ago, and had stopped waiting, counts as a new one.
        if since_ms is not None and now_ms - since_ms < 2 * self._after_ms:
            return
        self._since_ms.pop(attempt, None)
        self._since_ms[attempt] = now_ms
        if len(self._since_ms) > _MOST:
            del self._since_ms[next(iter(self._since_ms))]
        self._asking.at(now_ms + self._after_ms)

    def listed(self, placement_request: PlacementRequest, now_ms: int) -> list[Effect]:
        """The jobs service lists the request, whose attempt is over, as waiting."""
        attempt = (placement_request.replica, placement_request.attempt)
        self.note(attempt, now_ms)
        if now_ms - self._since_ms[attempt] < self._after_ms:
            # Asked for another one, which was seen earlier: this one's time is still to come.
            self._asking.at(self._since_ms[attempt] + self._after_ms)
            return []
        del self._since_ms[attempt]
        newest = self._over.newest(attempt[0])
        fact = PlacementRejected(
            at_ms=now_ms,
            replica=attempt[0],
            job=placement_request.job,
            attempt=attempt[1],
            nodes=0,
            counts=(),
            newest_over=newest,
        )
        identity = f"scheduler:over:{attempt_key(*attempt)}:{newest}"
        return [Publish(fact=fact, id=identity, traceparent=placement_request.traceparent)]
