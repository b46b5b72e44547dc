"""Ends of attempts of an earlier job that had the same id: after a total loss a job is submitted again, and its numbers begin at 1.

An executor tells an end when it comes, and once more when it starts. The end of an attempt that was placed here is of the decision
that placed it. Of one that still waits no decision is known yet: where its place was decided before the job was submitted, by
clocks that may differ, the ledger is asked first, and a decision that arrives meanwhile is compared.
"""

from collections import OrderedDict
from typing import Final

from colo_common.events.enforcement import ReplicaEnded
from colo_common.model.placement import Placement
from colo_jobs.index import Key
from colo_jobs.records import ReplicaRecord

__all__ = ["EarlierLives"]

_DECISIONS_MOST: Final = 20_000


class EarlierLives:
    """The decisions of attempts that were placed lately and not started yet, and the ends that wait for the ledger."""

    def __init__(self) -> None:
        self._decided_ms: OrderedDict[Key, tuple[int, int]] = OrderedDict()
        self._ends: dict[Key, ReplicaEnded] = {}

    def placed(self, key: Key, placement: Placement) -> ReplicaEnded | None:
        """Note a decision; returns the end that waited for it."""
        self._decided_ms[key] = (placement.attempt, placement.decided_at_ms)
        if len(self._decided_ms) > _DECISIONS_MOST:
            self._decided_ms.popitem(last=False)
        end = self._ends.get(key)
        is_of_it = end is not None and (end.attempt, end.decided_at_ms, end.node) == (
            placement.attempt,
            placement.decided_at_ms,
            placement.node,
        )
        return self._ends.pop(key) if is_of_it else None

    def is_of_other(self, key: Key, record: ReplicaRecord, end: ReplicaEnded) -> bool:
        """Whether another decision than that of the present attempt, which waits for its start, is the one that ended."""
        known = self._decided_ms.pop(key, None)
        if known is None or record.state != "Assigned" or record.node != end.node:
            return False
        return (
            bool(end.decided_at_ms)
            and known[0] == end.attempt == record.attempt
            and known[1] not in (0, end.decided_at_ms)
        )

    def is_doubtful(self, record: ReplicaRecord, submitted_at_ms: int, end: ReplicaEnded) -> bool:
        """Whether the place of an attempt that waits here was decided before its job was submitted."""
        is_present = record.state == "Pending" and record.attempt == end.attempt
        return is_present and 0 < end.decided_at_ms < submitted_at_ms

    def doubt(self, key: Key, end: ReplicaEnded) -> bool:
        """Keep an end until the ledger was listed; whether the ledger is to be asked, because nothing was kept yet."""
        is_first = not self._ends
        self._ends[key] = end
        return is_first

    def take(self) -> dict[Key, ReplicaEnded]:
        """The ends that are kept, now that the ledger was listed."""
        ends, self._ends = self._ends, {}
        return ends
