"""The requests of paused jobs and queues: they wait beside the queue until an operator resumes them."""

from collections.abc import Callable

from colo_common.events.job import PlacementRequest
from colo_common.model.placement import Attempt
from colo_common.model.restriction import Restrictions
from colo_scheduler.requests.queue import RequestQueue

__all__ = ["PausedRequests"]


class PausedRequests:
    """At most `limit` requests; what is left out comes again when the jobs service is asked for what waits."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._requests: dict[Attempt, PlacementRequest] = {}

    def __len__(self) -> int:
        """The number of requests that wait here."""
        return len(self._requests)

    def holds_back(self, placement_request: PlacementRequest, restrictions: Restrictions) -> bool:
        """Whether the request belongs to a paused job or queue; it then waits here."""
        if restrictions.pause_of(placement_request.job, placement_request.queue) is None:
            return False
        if len(self._requests) < self._limit:
            self._requests[(placement_request.replica, placement_request.attempt)] = placement_request
        return True

    def remove(self, attempt: Attempt) -> None:
        """Forget an attempt that is over or placed."""
        if self._requests:
            self._requests.pop(attempt, None)

    def remove_where(self, is_deleted: Callable[[PlacementRequest], bool]) -> None:
        """Forget every request for which `is_deleted` holds."""
        self._requests = {key: each for key, each in self._requests.items() if not is_deleted(each)}

    def follow(self, queue: RequestQueue, restrictions: Restrictions) -> tuple[PlacementRequest, ...]:
        """Take the requests of paused jobs out of the queue; return those that wait here and are not paused any more."""
        queue.remove_where(lambda placement_request: self.holds_back(placement_request, restrictions))
        released = [each for each in self._requests.values() if restrictions.pause_of(each.job, each.queue) is None]
        for each in released:
            del self._requests[(each.replica, each.attempt)]
        return tuple(released)
