"""What the scheduler knows of every node, as rows of integer arrays: allocatable, held and free per zone, capacity, freshness.

A node is a row, a zone is a column; rows of nodes with fewer zones than the widest are padded with columns that have nothing.
`free = allocatable - held`, per zone; held is what the ledger says plus what is decided here and not yet committed.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from colo_common.events.node import AllocatableChanged, FreshnessChanged, NodeTopologyReported
from colo_common.model.freshness import Freshness
from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_common.model.placement import ZoneShare
from colo_common.model.topology import NodeTopology
from colo_scheduler.ledger import Attempt
from colo_scheduler.zones import CPU_MAX_MCPU, MEMORY_MAX_BYTES, NO_SOCKET, IntArray

__all__ = ["MAX_NODES", "MAX_ZONES", "Cluster", "Node", "View"]

MAX_NODES: Final = 100_000
MAX_ZONES: Final = 64
BoolArray = npt.NDArray[np.bool_]


class Node:
    """One node beside its row in the arrays. `holds` is what each attempt holds here, committed or assumed."""

    def __init__(self, name: str, row: int) -> None:
        self.name = name
        self.row = row
        self.topology: NodeTopology | None = None
        self.topology_at_ms = 0
        self.is_simulated = False
        self.allocatable: AllocatableChanged | None = None
        self.freshness = Freshness.UNKNOWN
        self.freshness_at_ms = 0
        self.zone_ids: tuple[int, ...] = ()
        self.holds: dict[Attempt, tuple[ZoneShare, ...]] = {}
        self.revision = 0
        self.changes = 0
        self.in_flight = 0
        self.is_reloading = False

    @property
    def sample_seq(self) -> int:
        """The sample that the allocatable was computed from, 0 before the first."""
        return self.allocatable.sample_seq if self.allocatable else 0


@dataclass(frozen=True, slots=True)
class View:
    """The cluster at the moment of one decision. Only the free arrays are the decision's own, to subtract from as it goes.

    `free_*` are (nodes, columns), `node_free_*` and `allocatable_*` their sums a node.
    """

    now_ms: int
    nodes: list[Node]
    rows: dict[str, int]
    known: BoolArray
    fresh: BoolArray
    settled: BoolArray
    simulated: BoolArray
    free_cpu: IntArray
    free_memory: IntArray
    node_free_cpu: IntArray
    node_free_memory: IntArray
    allocatable_cpu: IntArray
    allocatable_memory: IntArray
    socket: IntArray
    rank: IntArray

    @property
    def count(self) -> int:
        """How many nodes there are."""
        return len(self.known)


class Cluster:
    """All nodes. An allocatable older than `facts_max_age_ms` counts as not fresh, whatever was said of it (0: never)."""

    def __init__(self, facts_max_age_ms: int = 0) -> None:
        self.facts_max_age_ms = facts_max_age_ms
        self.nodes: list[Node] = []
        self.rows: dict[str, int] = {}
        self.grown: set[int] = set()
        self.capacity_changes = 0
        self._size = 0
        self._columns = 1
        self._rank_count = -1
        self._allocate(64, 2)

    def _allocate(self, size: int, columns: int) -> None:
        """Make every array (size, columns) and write all nodes again."""
        self._size, self._columns = size, columns
        shape = (size, columns)
        self._allocatable_cpu = np.zeros(shape, dtype=np.int64, order="F")
        self._allocatable_memory = np.zeros(shape, dtype=np.int64, order="F")
        self._free_cpu = np.zeros(shape, dtype=np.int64, order="F")
        self._free_memory = np.zeros(shape, dtype=np.int64, order="F")
        self._capacity_cpu = np.zeros(shape, dtype=np.int64, order="F")
        self._capacity_memory = np.zeros(shape, dtype=np.int64, order="F")
        self._socket = np.full(shape, NO_SOCKET, dtype=np.int64, order="F")
        self._known = np.zeros(size, dtype=np.bool_)
        self._is_fresh = np.zeros(size, dtype=np.bool_)
        self._facts_at_ms = np.zeros(size, dtype=np.int64)
        self._settled = np.zeros(size, dtype=np.bool_)
        self._simulated = np.zeros(size, dtype=np.bool_)
        self._rank = np.zeros(size, dtype=np.int64)
        self._rank_count = -1
        for node in self.nodes:
            self._write(node)

    def node(self, name: str) -> Node:
        """The node of that name, made when it is new. Raises InvalidInput above MAX_NODES nodes."""
        row = self.rows.get(name)
        if row is not None:
            return self.nodes[row]
        if len(self.nodes) >= MAX_NODES:
            raise InvalidInput("node", f"at most {MAX_NODES} nodes are kept", name)
        node = Node(name, len(self.nodes))
        self.nodes.append(node)
        self.rows[name] = node.row
        if node.row >= self._size:
            self._allocate(self._size * 2, self._columns)
        else:
            self._write(node)
        return node

    def find(self, name: str) -> Node | None:
        """The node of that name, or None."""
        row = self.rows.get(name)
        return None if row is None else self.nodes[row]

    # ---- facts

    def on_topology(self, fact: NodeTopologyReported) -> bool:
        """Take what a machine is; False when it is older than what is known. Raises InvalidInput for a topology that is none."""
        fact.topology.validate()
        if len(fact.topology.zones) > MAX_ZONES:
            raise InvalidInput("topology.zones", f"at most {MAX_ZONES} zones", len(fact.topology.zones))
        node = self.node(fact.node)
        if node.topology is not None and fact.at_ms < node.topology_at_ms:
            return False
        node.topology, node.topology_at_ms = fact.topology, fact.at_ms
        node.is_simulated = fact.simulated
        node.zone_ids = tuple(zone.zone for zone in fact.topology.zones)
        self.capacity_changes += 1
        if len(node.zone_ids) > self._columns:
            self._allocate(self._size, len(node.zone_ids))
        else:
            self._write(node)
        self.grown.add(node.row)
        return True

    def on_allocatable(self, fact: AllocatableChanged) -> bool:
        """Take what may be promised; False when it is older than what is known."""
        node = self.node(fact.node)
        if node.allocatable is not None and fact.at_ms < node.allocatable.at_ms:
            return False
        node.allocatable = fact
        if fact.at_ms >= node.freshness_at_ms:
            node.freshness, node.freshness_at_ms = fact.freshness, fact.at_ms
        self._write(node)
        self.grown.add(node.row)
        return True

    def on_freshness(self, fact: FreshnessChanged) -> bool:
        """Take how fresh a node's facts are; False when something newer is known."""
        node = self.node(fact.node)
        if fact.at_ms < node.freshness_at_ms:
            return False
        node.freshness, node.freshness_at_ms = fact.freshness, fact.at_ms
        self._write(node)
        if fact.freshness.may_grow:
            self.grown.add(node.row)
        return True

    # ---- holds

    def hold(self, node: Node, attempt: Attempt, shares: tuple[ZoneShare, ...]) -> None:
        """Subtract what an attempt holds; the same attempt again replaces what it held."""
        self.drop(node, attempt)
        node.holds[attempt] = shares
        self._move(node, shares, -1)

    def drop(self, node: Node, attempt: Attempt) -> None:
        """Give back what an attempt holds; nothing when it holds nothing here."""
        shares = node.holds.pop(attempt, None)
        if shares is not None:
            self._move(node, shares, 1)
            self.grown.add(node.row)

    def settle(self, node: Node, is_reloading: bool) -> None:
        """Leave a node out of decisions while its ledger row is read again, and take it back in afterwards."""
        node.is_reloading = is_reloading
        self._settled[node.row] = not is_reloading
        if not is_reloading:
            self.grown.add(node.row)

    def _move(self, node: Node, shares: tuple[ZoneShare, ...], sign: int) -> None:
        for share in shares:
            slot = _slot(node, share.zone)
            self._free_cpu[node.row, slot] += sign * share.cpu_mcpu
            self._free_memory[node.row, slot] += sign * share.memory_bytes

    def _write(self, node: Node) -> None:
        """Compute the whole row of a node again from its facts and holds."""
        row = node.row
        for array in (self._allocatable_cpu, self._allocatable_memory, self._capacity_cpu, self._capacity_memory):
            array[row] = 0
        self._socket[row] = NO_SOCKET
        if node.topology is not None:
            for slot, zone in enumerate(node.topology.zones):
                self._socket[row, slot] = zone.socket
                self._capacity_cpu[row, slot] = min(zone.cpu_capacity_mcpu, CPU_MAX_MCPU)
                self._capacity_memory[row, slot] = min(zone.memory_bytes, MEMORY_MAX_BYTES)
            if node.allocatable is not None:
                for promised in node.allocatable.zones:
                    if promised.zone in node.zone_ids:
                        slot = node.zone_ids.index(promised.zone)
                        self._allocatable_cpu[row, slot] = min(max(0, promised.batch_cpu_mcpu), CPU_MAX_MCPU)
                        self._allocatable_memory[row, slot] = min(max(0, promised.batch_memory_bytes), MEMORY_MAX_BYTES)
        self._free_cpu[row] = self._allocatable_cpu[row]
        self._free_memory[row] = self._allocatable_memory[row]
        for shares in node.holds.values():
            self._move(node, shares, -1)
        self._known[row] = node.topology is not None
        self._is_fresh[row] = node.freshness.may_grow and node.allocatable is not None
        self._facts_at_ms[row] = node.allocatable.at_ms if node.allocatable else 0
        self._settled[row] = not node.is_reloading
        self._simulated[row] = node.is_simulated

    # ---- reads

    def view(self, now_ms: int) -> View:
        """The cluster now. Later changes of the cluster do not reach the free arrays of the view."""
        count = len(self.nodes)
        if self._rank_count != count:
            order = sorted(range(count), key=lambda row: self.nodes[row].name)
            self._rank[np.array(order, dtype=np.int64)] = np.arange(count, dtype=np.int64)
            self._rank_count = count
        fresh = self._is_fresh[:count].copy()
        if self.facts_max_age_ms > 0:
            fresh &= now_ms - self._facts_at_ms[:count] <= self.facts_max_age_ms
        # Column after column in memory: sums over a node's few zones are then sums of long arrays.
        free_cpu = self._free_cpu[:count].copy(order="F")
        free_memory = self._free_memory[:count].copy(order="F")
        return View(
            now_ms=now_ms,
            nodes=self.nodes,
            rows=self.rows,
            known=self._known[:count],
            fresh=fresh,
            settled=self._settled[:count],
            simulated=self._simulated[:count],
            free_cpu=free_cpu,
            free_memory=free_memory,
            node_free_cpu=free_cpu.sum(axis=1),
            node_free_memory=free_memory.sum(axis=1),
            allocatable_cpu=self._allocatable_cpu[:count].sum(axis=1),
            allocatable_memory=self._allocatable_memory[:count].sum(axis=1),
            socket=self._socket[:count],
            rank=self._rank[:count],
        )

    def capacity(self) -> tuple[IntArray, IntArray]:
        """CPU and memory capacity of every zone of every node: shape (nodes, columns)."""
        count = len(self.nodes)
        return self._capacity_cpu[:count], self._capacity_memory[:count]

    def take_grown(self) -> tuple[IntArray, IntArray]:
        """Free CPU and memory, shape (rows,), of the nodes that may hold more than when this was last asked."""
        rows = np.array(sorted(self.grown), dtype=np.int64)
        self.grown.clear()
        rows = rows[self._is_fresh[rows] & self._settled[rows]]
        return self._free_cpu[rows].sum(axis=1), self._free_memory[rows].sum(axis=1)

    def check(self) -> None:
        """Raise InvariantBroken unless every row equals what its facts and holds give."""
        for node in self.nodes:
            before = (self._free_cpu[node.row].tolist(), self._free_memory[node.row].tolist())
            self._write(node)
            after = (self._free_cpu[node.row].tolist(), self._free_memory[node.row].tolist())
            if before != after:
                raise InvariantBroken(
                    "free differs from allocatable less held", node=node.name, kept=before, computed=after
                )


def _slot(node: Node, zone: int) -> int:
    """The column of a zone. A hold on a zone that the node lacks (its topology changed) counts against the first one."""
    return node.zone_ids.index(zone) if zone in node.zone_ids else 0
