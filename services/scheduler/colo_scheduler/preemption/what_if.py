"""One node as it would be without some of its replicas: whether a request fits there then, by every test of free capacity."""

from typing import Final

from colo_common.model.placement import Attempt, Placement
from colo_scheduler.cluster.inventory import NodeInventory
from colo_scheduler.cluster.node import costs_of
from colo_scheduler.cluster.pool import pool_of
from colo_scheduler.cluster.snapshot import View
from colo_scheduler.numa.zones import Part, ZoneFree, choose_zones
from colo_scheduler.placement.fit import NodeFit, Site, fit_node, needs_search
from colo_scheduler.requests.request_class import RequestClass

__all__ = ["WhatIf"]

# A test of all resources takes about as long as so many tests of CPU and memory.
_CLOSE_COST: Final = 60


class WhatIf:
    """An independent copy of one node of a view: removals here change nothing else. `cost`: the number of tests done, in tests of
    CPU and memory.
    """

    def __init__(self, view: View, row: int, request: RequestClass) -> None:
        self._request = request
        self._node = view.nodes[row]
        self._pool = pool_of(request.band)
        self._row = view.pools[self._pool].rows[row].copy()
        self._inventory_index = view.inventory_index.of(row)
        self._is_close = needs_search(view, request)
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
