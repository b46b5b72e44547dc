"""The node signals beside free capacity: replicas of the same job, recent evictions, real load.

One object for all nodes, which the cluster keeps up to date. A signal that no policy and no request uses costs nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from colo_common.events.node import AllocatableChanged
from colo_common.model.invalid import InvariantBroken
from colo_common.model.placement import Attempt, ZoneShare
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.topology import NodeTopology
from colo_scheduler.cluster.node import Node
from colo_scheduler.cluster.pool import PoolName
from colo_scheduler.cluster.signal_rules import SignalRules
from colo_scheduler.ledger.port import name_of
from colo_scheduler.load.dynamic_rules import METRICS
from colo_scheduler.load.loads import Loads
from colo_scheduler.load.rows import BoolArray
from colo_scheduler.numa.zones import IntArray
from colo_scheduler.peers.loads import dynamic_loads
from colo_scheduler.requests.request_class import RequestClass
from colo_scheduler.scorers.recent_eviction import EvictionPenalties

__all__ = ["NodeSignals", "Overload", "kind_of"]

# The cost of a piece; so many counts are gathered in the same time.
_PIECE: Final = 100
_GATHERED: Final = 1_500


class JobCounts:
    """How many replicas of a job each node holds, by job and row: for jobs with a spread preference.

    Counting starts with the first of these jobs: then all holds are counted once, and from there on each hold that is added or
    dropped. A reservation's own hold is no replica of any job.
    """

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


class Overload(NamedTuple):
    """A load above its limit: its name in `colo_common.model.shortage.LOAD_UNITS`, the load in percent, and the most allowed."""

    unit: str
    have_pct: int
    most_pct: int


class NodeSignals:
    """`follows[pool]`: holds of that pool have to be passed on. `is_published`: some load or eviction was received."""

    def __init__(self, rules: SignalRules | None = None) -> None:
        self.rules = rules or SignalRules()
        self.jobs = JobCounts()
        self.evictions = EvictionPenalties(self.rules.evictions)
        self.loads = Loads(self.rules.load)
        self.dynamic = dynamic_loads(self.rules.dynamic, is_scored=self.rules.follows_dynamic)
        self.follows = dict.fromkeys(PoolName, self._follows_batch or self.rules.follows_dynamic)
        self.follows[PoolName.PROD] = True
        self.is_published = False
        self._base: NodeSignals | None = None

    @property
    def _follows_batch(self) -> bool:
        # Work below prod is judged by the whole usage; its own addition counts for it alone.
        return self.rules.follows_batch or bool(self.loads.policy.usage_pct)

    def fork(self) -> "NodeSignals":
        """An independent copy with the same content, for a trial."""
        other = NodeSignals(self.rules)
        other.jobs, other.evictions, other.loads = JobCounts(self.jobs), self.evictions, self.loads.fork()
        other.dynamic = self.dynamic.fork()
        other.follows, other._base = dict.fromkeys(PoolName, True), self
        other.is_published = self.is_published
        return other

    def hear(self, row: int, fact: AllocatableChanged) -> None:
        """Take a node's usage."""
        self.loads.hear(row, fact)
        if fact.load is not None:
            self.is_published = True
            self.dynamic.hear(row, fact.load, fact.at_ms)

    def know(self, row: int, topology: NodeTopology) -> None:
        """Take a machine's capacity."""
        self.loads.know(row, topology)
        self.dynamic.know(row, topology)

    def evicted(self, kind: str, row: int, now_ms: int) -> None:
        """A node evicted work of this kind."""
        self.is_published = True
        self.evictions.evicted(kind, row, now_ms)

    def follows_load(self, pool: PoolName) -> bool:
        """Whether a changed load may admit work of the pool to a node that was too busy."""
        return self.is_published and (self.dynamic.judges or self.loads.judges(is_prod=pool is PoolName.PROD))

    def judges(self, request: RequestClass) -> bool:
        """Whether nodes may become too busy for the request by earlier replicas."""
        return self.is_published and self.loads.judges(is_prod=request.is_prod)

    def refuses(self, request: RequestClass) -> bool:
        """Whether nodes may be too busy for the request."""
        return self.is_published and (self.dynamic.judges or self.loads.judges(is_prod=request.is_prod))

    def passing(self, request: RequestClass, count: int, now_ms: int) -> BoolArray:
        """Which of the first `count` rows are not too busy for one replica: bool, shape (count,)."""
        if not self.dynamic.judges:
            return self.loads.passing(request, count, now_ms)
        calm = self.dynamic.passing(count, now_ms)
        if self.loads.judges(is_prod=request.is_prod):
            calm &= self.loads.passing(request, count, now_ms)
        return calm

    def overloads(self, request: RequestClass, count: int, now_ms: int) -> list[Overload | None]:
        """Why each of the first `count` rows is too busy for one replica, None for a row that is not."""
        found: list[Overload | None] = [None] * count
        if self.dynamic.judges:
            delivered = self.dynamic.overloads(count, now_ms)
            found = [None if each is None else Overload(METRICS[each[0]].unit, *each[1:]) for each in delivered]
        if self.loads.judges(is_prod=request.is_prod):
            for row, busy in enumerate(self.loads.overloads(request, count, now_ms)):
                if busy is not None:
                    found[row] = Overload(f"{busy[0]}-load-pct", *busy[1:])
        return found

    def count_jobs(self, nodes: list[Node]) -> None:
        """Count replicas by job from now on."""
        if self._base is not None:
            self._base.count_jobs(nodes)
        self.jobs.begin(nodes)
        self.follows = dict.fromkeys(PoolName, True)

    def hold(self, row: int, pool: PoolName, attempt: Attempt, shares: tuple[ZoneShare, ...], at_ms: int) -> None:
        """An attempt holds a place since `at_ms`."""
        self.jobs.add(attempt, row, 1)
        if pool is PoolName.PROD or self._follows_batch:
            self.loads.hold(row, attempt, shares, at_ms, is_prod=pool is PoolName.PROD)
        # A reservation's own hold uses nothing.
        if self.rules.follows_dynamic and not name_of(attempt[0]):
            self.dynamic.hold(row, attempt, at_ms)

    def drop(self, row: int, attempt: Attempt) -> None:
        """An attempt does not hold its place any more."""
        self.jobs.add(attempt, row, -1)
        self.loads.drop(row, attempt)
        self.dynamic.drop(row, attempt)

    def clear_row(self, row: int) -> None:
        """The row is vacant: its node is deleted, and no attempt holds capacity there."""
        self.evictions.clear_row(row)
        self.loads.clear_row(row)
        self.dynamic.clear_row(row)

    def check_rows(self, nodes: Sequence[Node], rows: range) -> None:
        """Raise InvariantBroken unless the job counts and load sums of these nodes and rows equal those of a recount."""
        self.jobs.check_rows(nodes)
        if self.dynamic.is_followed and (astray := self.dynamic.check_rows((node.row, node.holds) for node in nodes)):
            raise InvariantBroken("averages, maxima or arrivals differ from what was heard", rows=astray[:3])
        wrong = self.loads.check(rows)
        if wrong:
            raise InvariantBroken("a load differs from its report and what came since", rows=wrong[:3])

    def check_jobs(self, nodes: Sequence[Node]) -> Iterator[int]:
        """Raise InvariantBroken for a job that is counted without a hold; checks some jobs at a time."""
        return self.jobs.check_jobs(nodes)


def kind_of(band: PriorityBand, qos: QosClass, cpu_mcpu: int, memory_bytes: int) -> str:
    """The name under which evictions of a kind of work are kept: equal band, class and amounts."""
    return f"{band.value}.{qos.value}.{cpu_mcpu}.{memory_bytes}"
