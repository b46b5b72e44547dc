"""Attempts that hold a place, and attempts that are over."""

from collections import OrderedDict

from msgspec import Struct

from colo_common.events.job import PlacementRequest
from colo_common.model.placement import Attempt, Placement
from colo_scheduler.cluster.preemptible_index import Importance

__all__ = ["HeldAttempt", "Over"]


class HeldAttempt(Struct, eq=False, gc=False):
    """One attempt that holds a place. `placement_request` is set while the place is assumed: decided here and not yet committed.

    `inside`: attempts whose places are part of this place, as committed. `is_evicted`: its eviction was counted.
    `importance`: the importance that the place is held with; None: it is never preempted.
    """

    placement: Placement
    generation: int
    placement_request: PlacementRequest | None = None
    is_confirmed: bool = False
    inside: tuple[Attempt, ...] = ()
    is_evicted: bool = False
    importance: Importance | None = None

    @property
    def attempt(self) -> Attempt:
        """The attempt that holds the place."""
        return (self.placement.replica, self.placement.attempt)

    @property
    def is_assumed(self) -> bool:
        """Whether the ledger has not answered yet."""
        return self.placement_request is not None


class Over:
    """The highest finished attempt of each replica, at most `limit` replicas; the replica longest untouched is forgotten.

    Requests, withdrawals and ends come over separate streams, so an end may be received before its placement request.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._highest: OrderedDict[str, int] = OrderedDict()

    def add(self, attempt: Attempt) -> None:
        """This attempt, and every older one, is over."""
        replica, number = attempt
        highest = self._highest
        before = highest.get(replica)
        if before is None:
            highest[replica] = max(number, 0)
        else:
            highest.move_to_end(replica)
            if number > before:
                highest[replica] = number
        if len(highest) > self._limit:
            highest.popitem(last=False)

    def newest(self, replica: str) -> int:
        """The newest attempt of the replica that is known to be over; 0 when none is."""
        return self._highest.get(replica, 0)

    def __contains__(self, attempt: Attempt) -> bool:
        return self._highest.get(attempt[0], 0) >= attempt[1]
