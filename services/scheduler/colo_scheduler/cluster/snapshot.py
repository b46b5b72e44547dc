"""The cluster as a decision sees it: the rows of all nodes at one moment, and the amounts that a trial takes of them."""

from dataclasses import dataclass
from typing import Final

from colo_common.model.placement import Attempt, ZoneShare
from colo_scheduler.cluster.facts import Derived, NodeFacts
from colo_scheduler.cluster.holding import Holding
from colo_scheduler.cluster.inventory_index import UNLIMITED, InventoryIndex
from colo_scheduler.cluster.node import Node, costs_of, move_shares
from colo_scheduler.cluster.pool import Pool, PoolName
from colo_scheduler.cluster.preemptible_index import PreemptibleIndex
from colo_scheduler.cluster.signals import NodeSignals
from colo_scheduler.requests.request_class import RequestClass

__all__ = ["View"]

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
    levels: dict[PoolName, PreemptibleIndex]
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
