"""One node as it were if some of its replicas had left: whether a request fits there then, by all that looks at what is free."""

from typing import Final

from colo_common.model.placement import Placement
from colo_scheduler.cluster import View
from colo_scheduler.fit import Fit, Site, fit_node
from colo_scheduler.inventory import NodeInventory
from colo_scheduler.pool import pool_of
from colo_scheduler.request import RequestClass
from colo_scheduler.search import needs_search
from colo_scheduler.view import costs_of
from colo_scheduler.zones import Part, ZoneFree, choose_zones

__all__ = ["Vacated"]

# A test of everything takes about as long as so many of CPU and memory.
_CLOSE_COST: Final = 30


class Vacated:
    """A node of a view for itself: who leaves it here has left nothing but this. `cost`: how much testing was done, in tests of
    CPU and memory.
    """

    def __init__(self, view: View, row: int, request: RequestClass) -> None:
        self._request = request
        self._node = view.nodes[row]
        self._pool = pool_of(request.band)
        self._row = view.pools[self._pool].rows[row].copy()
        self._stock = view.stock.of(row)
        self._is_close = needs_search(view, request)
        self._inventory: NodeInventory | None = None
        self._away: dict[tuple[str, int], Placement] = {}
        self.cost = 0

    def leave(self, placement: Placement) -> None:
        """A replica leaves."""
        self._move(placement, 1)
        self._away[placement.replica, placement.attempt] = placement
        if self._inventory is not None:
            self._inventory.drop((placement.replica, placement.attempt))

    def stay(self, placement: Placement) -> None:
        """A replica that left is there as before."""
        attempt = (placement.replica, placement.attempt)
        self._move(placement, -1)
        del self._away[attempt]
        if self._inventory is not None and self._stock is not None and attempt in self._stock.holdings:
            self._inventory.hold(attempt, self._stock.holdings[attempt])

    def _move(self, placement: Placement, sign: int) -> None:
        holdings = self._stock.holdings if self._stock is not None else {}
        holding = holdings.get((placement.replica, placement.attempt)) if holdings else None
        for share in costs_of(self._node, self._pool, placement.zones, holding):
            slot = self._node.slot(share.zone)
            self._row.cpu[slot] += sign * share.cpu_mcpu
            self._row.memory[slot] += sign * share.memory_bytes

    def parts(self) -> tuple[Part, ...] | None:
        """Where in the zones the request fits now, None where it does not.

        Of one that wants more than amounts it is the zones by amounts alone, and all it wants can be had.
        """
        self.cost += 1
        request, cpu, memory = self._request, self._row.cpu, self._row.memory
        if sum(cpu) < request.cpu_mcpu or sum(memory) < request.memory_bytes:
            return None
        zones = [ZoneFree(slot, socket, cpu[slot], memory[slot]) for slot, socket in enumerate(self._node.sockets)]
        parts = choose_zones(request.cpu_mcpu, request.memory_bytes, zones)
        return parts if parts is None or not self._is_close or self._fits_closely() else None

    def _fits_closely(self) -> bool:
        inventory = self._inventory = self._inventory or self._copied()
        if inventory is None or inventory.free_cpus.bit_count() < self._request.own_cpus:
            return False
        for device in self._request.place.devices:
            rooms = inventory.devices.rooms(device.kind) if inventory.devices.has(device.kind) else ()
            if sum(room.core_pct > 0 for room in rooms) < max(1, device.count):
                return False
        self.cost += _CLOSE_COST
        site = Site(self._row, self._node.zone_ids, self._node.sockets, inventory)
        return isinstance(fit_node(site, self._request), Fit)

    def _copied(self) -> NodeInventory | None:
        if self._stock is None:
            return None
        self.cost += _CLOSE_COST
        inventory = self._stock.copy()
        for attempt in self._away:
            inventory.drop(attempt)
        return inventory
