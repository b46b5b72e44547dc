"""How many replicas of a job each node holds: for jobs with a spread preference.

Counting starts with the first of these jobs: then all holds are counted once, and from there on each hold that is added or dropped.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from colo_common.model.invalid import InvariantBroken
from colo_common.model.placement import Attempt
from colo_scheduler.cluster.node import Node
from colo_scheduler.ledger.reservation_names import name_of
from colo_scheduler.numa.zones import IntArray

__all__ = ["JobCounts"]

# The cost of a piece; so many counts are gathered in the same time.
_PIECE: Final = 100
_GATHERED: Final = 1_500


class JobCounts:
    """Counts by job and row. A reservation's own hold is no replica of any job."""

    def __init__(self, before: "JobCounts | None" = None) -> None:
        """`before`: the counts at the beginning of a trial; this object then counts the trial's changes on top."""
        self._before = before
        self._counts: dict[str, dict[int, int]] = {}
        self.is_counting = before is not None

    def begin(self, nodes: Iterable[Node]) -> None:
        """Count the nodes' holds now, unless they are counted already."""
        if self.is_counting:
            return
        self.is_counting = True
        for node in nodes:
            for attempt in node.holds:
                self.add(attempt, node.row, 1)

    def add(self, attempt: Attempt, row: int, change: int) -> None:
        """Add `change` (1 or -1) to the count of a node."""
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

    def check_rows(self, nodes: Iterable[Node]) -> None:
        """Raise InvariantBroken unless the holds of these nodes are counted."""
        if not self.is_counting or self._before is not None:
            return
        for node in nodes:
            for job, count in _jobs_on(node).items():
                if self._of(job).get(node.row) != count:
                    raise InvariantBroken("replicas are counted otherwise than they are held", job=job, node=node.name)

    def check_jobs(self, nodes: Sequence[Node]) -> Iterator[int]:
        """Raise InvariantBroken when a job is counted without a hold; checks one piece at a time and yields its size."""
        by_row: dict[int, list[str]] = {}
        looked_at = 0
        for job in list(self._counts):
            for row in list(self._of(job)):
                by_row.setdefault(row, []).append(job)
                looked_at += 1
                if looked_at >= _GATHERED:
                    yield _PIECE
                    looked_at = 0
        yield 1
        looked_at = 0
        for row, jobs in by_row.items():
            node = nodes[row] if row < len(nodes) else None
            held = _jobs_on(node) if node is not None else {}
            # A hold that was given back since the gathering is not counted any more.
            for job in jobs:
                if job not in held and row in self._of(job):
                    raise InvariantBroken("replicas are counted that are not held", job=job, row=row)
            looked_at += 1 + (len(node.holds) if node is not None else 0)
            if looked_at >= _PIECE * 4:
                yield _PIECE
                looked_at = 0
        yield 1

    def _of(self, job: str) -> Mapping[int, int]:
        return self._counts.get(job, {})


def _jobs_on(node: Node) -> dict[str, int]:
    found: dict[str, int] = {}
    for replica, _ in node.holds:
        if not name_of(replica):
            job = replica.partition("/")[0]
            found[job] = found.get(job, 0) + 1
    return found
