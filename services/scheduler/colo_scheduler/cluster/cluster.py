"""The scheduler's state of every node: its facts, its holds, and its free capacity, as rows of integer arrays.

A node is a row, a zone is a column; rows of nodes with fewer zones than the widest are padded with columns of zeros. A node keeps
its row for as long as it is known. The row of a deleted node is vacant, no filter passes it, and the next new node gets the lowest
vacant row. A hold takes from one of three pools (`pool.py`): held is the ledger's sum plus the decisions here that are not yet
committed. A decision sees the cluster as a `View`: the rows of all nodes at one moment, and the amounts that a trial takes of them.
"""

import heapq
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

import numpy as np

from colo_common.events.fact import is_older
from colo_common.events.node import AllocatableChanged, FreshnessChanged, NodeTopologyReported
from colo_common.model.freshness import Freshness
from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_common.model.placement import Attempt, ZoneShare
from colo_common.model.qos import QosClass
from colo_common.model.restriction import Restrictions
from colo_scheduler.cluster.arrival import is_overtaken
from colo_scheduler.cluster.batch_capacity import BatchCapacity
from colo_scheduler.cluster.holding import Holding
from colo_scheduler.cluster.inventory import NodeInventory, batch_capacity, reserved_shares
from colo_scheduler.cluster.inventory_index import UNLIMITED, InventoryIndex
from colo_scheduler.cluster.node import Derived, Node, NodeFacts, costs_of, gives_more, gives_more_mid, move_shares
from colo_scheduler.cluster.pool import AWAY_RANK, Importance, Pool, PoolName
from colo_scheduler.cluster.promise import Promised, batch_of, free_of, mid_of, prod_of
from colo_scheduler.cluster.restricted import restricted_bits
from colo_scheduler.cluster.signals import NodeSignals
from colo_scheduler.cluster.unmanaged import claimed_of, leaves_more, room_of, shared_cpus_of
from colo_scheduler.numa.zones import NO_SOCKET, IntArray, split_cost
from colo_scheduler.requests.request_class import RequestClass
from colo_scheduler.scorers.placement import fewest_zones

__all__ = ["Cluster", "MAX_NODES", "MAX_ZONES", "View"]


_NOBODY: Final = ("", 0)


@dataclass(frozen=True, slots=True)
class View:
    """The cluster at the moment of one decision. Nothing in it is a copy: later holds in the cluster are visible in the view.

    `derived`: caches of the layers above; each trial has its own. Caches derived from `facts` alone are in `facts.derived`.
    `trial_changes`: row -> how often this trial changed the row's holds beside amounts; a view of the cluster has none. `count`:
    the number of rows, vacant rows included; `node_count`: the number of nodes. A trial (`Cluster.trial`) has pools of its own
    instead: a hold in a trial is held nowhere else. Arrays of shape (count,).
    """

    now_ms: int
    nodes: list[Node]
    rows: dict[str, int]
    count: int
    node_count: int
    facts: NodeFacts
    pools: dict[PoolName, Pool]
    inventory_index: InventoryIndex
    signals: NodeSignals
    derived: Derived
    trial_changes: dict[int, int]

    def pool(self, name: PoolName) -> Pool:
        """The pool with its arrays up to date."""
        pool = self.pools[name]
        pool.sync()
        return pool

    def needs_search(self, request: RequestClass) -> bool:
        """Whether nodes are fitted exactly, one by one: because of the request, or because of a node's rules for online work."""
        return request.is_detailed or (request.is_prod and self.inventory_index.strict > 0)

    def limits(self, request: RequestClass) -> bool:
        """Whether some node may admit fewer replicas of the kind than fit there."""
        return (self.inventory_index.limited > 0 and not request.is_prod) or self.signals.judges(request)

    def room(self, row: int, request: RequestClass) -> int:
        """How many more replicas of the kind a node's rules and its load admit."""
        most = (
            UNLIMITED
            if request.is_prod or not self.inventory_index.limited
            else int(self.inventory_index.batch_left[row])
        )
        if self.signals.judges(request):
            return self.signals.loads.newcomers(row, request, self.now_ms, most)
        return most

    def take(
        self,
        name: PoolName,
        row: int,
        shares: tuple[ZoneShare, ...],
        attempt: Attempt = _NOBODY,
        holding: Holding | None = None,
        *,
        is_choice: bool = True,
    ) -> None:
        """Subtract a choice from a pool: for trials; in a view of the cluster itself use `Cluster.hold`.

        Raises InvariantBroken for a choice of CPUs or devices that are not free. An earlier hold (not `is_choice`) is taken as it
        is: the node may have less by now.
        """
        node = self.nodes[row]
        move_shares(node, self.pools[name], costs_of(node, name, shares, holding), 1)
        self.inventory_index.take(name, row, attempt, holding, is_choice=is_choice)
        self.signals.hold(row, name, attempt, shares, self.now_ms)
        if holding is not None:
            self._note_change(row)

    def leave(self, name: PoolName, row: int, shares: tuple[ZoneShare, ...], attempt: Attempt) -> None:
        """Give back an attempt's hold, in a trial."""
        node = self.nodes[row]
        inventory = self.inventory_index.of(row)
        holding = inventory.holdings.get(attempt) if inventory else None
        move_shares(node, self.pools[name], costs_of(node, name, shares, holding), -1)
        self.inventory_index.leave(name, row, attempt)
        self.signals.drop(row, attempt)
        self._note_change(row)

    def generation_of(self, row: int) -> int:
        """A number that rises whenever the node may take a request that it refused before."""
        return self.nodes[row].capacity_generation + self.trial_changes.get(row, 0)

    def _note_change(self, row: int) -> None:
        self.trial_changes[row] = self.trial_changes.get(row, 0) + 1


MAX_NODES: Final = 100_000
MAX_ZONES: Final = 64


class Cluster:
    """All nodes. An allocatable older than `facts_max_age_ms` counts as not fresh, whatever freshness was published (0: never).

    Equal nodes are chosen in the order of their names, beginning `tie_rotation` names later (modulo their number), so that
    concurrent schedulers choose different nodes.
    """

    def __init__(self, facts_max_age_ms: int = 0, tie_rotation: int = 0, signals: NodeSignals | None = None) -> None:
        self.signals = signals or NodeSignals()
        self.nodes: list[Node] = []
        """By row; a vacant row has a node without a name, which holds nothing."""
        self.rows: dict[str, int] = {}
        """The row of each node, by name."""
        self._vacant: list[int] = []
        self._grown: dict[PoolName, set[int]] = {name: set() for name in PoolName}
        self.capacity_changes = 0
        self._tie_rotation = tie_rotation
        self._size, self._columns = 64, 2
        self._rank_count = -1
        self._is_preferred: Callable[[str], bool] | None = None
        self._facts = NodeFacts(self._size, self._columns, facts_max_age_ms)
        self.pools = {name: Pool(self._size, self._columns) for name in PoolName}
        """The amounts that preemption could free, by pool."""
        self._inventory_index = InventoryIndex(self._size)
        self._derived = Derived()
        self._next_generation = 0
        self.restrictions = Restrictions()
        self.disagreeing: dict[str, tuple[str, ...]] = {}
        """The nodes with which the ledger does not agree, and the disagreements."""
        self.batch_capacity = BatchCapacity(self._size, self._columns)

    def _resize(self, size: int, columns: int) -> None:
        """Make every array (size, columns) and write all nodes again."""
        self._size, self._columns = size, columns
        self._facts.allocate(size, columns)
        self._inventory_index.resize(size)
        for pool in self.pools.values():
            pool.resize(size, columns)
        self.batch_capacity.allocate(size, columns)
        self._rank_count = -1
        for node in [self.nodes[row] for row in self.rows.values()]:
            self._write_topology(node)
            self._write_facts(node)
            self._facts.restrict(node.row, restricted_bits(self.restrictions, node.name))

    def node(self, name: str) -> Node:
        """The node of that name, made when it is new. Raises InvalidInput above MAX_NODES nodes."""
        row = self.rows.get(name)
        if row is not None:
            return self.nodes[row]
        if len(self.rows) >= MAX_NODES:
            raise InvalidInput("node", f"at most {MAX_NODES} nodes are kept", name)
        node = Node(name, self._vacant_row(), self._next_generation)
        self.nodes[node.row] = node
        self.rows[name] = node.row
        self._write_facts(node)
        self._facts.restrict(node.row, restricted_bits(self.restrictions, name))
        return node

    def _vacant_row(self) -> int:
        """The lowest vacant row; a new row behind all others when no row is vacant."""
        if self._vacant:
            return heapq.heappop(self._vacant)
        row = len(self.nodes)
        self.nodes.append(Node("", row))
        for pool in self.pools.values():
            pool.add()
        self._inventory_index.add()
        if row >= self._size:
            self._resize(self._size * 2, self._columns)
        return row

    def find(self, name: str) -> Node | None:
        """The node of that name, or None."""
        row = self.rows.get(name)
        return None if row is None else self.nodes[row]

    def forget(self, node: Node) -> None:
        """Vacate the row of a node that left for good. Raises InvariantBroken while an attempt holds capacity there."""
        if node.holds or node.in_flight:
            raise InvariantBroken("a node that holds something is forgotten", node=node.name, in_flight=node.in_flight)
        row = node.row
        del self.rows[node.name]
        self.nodes[row] = Node("", row)
        heapq.heappush(self._vacant, row)
        # A finding about an earlier node of a row must not count as a finding about a later node.
        self._next_generation = max(self._next_generation, node.capacity_generation + 1)
        for pool in self.pools.values():
            pool.clear_row(row)
        self._inventory_index.clear_row(row)
        self.signals.clear_row(row)
        self._facts.clear_row(row)
        self.batch_capacity.write(row, ())
        for grown in self._grown.values():
            grown.discard(row)
        self.disagreeing.pop(node.name, None)
        self.capacity_changes += 1
        self._rank_count = -1

    # ---- facts

    def on_topology(self, fact: NodeTopologyReported) -> bool:
        """Take a node's topology; False when it is older than the known one. Raises InvalidInput, and changes nothing, for an
        invalid topology, for rules that do not go with it, and for more labels or taints than are kept.
        """
        known = self.find(fact.node)
        if known is not None and known.is_published_again(fact):
            if known.reported is not None and not is_older(fact, known.reported):
                known.reported = fact
            return True
        fact.topology.validate()
        if len(fact.topology.zones) > MAX_ZONES:
            raise InvalidInput("topology.zones", f"at most {MAX_ZONES} zones", len(fact.topology.zones))
        fact.rules.validate(fact.topology)
        inventory = NodeInventory(fact.topology, fact.rules)
        self._facts.check(fact)
        node = self.node(fact.node)
        if node.reported is not None and is_older(fact, node.reported):
            return False
        node.topology, node.reported = fact.topology, fact
        node.reserved = reserved_shares(fact.topology, fact.rules)
        for attempt, holding in node.holdings.items():
            inventory.hold(attempt, holding)
        node.is_simulated = fact.simulated
        node.zone_ids = tuple(zone.zone for zone in fact.topology.zones)
        node.sockets = tuple(zone.socket for zone in fact.topology.zones)
        self.capacity_changes += 1
        if len(node.zone_ids) > self._columns:
            self._resize(self._size, len(node.zone_ids))
        self._write_topology(node)
        self._write_facts(node)
        prod = self.pools[PoolName.PROD].preemptible
        prod.price_pct = max(prod.price_pct, fact.rules.amplification_pct)
        self._inventory_index.know(node.row, inventory, len(node.holds) - len(node.prod))
        self.signals.know(node.row, fact.topology)
        self.compare(node)
        self._leave_room(node)
        for name, pool in self.pools.items():
            self._promise(node, name)
            self._hold_again(node, name, pool)
        self._grow(node)
        return True

    def on_allocatable(self, fact: AllocatableChanged) -> bool:
        """Take a node's allocatable; False when it is older than the known one."""
        node = self.node(fact.node)
        if node.allocatable is not None and is_older(fact, node.allocatable):
            return False
        before, room, was_fresh = node.allocatable, node.room, self._facts.fresh[node.row]
        node.allocatable = fact
        if node.freshness_of is None or not is_overtaken(fact, node.freshness_of):
            node.freshness, node.freshness_at_ms, node.freshness_of = fact.freshness, fact.at_ms, fact
        self.signals.hear(node.row, fact)
        is_promise_new = before is None or before.zones != fact.zones
        if is_promise_new:
            self._promise(node, PoolName.BATCH)
        is_mid_new = (before.mid if before is not None else ()) != fact.mid
        if is_mid_new:
            self._promise(node, PoolName.MID)
        self._leave_room(node)
        self._write_facts(node)
        if before is None or not was_fresh:
            self._grow(node)
            return True
        # Most facts repeat the known amounts, or promise less: waiting requests are not woken for those.
        if is_promise_new or is_mid_new or room != node.room:
            node.capacity_generation += 1
        if self.signals.follows_load(PoolName.BATCH) or gives_more(before.zones, fact.zones):
            self._grown[PoolName.BATCH].add(node.row)
        if self.signals.follows_load(PoolName.MID) or (is_mid_new and gives_more_mid(before.mid, fact.mid)):
            self._grown[PoolName.MID].add(node.row)
        if self.signals.follows_load(PoolName.PROD) or leaves_more(room, node.room):
            self._grown[PoolName.PROD].add(node.row)
        return True

    def on_freshness(self, fact: FreshnessChanged) -> bool:
        """Take how fresh a node's facts are; False when a newer fact is known.

        A node becomes fresh by its allocatable alone, which says so itself, because this fact may arrive before that number: until
        then the node is warming.
        """
        node = self.node(fact.node)
        if node.freshness_of is not None and is_overtaken(fact, node.freshness_of):
            return False
        if not (fact.freshness.may_grow and node.freshness.may_grow):
            node.freshness = Freshness.WARMING if fact.freshness.may_grow else fact.freshness
            node.freshness_at_ms, node.freshness_of = fact.at_ms, fact
            self._write_facts(node)
        return True

    def restrict(self) -> None:
        """Follow a change of `restrictions`; a node of which something is lifted may hold more than before."""
        for name, row in self.rows.items():
            bits, before = restricted_bits(self.restrictions, name), int(self._facts.restricted[row])
            self._facts.restrict(row, bits)
            if before & ~bits:
                self._grow(self.nodes[row])

    # ---- holds

    def hold(
        self,
        node: Node,
        attempt: Attempt,
        shares: tuple[ZoneShare, ...],
        pool: PoolName = PoolName.BATCH,
        holding: Holding | None = None,
        *,
        is_choice: bool = False,
        at_ms: int | None = None,
        importance: Importance | None = None,
    ) -> None:
        """Subtract an attempt's hold (since `at_ms`, or now); the same attempt again replaces its earlier hold.

        `importance`: of an attempt that preemption could choose; `drop` needs the same value. Raises InvariantBroken for a choice
        of CPUs or devices that are not free. A hold from the ledger is taken as it is.
        """
        if attempt in node.holds:
            self.drop(node, attempt, importance)
        if importance is not None:
            self.pools[pool].preemptible.hold(node.row, importance, shares)
        if holding is not None or self._inventory_index.limited:
            self._inventory_index.take(pool, node.row, attempt, holding, is_choice=is_choice)
        node.holds[attempt] = shares
        if self.signals.follows[pool]:
            self.signals.hold(node.row, pool, attempt, shares, self._facts.now_ms if at_ms is None else at_ms)
        if pool is PoolName.PROD:
            node.prod.add(attempt)
        elif pool is PoolName.MID:
            node.mid.add(attempt)
        if holding is None:
            move_shares(node, self.pools[pool], shares, 1)
            return
        node.holdings[attempt] = holding
        # A hold that crosses zones makes room for other holds that cross zones.
        node.capacity_generation += 1
        move_shares(node, self.pools[pool], costs_of(node, pool, shares, holding), 1)
        self._limit_batch(node, holding)

    def drop(self, node: Node, attempt: Attempt, importance: Importance | None = None) -> None:
        """Give back an attempt's hold; does nothing when it holds nothing here."""
        shares = node.holds.pop(attempt, None)
        if shares is None:
            return
        name = node.pool_of(attempt)
        node.prod.discard(attempt)
        node.mid.discard(attempt)
        if importance is not None:
            self.pools[name].preemptible.drop(node.row, importance, shares)
        if self.signals.follows[name]:
            self.signals.drop(node.row, attempt)
        if node.holdings or self._inventory_index.limited:
            self._inventory_index.leave(name, node.row, attempt)
        holding = node.holdings.pop(attempt, None) if node.holdings else None
        if holding is None:
            move_shares(node, self.pools[name], shares, -1)
        else:
            move_shares(node, self.pools[name], costs_of(node, name, shares, holding), -1)
            self._limit_batch(node, holding)
            if node.problems:
                self.compare(node)
        self._grow(node)

    @property
    def grown(self) -> bool:
        """Whether some node may hold more than at the last `forget_grown`."""
        return any(self._grown.values())

    def _grow(self, node: Node) -> None:
        """The node may hold more than before."""
        node.capacity_generation += 1
        for grown in self._grown.values():
            grown.add(node.row)

    def _limit_batch(self, node: Node, holding: Holding) -> None:
        """Batch work and the mid tier keep off the CPUs of LSE."""
        if holding.cpus and holding.qos is QosClass.LSE:
            self._promise(node, PoolName.BATCH)
            self._promise(node, PoolName.MID)

    def compare(self, node: Node, assumed: Collection[Attempt] = ()) -> None:
        """Compare the committed holds on a node, without those in `assumed`, with the node's topology."""
        inventory = self._inventory_index.of(node.row)
        if inventory is None:
            return
        node.problems = inventory.disagreements(assumed)
        self._inventory_index.agrees[node.row] = not node.problems
        if node.problems:
            self.disagreeing[node.name] = node.problems
        else:
            self.disagreeing.pop(node.name, None)

    def settle(self, node: Node, is_reloading: bool) -> None:
        """Leave a node out of decisions while its ledger row is read again, and return it to them afterwards."""
        node.is_reloading = is_reloading
        self._write_facts(node)
        if not is_reloading:
            self._grow(node)

    def _hold_again(self, node: Node, name: PoolName, pool: Pool) -> None:
        """Subtract all holds again: the zones of the node may have moved to other columns."""
        pool.forget(node.row)
        if name is PoolName.PROD:
            move_shares(node, pool, claimed_of(node.room, node.reported), 1)
        for attempt, shares in node.holds.items():
            if node.pool_of(attempt) is name:
                move_shares(node, pool, costs_of(node, name, shares, node.holdings.get(attempt)), 1)

    def _leave_room(self, node: Node) -> None:
        """Prod work leaves unmanaged online work the CPU that it uses now, and the shared pool the CPUs for it."""
        before, node.room = node.room, room_of(node.reported, node.allocatable, self.signals.rules.prod_room_pct)
        inventory = self._inventory_index.of(node.row)
        if inventory is not None:
            inventory.shared_cpus = shared_cpus_of(node.room)
        if before != node.room:
            pool = self.pools[PoolName.PROD]
            move_shares(node, pool, claimed_of(before, node.reported), -1)
            move_shares(node, pool, claimed_of(node.room, node.reported), 1)

    def _promise(self, node: Node, name: PoolName) -> None:
        self.pools[name].promise(node.row, *self._promised(node, name))

    def _promised(self, node: Node, name: PoolName) -> Promised:
        if name is PoolName.PROD:
            return prod_of(node)
        most_bytes = self.batch_capacity.of_row(node.row)[1] if node.reserved else None
        of_pool = mid_of if name is PoolName.MID else batch_of
        return of_pool(node, self._inventory_index.of(node.row), most_bytes)

    def _write_topology(self, node: Node) -> None:
        row = node.row
        if node.reported is not None:
            self._facts.describe(row, node.reported)
        self._facts.socket[row] = NO_SOCKET
        self._facts.split_score[row] = fewest_zones(split_cost(node.sockets))
        self._facts.socket[row, : len(node.sockets)] = node.sockets
        self.batch_capacity.write(
            row, batch_capacity(node.reported.topology, node.reported.rules) if node.reported else ()
        )

    def _write_facts(self, node: Node) -> None:
        self._facts.write(
            node.row,
            known=node.topology is not None,
            settled=not node.is_reloading,
            simulated=node.is_simulated,
            may_grow=node.freshness.may_grow and node.allocatable is not None,
            at_ms=node.allocatable.at_ms if node.allocatable else 0,
            mid=node.allocatable is not None and bool(node.allocatable.mid),
        )

    # ---- reads

    def view(self, now_ms: int) -> View:
        """The cluster now; later changes are visible in the view."""
        return self._view(now_ms, self.pools, self._inventory_index, self.signals, self._derived)

    def trial(self, now_ms: int) -> View:
        """A view for decisions that hold nothing: `View.take` subtracts from copies."""
        # A fork keeps the ranks of its beginning.
        self._rank()
        pools = {name: pool.fork() for name, pool in self.pools.items()}
        return self._view(now_ms, pools, self._inventory_index.fork(), self.signals.fork(), Derived())

    def _view(
        self,
        now_ms: int,
        pools: dict[PoolName, Pool],
        inventory_index: InventoryIndex,
        signals: NodeSignals,
        derived: Derived,
    ) -> View:
        self._facts.look(now_ms)
        self._rank()
        return View(
            now_ms=now_ms,
            nodes=self.nodes,
            rows=self.rows,
            count=len(self.nodes),
            node_count=len(self.rows),
            facts=self._facts,
            pools=pools,
            inventory_index=inventory_index,
            signals=signals,
            derived=derived,
            trial_changes={},
        )

    def _rank(self) -> None:
        count = len(self.rows)
        if self._rank_count != count:
            order = sorted(self.rows.values(), key=lambda row: self.nodes[row].name)
            ranks = (np.arange(count, dtype=np.int64) - self._tie_rotation) % max(count, 1)
            if (is_preferred := self._is_preferred) is not None:
                # Without nodes too the array must be of whole numbers.
                away = [0 if is_preferred(self.nodes[row].name) else AWAY_RANK for row in order]
                ranks += np.array(away, dtype=np.int64)
            self._facts.rank[np.array(order, dtype=np.int64)] = ranks
            for pool in self.pools.values():
                pool.rank(self._facts.rank[: len(self.nodes)])
            self._rank_count = count

    def prefer(self, is_preferred: Callable[[str], bool]) -> None:
        """Choose the nodes of which this is true, by name, before others that are not much better: it counts 20 points.

        With the default weights that is a fifth of a machine's free capacity, and much less than another zone, a taint or an
        eviction. Schedulers that prefer different nodes seldom write the same rows: a row that another one wrote since it was
        read refuses the next place, and has to be read again.
        """
        self._is_preferred = is_preferred
        self._rank_count = -1

    def grown_free(self) -> dict[PoolName, tuple[IntArray, IntArray]]:
        """Free CPU and memory, shape (rows,), of the nodes that may hold more of each pool than at the last `forget_grown`."""
        found = {}
        for name, pool in self.pools.items():
            rows = np.array(sorted(self._grown[name]), dtype=np.int64)
            rows = rows[self._facts.fresh[rows] & self._facts.settled[rows]]
            pool.sync()
            found[name] = pool.node_free_cpu[rows], pool.node_free_memory[rows]
        return found

    def forget_grown(self) -> None:
        """Clear the marks of grown nodes: every waiting request was tested against them."""
        for name, grown in self._grown.items():
            grown.clear()
            # Done here and not in the next decision, for which a request will be waiting.
            self.pools[name].sync()

    def check(self) -> None:
        """`check_rows` of all rows, and that no job is counted on a node that does not hold it."""
        self.check_rows(range(len(self.nodes)))
        for _ in self.signals.check_jobs(self.nodes):
            pass

    def check_rows(self, rows: range) -> None:
        """Raise InvariantBroken unless each of these rows equals the sum of its facts and holds, in lists and arrays."""
        nodes = self.nodes[rows.start : rows.stop]
        for row, node in zip(rows, nodes, strict=True):
            is_astray = self.rows.get(node.name) != row if node.name else bool(self._facts.taken[row])
            if node.row != row or is_astray:
                raise InvariantBroken("a node is not in its row", node=node.name, row=row)
            inventory = self._inventory_index.of(row)
            if inventory is not None and (node.holdings or inventory.holdings):
                inventory.check(node.name)
                self._check_own(node, inventory)
            for name, pool in self.pools.items():
                self._check_free(node, name, pool)
        for pool in self.pools.values():
            pool.check(rows)
        self.signals.check_rows(nodes, rows)

    def _check_free(self, node: Node, name: PoolName, pool: Pool) -> None:
        kept = pool.rows[node.row]
        promised = pool.padded(*self._promised(node, name))
        if promised != (kept.allocatable_cpu, kept.allocatable_memory):
            raise InvariantBroken("a promise differs from the facts", node=node.name, pool=name.value)
        if (kept.cpu, kept.memory) != free_of(node, name, promised):
            rule = "free differs from allocatable less held"
            raise InvariantBroken(rule, node=node.name, pool=name.value, kept=(kept.cpu[:], kept.memory[:]))

    def _check_own(self, node: Node, inventory: NodeInventory) -> None:
        """Own CPUs are in no other attempt's set, and no device gives more than it has, except by holds from the ledger."""
        if inventory.holdings != node.holdings:
            raise InvariantBroken("an inventory holds something else than its node", node=node.name)
        if not node.problems and node.in_flight == 0 and (problems := inventory.disagreements()):
            raise InvariantBroken("something is held that cannot be held", node=node.name, problems=problems)
