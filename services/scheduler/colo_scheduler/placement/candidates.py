"""The nodes that can take a request, best first, without scoring all of them.

One pass of array operations (`filters.py`) finds exactly the nodes that fit, and bounds every sort key from above: the divisions
of scores become products of 32-bit floats, the number of zones is one or at least two. Nodes are then scored exactly, in plain
integers, a few at a time in the order of their bounds; a node is the best as soon as its exact key is not below the next bound.
At 10,000 nodes the pass takes some tens of microseconds, less than keeping any order of the nodes would.
"""

import heapq
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Final, NamedTuple

import numpy as np

from colo_common.events.placement import ReasonCount
from colo_common.model.invalid import InvariantBroken
from colo_common.model.placement import ZoneShare
from colo_scheduler.cluster.cluster import View
from colo_scheduler.cluster.inventory_index import UNLIMITED
from colo_scheduler.cluster.node import BoolArray, Node
from colo_scheduler.cluster.pool import (
    CPU_BITS,
    CPU_MAX,
    RANK_BITS,
    RANK_MAX,
    FloatArray,
    Pool,
    pool_of,
    rank_key,
)
from colo_scheduler.numa.zones import (
    IntArray,
    Part,
    ZoneFree,
    choose_zones,
    cost_of,
    split_in_two,
)
from colo_scheduler.placement.filters import PASSES, SPARSE, judge, rows_in_one_zone
from colo_scheduler.placement.scoring import FitRows, Scoring, Seen, score_rows
from colo_scheduler.requests.request_class import RequestClass

__all__ = ["Candidate", "Candidates", "Ranked", "ranked"]

_FIRST_CHUNK: Final = 8
_CHUNK_MAX: Final = 4_096
# After so many bounds proved too high, all bounds that still matter are replaced by exact keys.
_DISAPPOINTED: Final = 12
# The key of a node without a bound: the node is scored before any other node is compared with it.
_NO_BOUND: Final = 1 << 64
_ONE_ZONE: Final = np.float32(100)


class Ranked(NamedTuple):
    """A node that can take the request: its row, its sort key, and the replica's share of each of its zones."""

    row: int
    key: int
    shares: tuple[ZoneShare, ...]


class ClassContext:
    """The facts all candidates of one decision share: the request, its scorers, and its shares where one zone holds it."""

    __slots__ = ("cpu_mcpu", "memory_bytes", "of_one", "pool", "scoring", "shares")

    def __init__(self, pool: Pool, request: RequestClass, scoring: Scoring) -> None:
        self.pool = pool
        self.cpu_mcpu, self.memory_bytes = request.cpu_mcpu, request.memory_bytes
        self.scoring = scoring
        self.of_one = scoring.of_one
        # By zone: replicas with equal shares use the same tuple.
        self.shares: dict[int, tuple[ZoneShare, ...]] = {}

    def kept(self, rows: Sequence[int]) -> "ClassContext":
        """The same context for scoring these rows later, when the cluster may have changed."""
        scoring = self.scoring.kept(rows)
        if scoring is self.scoring:
            return self
        other = copy(self)
        other.scoring, other.of_one = scoring, scoring.of_one
        return other

    def key_of(self, fit: Seen) -> int:
        """The key that `Candidate.fit` computes."""
        left = fit.left_cpu if fit.left_cpu < CPU_MAX else CPU_MAX
        return (((self.of_one(fit) << CPU_BITS) | left) << RANK_BITS) + fit.rank_key


class Candidate:
    """One node during the decision of a class, in plain integers: its free capacity after `taken` replicas were placed on it.

    `slot` is the zone that holds the request alone, -1 where the zones of `parts` hold it together. `is_stale`: a replica was
    placed on the node since it was scored, and `key` is not below its next score. `room`: how many replicas the node's own rules
    admit. `rank_key`: what the node's key has by its rank (`pool.rank_key`).
    """

    __slots__ = (
        "allocatable_cpu",
        "allocatable_memory",
        "cost",
        "cpu",
        "is_stale",
        "key",
        "left_cpu",
        "left_memory",
        "memory",
        "name",
        "parts",
        "rank_key",
        "room",
        "row",
        "slot",
        "sockets",
        "taken",
        "zone_ids",
    )

    def __init__(self, context: ClassContext, node: Node, of_rank: int, room: int) -> None:
        row = context.pool.rows[node.row]
        self.room = room
        # The name is copied: the node's row may belong to another machine when the score is read later.
        self.name = node.name
        self.sockets = node.sockets
        self.zone_ids = node.zone_ids
        self.row = node.row
        self.rank_key = of_rank
        self.cpu = row.cpu
        self.memory = row.memory
        self.allocatable_cpu = row.whole_cpu
        self.allocatable_memory = row.whole_memory
        self.left_cpu = sum(row.cpu) - context.cpu_mcpu
        self.left_memory = sum(row.memory) - context.memory_bytes
        self.parts: tuple[Part, ...] = ()
        self.taken = 0
        self.is_stale = False

    def fit(self, context: ClassContext) -> bool:
        """Choose zones and score; False when the request does not fit (any more)."""
        if self.left_cpu < 0 or self.left_memory < 0:
            return False
        wanted_cpu, wanted_memory, free_memory = context.cpu_mcpu, context.memory_bytes, self.memory
        best, best_cpu, best_memory = -1, -1, -1
        for slot, cpu in enumerate(self.cpu):
            if cpu >= wanted_cpu and cpu >= best_cpu:
                memory = free_memory[slot]
                if memory >= wanted_memory and (cpu > best_cpu or memory > best_memory):
                    best, best_cpu, best_memory = slot, cpu, memory
        self.slot = best
        if best >= 0:
            self.cost = 1
        elif not self._split(wanted_cpu, wanted_memory):
            return False
        left = self.left_cpu if self.left_cpu < CPU_MAX else CPU_MAX
        self.key = (((context.of_one(self) << CPU_BITS) | left) << RANK_BITS) + self.rank_key
        return True

    def _split(self, wanted_cpu: int, wanted_memory: int) -> bool:
        """Choose several zones; False when all zones together do not hold the request."""
        sockets = self.sockets
        if len(sockets) == 2:
            (cpu, other_cpu), (memory, other_memory) = self.cpu[:2], self.memory[:2]
            parts = split_in_two(wanted_cpu, wanted_memory, (cpu, memory), (other_cpu, other_memory))
            self.cost = 2 if sockets[0] == sockets[1] else 4
        else:
            zones = [ZoneFree(slot, on, self.cpu[slot], self.memory[slot]) for slot, on in enumerate(sockets)]
            parts = choose_zones(wanted_cpu, wanted_memory, zones)
            self.cost = cost_of(parts, zones) if parts else 0
        self.parts = parts or ()
        return parts is not None

    def take(self, context: ClassContext) -> tuple[ZoneShare, ...]:
        """Place one replica as the last `fit` found; returns its shares by zone. The pool is not changed."""
        if self.taken == 0:
            self.cpu, self.memory = self.cpu[:], self.memory[:]
        self.taken += 1
        self.left_cpu -= context.cpu_mcpu
        self.left_memory -= context.memory_bytes
        if self.slot >= 0:
            self.cpu[self.slot] -= context.cpu_mcpu
            self.memory[self.slot] -= context.memory_bytes
        else:
            for slot, cpu_mcpu, memory_bytes in self.parts:
                self.cpu[slot] -= cpu_mcpu
                self.memory[slot] -= memory_bytes
        return self.shares(context)

    def shares(self, context: ClassContext) -> tuple[ZoneShare, ...]:
        """The shares that the last `fit` found, by zone."""
        ids = self.zone_ids
        if self.slot < 0:
            return tuple([ZoneShare(zone=ids[slot], cpu_mcpu=cpu, memory_bytes=mem) for slot, cpu, mem in self.parts])
        zone = ids[self.slot]
        shares = context.shares.get(zone)
        if shares is None:
            share = ZoneShare(zone=zone, cpu_mcpu=context.cpu_mcpu, memory_bytes=context.memory_bytes)
            shares = context.shares[zone] = (share,)
        return shares

    def seen(self) -> Seen:
        """A snapshot of the node's numbers, for reading its score later."""
        return Seen(
            self.name,
            self.row,
            self.taken,
            self.cost,
            self.left_cpu,
            self.left_memory,
            self.allocatable_cpu,
            self.allocatable_memory,
            self.rank_key,
        )

    def before(self, context: ClassContext, taken: Sequence[tuple[ZoneShare, ...]]) -> "Candidate":
        """The node as it was before all of its replicas, which hold these shares, were placed; `fit` has to be called again."""
        other = copy(self)
        other.cpu, other.memory = self.cpu[:], self.memory[:]
        for shares in taken:
            for share in shares:
                slot = self.zone_ids.index(share.zone)
                other.cpu[slot] += share.cpu_mcpu
                other.memory[slot] += share.memory_bytes
        other.left_cpu += len(taken) * context.cpu_mcpu
        other.left_memory += len(taken) * context.memory_bytes
        other.taken = 0
        return other


class Candidates:
    """The nodes of a view that fit a request class, in the order of their sort keys; the rows `without` are left out.

    `counts`: how many nodes each reason refuses, exact. `chosen`: the nodes on which replicas were placed, in the order of their
    first replica. The view must not change while candidates are taken from here.
    """

    def __init__(self, view: View, request: RequestClass, scoring: Scoring, without: Sequence[int] = ()) -> None:
        self._without = without
        self._view = view
        self._request = request
        self._scoring = scoring
        self._pool = view.pool(pool_of(request.band))
        self.context = ClassContext(self._pool, request, scoring)
        self._is_limited = view.limits(request)
        self._rows: IntArray | None = None
        self._bounds: IntArray = np.zeros(0, dtype=np.int64)
        # The amount by which every bound is too high. Subtracting it only from the few bounds that are read is quicker.
        self._over = request.cpu_mcpu << RANK_BITS
        self._left = 0
        self._too_high = 0
        self._rest = 1 << 63
        self._chunk = _FIRST_CHUNK
        self._ahead: list[tuple[int, int]] = []
        self._heap: list[tuple[int, int]] = []
        self._exact: dict[int, Candidate] = {}
        self.chosen: list[Candidate] = []
        self.counts: tuple[ReasonCount, ...] = ()
        self._filter()

    # ---- the nodes that fit, and the bounds of their keys

    def _filter(self) -> None:
        if self._view.node_count == 0:
            return
        verdicts = judge(self._view, self._request)
        self.counts, self._left = verdicts.counts, verdicts.numbers[PASSES]
        fits = verdicts.passing
        if self._without:
            fits = fits.copy()
            fits[list(self._without)] = False
            self._left = int(np.count_nonzero(fits))
        if self._left:
            self._bound(fits, verdicts.inquiry.in_one_zone)

    def _bound(self, fits: BoolArray, in_one_zone: BoolArray | None) -> None:
        """Bound the keys of the rows that fit. `in_one_zone`: the rows that one zone holds, None where that is not known yet."""
        if self._left * SPARSE < fits.size:
            self._rows = np.flatnonzero(fits)
        rows = slice(0, fits.size) if self._rows is None else self._rows
        single = rows_in_one_zone(self._pool, self._request, rows) if in_one_zone is None else in_one_zone[rows]
        zone_score: FloatArray | np.float32 = _ONE_ZONE
        if int(np.count_nonzero(single if self._rows is not None else single & fits)) < self._left:
            # No selection by mask here and below: the passing rows are random, so branch prediction fails.
            alone = single.astype(np.float32)
            alone *= _ONE_ZONE
            zone_score = np.maximum(alone, self._view.facts.split_score[rows], out=alone)
        bounds = bounds_of(self._pool, self._request, self._scoring, rows, zone_score)
        if self._left < bounds.size:
            # Rows that do not fit stay below all others, each at its own key, because many equal numbers are slow to partition.
            sign = (~fits).astype(np.int64)
            sign <<= 63
            bounds |= sign
        self._bounds = bounds

    # ---- in order

    def expect(self, count: int) -> None:
        """At least `count` candidates will be requested: score no fewer at a time."""
        self._chunk = min(max(_FIRST_CHUNK, count + count // 4), _CHUNK_MAX)

    def best(self) -> Candidate | None:
        """The candidate with the highest current key; None when no node fits any more."""
        heap = self._heap
        while True:
            top = -heap[0][0] if heap else -1
            if top == _NO_BOUND:
                self._score_again(self._exact[heap[0][1]])
                continue
            if self._ahead and self._ahead[-1][0] > top:
                heapq.heappush(heap, self._scored())
            elif self._left and self._rest > top:
                self._look_further(top)
            elif not heap:
                return None
            elif (candidate := self._exact[heap[0][1]]).is_stale:
                self._score_again(candidate)
            else:
                return candidate

    def _scored(self) -> tuple[int, int]:
        """Score the next candidate ahead; returns its entry for the heap."""
        bound, row = self._ahead.pop()
        context = self.context
        room = self._view.room(row, self._request) if self._is_limited else UNLIMITED
        # The last bits of a bound are those of the key.
        candidate = Candidate(context, self._view.nodes[row], rank_key(RANK_MAX - (bound & RANK_MAX)), room)
        if not candidate.fit(context):
            raise InvariantBroken("a node passed the filters and cannot hold the request", node=candidate.name)
        self._exact[row] = candidate
        self._too_high += candidate.key < bound
        return -candidate.key, row

    def _score_ahead(self, count: int) -> None:
        """Score the first candidates ahead, at most `count`: a caller that requests the best `count` needs all of them scored."""
        self._heap += [self._scored() for _ in range(min(count, len(self._ahead)))]
        heapq.heapify(self._heap)

    def take(self) -> tuple[ZoneShare, ...]:
        """Place a replica on the best candidate; the candidate is scored again before the next one is returned."""
        candidate = self._exact[self._heap[0][1]]
        shares = candidate.take(self.context)
        if candidate.taken == 1:
            self.chosen.append(candidate)
        if candidate.taken >= candidate.room:
            heapq.heappop(self._heap)
            return shares
        if self._scoring.may_rise or candidate.left_cpu + self._request.cpu_mcpu >= CPU_MAX:
            candidate.key = _NO_BOUND
        elif candidate.left_cpu < 0:
            heapq.heappop(self._heap)
            return shares
        else:
            # No score rises, and less CPU is left. Most nodes are not the best again until other nodes were chosen.
            candidate.key -= self._request.cpu_mcpu << RANK_BITS
        candidate.is_stale = True
        heapq.heapreplace(self._heap, (-candidate.key, candidate.row))
        return shares

    def _score_again(self, candidate: Candidate) -> None:
        candidate.is_stale = False
        if candidate.fit(self.context):
            heapq.heapreplace(self._heap, (-candidate.key, candidate.row))
        else:
            heapq.heappop(self._heap)

    def skip(self) -> None:
        """Leave the best candidate out from now on."""
        heapq.heappop(self._heap)

    def top(self, count: int) -> list[Candidate]:
        """The best candidates with their current keys, at most `count`. They are not skipped."""
        heap = self._heap
        if not heap and self._left:
            self._look_further(-1)
            self._score_ahead(count)
        found: list[tuple[int, int]] = []
        while len(found) < count and self.best() is not None:
            found.append(heapq.heappop(heap))
        heap += found
        heapq.heapify(heap)
        return [self._exact[row] for _, row in found]

    def others(self, count: int) -> list[Candidate]:
        """The best of the scored candidates that hold no new replica, at most `count`."""
        exact = self._exact
        untaken = [entry for entry in self._heap if not exact[entry[1]].taken]
        return [exact[row] for _, row in heapq.nsmallest(count, untaken)]

    def above(self) -> int:
        """An upper bound of the keys of all nodes that were not scored."""
        return max(self._ahead[-1][0] if self._ahead else -1, self._rest if self._left else -1)

    def check(self) -> None:
        """Raise InvariantBroken when the bound of a node that fits is below its key. Call it before any replica is placed."""
        at = np.flatnonzero(self._bounds >= 0)
        rows = at if self._rows is None else self._rows[at]
        if at.size != self._left:
            raise InvariantBroken("not every node that fits has a bound", fitting=self._left, bounds=int(at.size))
        keys = score_rows(self._view, self._request, rows, self._scoring)
        if at.size and (self._bounds[at] - self._over < keys).any():
            raise InvariantBroken("a bound is below the key it bounds", request=self._request)

    def _look_further(self, top: int) -> None:
        """Move the rows with the highest bounds to the rows ahead, the highest last. `top`: the best exact key so far."""
        bounds = self._bounds
        if self._too_high >= _DISAPPOINTED:
            self._too_high = 0
            at = np.flatnonzero(bounds > top + self._over)
            rows = at if self._rows is None else self._rows[at]
            bounds[at] = score_rows(self._view, self._request, rows, self._scoring) + self._over
        size = min(self._chunk, self._left)
        self._chunk = min(self._chunk * 2, _CHUNK_MAX)
        if size < bounds.size:
            least = int(np.partition(bounds, bounds.size - size)[bounds.size - size])
            at = np.flatnonzero(bounds >= least)
            self._rest = least - self._over
        else:
            at = np.arange(size, dtype=np.int64)
        rows = at if self._rows is None else self._rows[at]
        self._ahead.extend(zip((bounds[at] - self._over).tolist(), rows.tolist(), strict=True))
        self._ahead.sort()
        self._left -= size
        bounds[at] = -1


def bounds_of(
    pool: Pool,
    request: RequestClass,
    scoring: Scoring,
    rows: "slice | IntArray",
    zone_score: FloatArray | np.float32,
) -> IntArray:
    """The bounds of the keys of these rows, if the request fits there; each is too high by the CPU that the request asks for."""
    bounds = scoring.above(FitRows(pool, rows, request, _no_cost), zone_score)
    bounds <<= CPU_BITS + RANK_BITS
    # Not cut as the key is: where CPU exceeds its bits the bound only grows.
    bounds += pool.tie[rows]
    return bounds


def _no_cost() -> IntArray:
    """Raises always: bounds are computed without the number of zones, so reading it is a mistake."""
    raise InvariantBroken("a bound was asked how many zones are taken")


def ranked(candidates: Candidates) -> Iterator[Ranked]:
    """Every node that can take the request, best first; each is computed on demand, and skipped when the next one is requested.

    The view must not change during the iteration. No capacity is taken from it.
    """
    while (candidate := candidates.best()) is not None:
        yield Ranked(candidate.row, candidate.key, candidate.shares(candidates.context))
        candidates.skip()
