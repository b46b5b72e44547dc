"""Finds the victims that would have to leave a node so that a replica fits there: the least important, and as few as possible.

Only replicas of less importance than the request count: a lower band, or the same band and a lower priority. On each node all of
them are removed; where the request fits then, they are returned one after the other, the most important first, as long as the
request still fits. The best node is the one whose most important victim is least important; then fewer victims; then the lower sum
of priorities; then the node's rank.

The least important level of the holds (`PreemptibleIndex`) is passed first: a few array operations find the nodes on which the
removal of the levels up to it could be enough, and the least number of victims there. Only these nodes are searched, in that order,
and no node that could not be better than the best one found, so that the result is that of searching every node. After NODES_MOST
nodes the best of them is the result.

No victim: a replica that blocks the request only by the limit of batch replicas, or by a threshold of load.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from colo_common.model.placement import Attempt, Placement, ZoneShare
from colo_scheduler.cluster.cluster import View
from colo_scheduler.cluster.holding import holding_of
from colo_scheduler.cluster.inventory import NodeInventory
from colo_scheduler.cluster.node import BoolArray, costs_of
from colo_scheduler.cluster.pool import RANK_BITS, RANK_MAX, Importance, ImportanceLevel, importance_of, pool_of
from colo_scheduler.numa.zones import IntArray, Part, ZoneFree, choose_zones
from colo_scheduler.placement.filters import open_to
from colo_scheduler.placement.fit import NodeFit, Site, fit_node, fit_node_exactly
from colo_scheduler.requests.request_class import RequestClass

__all__ = ["NODES_MOST", "VictimSearch", "Victims", "importance", "take_place_of", "victims_on"]

NODES_MOST: Final = 500
"""The most nodes that are searched for one replica."""

# The cost of a pass over the nodes, in holds read: about as long as it takes.
_ROWS_FOR_ONE: Final = 250
_LOOK_COST: Final = 5
_UNPRICED_PCT: Final = 100
_COUNT_MOST: Final = 1 << 20
# A test of all resources takes about as long as so many tests of CPU and memory.
_CLOSE_COST: Final = 60
_NOBODY: Final = np.zeros(0, dtype=np.int64)


class Victims(NamedTuple):
    """The row of a node, its victims (least important first), and the parts of its zones that the request then takes."""

    row: int
    leaving: tuple[Placement, ...]
    parts: tuple[Part, ...]


class _Order(NamedTuple):
    """The order of nodes: the most important victim, the number of victims, the sum of their priorities, the node's rank."""

    highest: Importance
    leaving: int
    priorities: int
    rank: int


def importance(placement: Placement) -> Importance:
    """Band, then priority: a higher value is more important."""
    return importance_of(placement.band, placement.priority)


class WhatIf:
    """One node of a view as it would be without some of its replicas: whether the request fits there then.

    It is an independent copy: removals here change nothing else. `cost`: the number of tests done, in tests of CPU and memory.
    """

    def __init__(self, view: View, row: int, request: RequestClass) -> None:
        self._request = request
        self._node = view.nodes[row]
        self._pool = pool_of(request.band)
        self._row = view.pools[self._pool].rows[row].copy()
        self._inventory_index = view.inventory_index.of(row)
        self._is_close = view.needs_search(request)
        self._inventory: NodeInventory | None = None
        self._own_cpus = int(view.inventory_index.own_cpus[row])
        self._free_devices = {
            asked.kind: int(free[row]) if (free := view.inventory_index.free_devices(asked.kind)) is not None else 0
            for asked in request.place.devices
        }
        self._away: dict[Attempt, None] = {}
        self._dropped: dict[Attempt, None] = {}
        self.cost = 0

    def leave(self, placement: Placement) -> None:
        """Remove a replica."""
        self._move(placement, 1)
        self._away[placement.replica, placement.attempt] = None

    def stay(self, placement: Placement) -> None:
        """Restore a removed replica."""
        self._move(placement, -1)
        del self._away[placement.replica, placement.attempt]

    def _move(self, placement: Placement, sign: int) -> None:
        holdings = self._inventory_index.holdings if self._inventory_index is not None else {}
        holding = holdings.get((placement.replica, placement.attempt)) if holdings else None
        for share in costs_of(self._node, self._pool, placement.zones, holding):
            slot = self._node.slot(share.zone)
            self._row.cpu[slot] += sign * share.cpu_mcpu
            self._row.memory[slot] += sign * share.memory_bytes

    def parts(self) -> tuple[Part, ...] | None:
        """The parts of the zones in which the request fits now, None where it does not fit.

        For a request for more than amounts the zones follow from the amounts alone, and all its other resources are free.
        """
        self.cost += 1
        request, cpu, memory = self._request, self._row.cpu, self._row.memory
        if sum(cpu) < request.cpu_mcpu or sum(memory) < request.memory_bytes:
            return None
        zones = [ZoneFree(slot, socket, cpu[slot], memory[slot]) for slot, socket in enumerate(self._node.sockets)]
        parts = choose_zones(request.cpu_mcpu, request.memory_bytes, zones)
        return parts if parts is None or not self._is_close or self._fits_closely() else None

    def _fits_closely(self) -> bool:
        if self._inventory_index is None or not self._could_fit():
            return False
        inventory = self._brought_up(self._inventory_index)
        self.cost += _CLOSE_COST
        site = Site(self._row, self._node.zone_ids, self._node.sockets, inventory)
        return isinstance(fit_node(site, self._request), NodeFit)

    def _could_fit(self) -> bool:
        """Whether enough CPUs by number and devices are free or held by removed replicas: necessary, and quickly tested."""
        request, holdings = self._request, self._inventory_index.holdings if self._inventory_index is not None else {}
        left = [holdings[attempt] for attempt in self._away if attempt in holdings]
        cpus = 0
        for holding in left:
            cpus |= holding.cpus
        if self._own_cpus + cpus.bit_count() < request.own_cpus:
            return False
        for asked in request.place.devices:
            held = {share.device for holding in left for share in holding.devices if share.kind == asked.kind}
            if self._free_devices[asked.kind] + len(held) < max(1, asked.count):
                return False
        return True

    def _brought_up(self, inventory_index: NodeInventory) -> NodeInventory:
        """A copy of the inventory without the removed replicas."""
        if self._inventory is None:
            self.cost += _CLOSE_COST
            self._inventory = inventory_index.copy()
        for attempt in [attempt for attempt in self._dropped if attempt not in self._away]:
            del self._dropped[attempt]
            self._inventory.hold(attempt, inventory_index.holdings[attempt])
        for attempt in self._away:
            if attempt in inventory_index.holdings and attempt not in self._dropped:
                self._dropped[attempt] = None
                self._inventory.drop(attempt)
        return self._inventory


class VictimSearch:
    """One search, in steps of bounded size. `found` is the result once it `is_done`; None: no node would do.

    Every step is given the current view. `deleted`: attempts that left the node already. A row must be the same node in every step.
    Other changes between steps mix several moments in the result, so the caller tests the result again (`victims_on`).
    """

    def __init__(
        self,
        view: View,
        request: RequestClass,
        placements: Mapping[Attempt, Placement],
        deleted: frozenset[Attempt] = frozenset(),
    ) -> None:
        self._request = request
        self._placements = placements
        self._deleted = deleted
        self._best: tuple[_Order, Victims] | None = None
        self._looks = 0
        # Nodes of the level passed last, the first node last: the least number of victims and the rank in one key, and the row.
        self._queue: tuple[IntArray, IntArray] = (_NOBODY, _NOBODY)
        self._queued = 0
        self._least: Importance = (0, 0)
        held = view.pools[pool_of(request.band)].preemptible
        self._levels = list(reversed(held.below(_own(request))))
        self._price_pct = held.price_pct
        self._largest = max(1, held.largest_mcpu * held.price_pct // 100), max(1, held.largest_bytes)
        self.is_done = not self._levels
        if not self.is_done:
            self._begin(view)

    @property
    def found(self) -> Victims | None:
        """The best node so far and its victims."""
        return None if self._best is None else self._best[1]

    def step(self, view: View, budget: int) -> int:
        """Continue until about `budget` holds were read, or the search is done; returns the number of holds read."""
        spent = 0
        while spent < budget and not self.is_done:
            spent += self._look(view) if self._queued else self._pass(view)
            if not self._queued and not self._levels:
                self.is_done = True
        return spent

    # ---- all nodes at once

    def _begin(self, view: View) -> None:
        request = self._request
        rows = np.flatnonzero(_open_to(view, request))
        pool = view.pool(pool_of(request.band))
        self._rows: IntArray = rows
        # The shortage while all replicas stay, and the shortage once the passed levels have left.
        self._short_cpu: IntArray = request.cpu_mcpu - pool.node_free_cpu[rows]
        self._short_memory: IntArray = request.memory_bytes - pool.node_free_memory[rows]
        self._rest_cpu, self._rest_memory = self._short_cpu.copy(), self._short_memory.copy()
        self._has_held: BoolArray = np.zeros(rows.size, dtype=np.bool_)
        self._enough: BoolArray | None = None

    def _pass(self, view: View) -> int:
        """Queue the nodes where the removal of the next level and those below it could be enough; returns the cost of the pass."""
        is_hopeless = bool(self._levels and self._best and self._best[0].highest < self._levels[-1].least)
        if not self._levels or self._looks >= NODES_MOST or not self._rows.size or is_hopeless:
            self.is_done = True
            return 1
        self._keep_others()
        level = self._levels.pop()
        self._least = level.least
        enough = self._leave(level)
        at = np.flatnonzero(enough)
        if at.size:
            self._enough = enough
            self._enqueue(view, at)
        return 1 + self._rows.size // _ROWS_FOR_ONE

    def _keep_others(self) -> None:
        """Drop the nodes that were queued from the arrays; often this is not needed."""
        if self._enough is None:
            return
        others, self._enough = ~self._enough, None
        self._rows, self._has_held = self._rows[others], self._has_held[others]
        self._short_cpu, self._short_memory = self._short_cpu[others], self._short_memory[others]
        self._rest_cpu, self._rest_memory = self._rest_cpu[others], self._rest_memory[others]

    def _leave(self, level: ImportanceLevel) -> BoolArray:
        cpu, memory = level.cpu[self._rows], level.memory[self._rows]
        self._has_held |= (cpu > 0) | (memory > 0)
        # Prices are rounded down for each hold; the price of their sum is no lower.
        self._rest_cpu -= cpu if self._price_pct == _UNPRICED_PCT else cpu * self._price_pct // 100
        self._rest_memory -= memory
        enough: BoolArray = (self._rest_cpu <= 0) & (self._rest_memory <= 0) & self._has_held
        return enough

    def _enqueue(self, view: View, at: IntArray) -> None:
        """Queue nodes by their least number of victims, then by rank; no more of them than may still be searched."""
        rows = self._rows[at]
        largest_mcpu, largest_bytes = self._largest
        counts = np.maximum(-(-self._short_cpu[at] // largest_mcpu), -(-self._short_memory[at] // largest_bytes))
        keys = (np.minimum(np.maximum(counts, 1), _COUNT_MOST) << RANK_BITS) + view.facts.rank[rows]
        most = NODES_MOST - self._looks
        if keys.size > most:
            first = np.argpartition(keys, most - 1)[:most]
            keys, rows = keys[first], rows[first]
        order = np.argsort(-keys)
        self._queue, self._queued = (keys[order], rows[order]), keys.size

    # ---- one node

    def _look(self, view: View) -> int:
        """Search the next node; returns the cost."""
        self._queued -= 1
        key, row = int(self._queue[0][self._queued]), int(self._queue[1][self._queued])
        best = self._best[0] if self._best is not None else None
        if best is not None and not self._could_be_better(best, key >> RANK_BITS, key & RANK_MAX):
            self._queued = 0
            return 1
        self._looks += 1
        lesser = _lesser_on(view, self._request, self._placements, row, self._deleted)
        what_if = WhatIf(view, row, self._request)
        victims = _fewest(what_if, row, lesser, best)
        if victims is not None:
            order = _order_of(view, victims)
            if best is None or order < best:
                self._best = (order, victims)
        return _LOOK_COST + len(view.nodes[row].holds) + what_if.cost

    def _could_be_better(self, best: _Order, count: int, rank: int) -> bool:
        """Whether a node of the level, with at least so many victims and of this rank, may come before the best one."""
        if best.highest != self._least:
            return best.highest > self._least
        # Two single victims of one importance have the same priority.
        return rank < best.rank if count == best.leaving == 1 else count <= best.leaving


def victims_on(view: View, request: RequestClass, placements: Mapping[Attempt, Placement], row: int) -> Victims | None:
    """The victims on this node as it is now; None where their removal is not enough, or where no removal is needed."""
    if not _open_to(view, request)[row]:
        return None
    return _fewest(WhatIf(view, row, request), row, _lesser_on(view, request, placements, row), None)


def take_place_of(view: View, request: RequestClass, victims: Victims, attempt: Attempt) -> bool:
    """Remove the victims from a trial view and hold their place; False, and nothing changes, when the place is too small."""
    name, row, node = pool_of(request.band), victims.row, view.nodes[victims.row]
    for placement in victims.leaving:
        view.leave(name, row, placement.zones, (placement.replica, placement.attempt))
    if not view.needs_search(request):
        shares = tuple(
            ZoneShare(zone=node.zone_ids[part.slot], cpu_mcpu=part.cpu_mcpu, memory_bytes=part.memory_bytes)
            for part in victims.parts
        )
        view.take(name, row, shares, attempt)
        return True
    found = fit_node_exactly(view, row, request)
    if isinstance(found, NodeFit):
        view.take(name, row, found.shares, attempt, found.holding)
        return True
    for placement in victims.leaving:
        held = holding_of(placement)
        view.take(name, row, placement.zones, (placement.replica, placement.attempt), held, is_choice=False)
    return False


def _own(request: RequestClass) -> Importance:
    return importance_of(request.band, request.priority)


def _open_to(view: View, request: RequestClass) -> BoolArray:
    """The rows that may take the request if they have free capacity for it: bool, shape (count,)."""
    passing = open_to(view, request).passing
    return passing & view.inventory_index.agrees[: view.count] if view.needs_search(request) else passing


def _order_of(view: View, victims: Victims) -> _Order:
    return _Order(
        max(importance(placement) for placement in victims.leaving),
        len(victims.leaving),
        sum(placement.priority for placement in victims.leaving),
        int(view.facts.rank[victims.row]),
    )


def _lesser_on(
    view: View,
    request: RequestClass,
    placements: Mapping[Attempt, Placement],
    row: int,
    deleted: frozenset[Attempt] = frozenset(),
) -> list[Placement]:
    """The replicas on a node that are less important than the request and hold from the same pool."""
    name, own, node = pool_of(request.band), _own(request), view.nodes[row]
    return [
        placement
        for attempt in node.holds
        if attempt not in deleted
        and (placement := placements.get(attempt)) is not None
        and importance(placement) < own
        and placement.node == node.name
        and pool_of(placement.band) is name
    ]


def _fewest(what_if: WhatIf, row: int, lesser: list[Placement], best: _Order | None) -> Victims | None:
    """Fewest victims on one node; None when all of them are not enough, when none is needed, or when `best` is better."""
    if not lesser:
        return None
    for placement in lesser:
        what_if.leave(placement)
    parts = what_if.parts()
    if parts is None:
        return None
    leaving: list[Placement] = []
    # The most important first; of equals the larger, so that fewer have to leave.
    ordered = sorted(lesser, key=lambda p: (importance(p), p.cpu_mcpu, p.memory_bytes, p.replica), reverse=True)
    # Where many replicas can stay they need not be tested one by one.
    groups = [ordered]
    while groups:
        group = groups.pop()
        for placement in group:
            what_if.stay(placement)
        now = what_if.parts()
        if now is not None:
            parts = now
            continue
        for placement in group:
            what_if.leave(placement)
        if len(group) > 1:
            half = len(group) // 2
            groups += [group[half:], group[:half]]
            continue
        leaving += group
        if best is not None and (importance(leaving[0]), len(leaving)) > (best.highest, best.leaving):
            return None
    return Victims(row, tuple(reversed(leaving)), parts) if leaving else None
