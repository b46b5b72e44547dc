"""How many replicas of a job each node holds: for jobs that had rather be spread.

Nobody pays for it before the first such job comes: then all holds are counted once, and from there on each one that comes or goes.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from colo_common.model.invalid import InvariantBroken
from colo_scheduler.ledger import Attempt
from colo_scheduler.node import Node
from colo_scheduler.reservation.held_place import name_of
from colo_scheduler.zones import IntArray

__all__ = ["JobCounts"]


class JobCounts:
    """Counts by job and row. What stands for a reservation is no replica of any job."""

    def __init__(self, before: "JobCounts | None" = None) -> None:
        """`before`: what was counted when a trial began; this one then counts what comes on top of it."""
        self._before = before
        self._counts: dict[str, dict[int, int]] = {}
        self.is_counting = before is not None

    def begin(self, nodes: Iterable[Node]) -> None:
        """Count what the nodes hold now, unless it is counted already."""
        if self.is_counting:
            return
        self.is_counting = True
        for node in nodes:
            for attempt in node.holds:
                self.add(attempt, node.row, 1)

    def add(self, attempt: Attempt, row: int, change: int) -> None:
        """One more or one less on a node."""
        if not self.is_counting or name_of(attempt[0]):
            return
        job = attempt[0].partition("/")[0]
        rows = self._counts.setdefault(job, {})
        count = rows.get(row, 0) + change
        if count:
            rows[row] = count
            return
        rows.pop(row, None)
        if not rows:
            del self._counts[job]

    def forget_row(self, row: int, last: int) -> None:
        """Nothing is held on a row, and its node is gone: the last row takes its place."""
        for rows in self._counts.values():
            if last in rows:
                rows[row] = rows.pop(last)

    def on(self, job: str, row: int) -> int:
        """How many replicas of the job the node holds."""
        before = self._before.on(job, row) if self._before is not None else 0
        return before + self._of(job).get(row, 0)

    def column(self, job: str, count: int) -> IntArray:
        """`on` for the first `count` rows."""
        column = self._before.column(job, count) if self._before is not None else np.zeros(count, dtype=np.int64)
        for row, replicas in self._of(job).items():
            column[row] += replicas
        return column

    def check(self, nodes: Iterable[Node]) -> None:
        """Raise InvariantBroken unless the counts are those of what the nodes hold."""
        if self.is_counting and self._before is None:
            anew = JobCounts()
            anew.begin(nodes)
            if anew._counts != self._counts:
                raise InvariantBroken("replicas are counted otherwise than they are held")

    def _of(self, job: str) -> Mapping[int, int]:
        return self._counts.get(job, {})
