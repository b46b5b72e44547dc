"""Checks the invariants of the scheduler's state: a small state at once, a large state piece by piece, in turn.

A piece is some node rows with all their holds, some placement requests of the queue, or some reservations. Each sum over the whole
state is also kept by row, or adds few numbers a row: rows are compared piece by piece, and sums as a whole.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from colo_common.model.audit import Audit
from colo_common.model.invalid import InvariantBroken
from colo_common.model.placement import Attempt, ZoneShare
from colo_scheduler.cluster.cluster import Cluster
from colo_scheduler.cluster.pool import Importance, PoolName, pool_of
from colo_scheduler.commit.commit import importance_of_work
from colo_scheduler.commit.held import HeldAttempt
from colo_scheduler.requests.queue import RequestQueue
from colo_scheduler.reservations.lifecycle import ReservationPhase
from colo_scheduler.reservations.reservation import attempt_of
from colo_scheduler.reservations.snapshot import ReservationSnapshot

__all__ = ["CHECKED_AT_ONCE", "StateAudit"]

CHECKED_AT_ONCE: Final = 600
"""The cost of the checks in one call, in holds: 2 to 4 ms."""
# The cost of checking other records, in holds. A node with CPUs or devices by number costs more, for each of its holdings.
_NODE: Final = 4
_HOLDING: Final = 6
_RESERVATION: Final = 4
_ROWS_MOST: Final = 32
_PIECE: Final = 150
_SUMMED: Final = 20_000
"""The number of nodes or reservations that are summed up in the time of one piece."""


class StateAudit:
    """Checks that all parts of the state agree. `held`: every held place, by attempt."""

    def __init__(
        self, cluster: Cluster, queue: RequestQueue, held: Mapping[Attempt, HeldAttempt], reserved: ReservationSnapshot
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._held = held
        self._reserved = reserved
        self._audit = Audit(self._pieces, CHECKED_AT_ONCE)

    def check(self) -> None:
        """Raise InvariantBroken unless free is allocatable less held, no attempt is held twice, and no held attempt waits."""
        nodes = _NODE * len(self._cluster.nodes)
        self._audit.check(nodes + len(self._held) + len(self._queue) + _RESERVATION * len(self._reserved.book))

    def _pieces(self) -> Iterator[int]:
        start, nodes = 0, self._cluster.nodes
        self._check_sums()
        yield _PIECE * (1 + len(nodes) // _SUMMED)
        while start < len(nodes):
            stop, cost = start, 0
            while stop < len(nodes) and stop - start < _ROWS_MOST and cost < _PIECE:
                cost += _NODE + len(nodes[stop].holds) + _HOLDING * len(nodes[stop].holdings)
                stop += 1
            self._cluster.check_rows(range(start, stop))
            self._check_holds(range(start, stop))
            yield cost
            start = stop
        yield from self._cluster.signals.check_jobs(nodes)
        yield from self._queue.pieces()
        yield from self._reservations()

    def _check_holds(self, rows: range) -> None:
        """Each hold of these nodes is in `held` with this node, these shares and its importance, and its attempt does not wait."""
        expected: dict[PoolName, list[tuple[int, Importance, tuple[ZoneShare, ...]]]] = {name: [] for name in PoolName}
        for node in self._cluster.nodes[rows.start : rows.stop]:
            for attempt, shares in node.holds.items():
                held = self._held.get(attempt)
                place = held.placement if held is not None else None
                if place is None or place.node != node.name or place.zones != shares:
                    raise InvariantBroken("a node holds what is not held there", node=node.name, attempt=attempt)
                if attempt in self._queue:
                    raise InvariantBroken("an attempt both waits and holds a place", node=node.name, attempt=attempt)
                importance = importance_of_work(place)
                if importance is not None:
                    expected[pool_of(place.band)].append((node.row, importance, shares))
        for name, pool in self._cluster.pools.items():
            pool.preemptible.check_rows(rows, expected[name])

    def _check_sums(self) -> None:
        """Nodes have as many holds as `held`; with `_check_holds` this proves that each hold is in exactly one node, its own."""
        in_nodes = sum([len(node.holds) for node in self._cluster.nodes])
        if in_nodes != len(self._held):
            raise InvariantBroken("a hold is not in its node", in_nodes=in_nodes, held=len(self._held))
        for pool in self._cluster.pools.values():
            pool.preemptible.check_sums()

    def _reservations(self) -> Iterator[int]:
        """The book agrees with itself, and each reservation holds exactly what its owners leave."""
        book = self._reserved.book
        book.check_sums()
        names = book.names()
        yield 1 + _PIECE * len(names) // _SUMMED
        cost = 0
        for name in names:
            cost += _RESERVATION + book.check_one(name)
            found = book.find(name)
            if found is not None and found.phase is ReservationPhase.AVAILABLE:
                held = self._held.get(attempt_of(found))
                if held is None or held.placement != self._reserved.placement(name):
                    raise InvariantBroken("a reservation does not hold what its owners leave", reservation=name)
            if cost >= _PIECE:
                yield cost
                cost = 0
        yield 1 + cost
