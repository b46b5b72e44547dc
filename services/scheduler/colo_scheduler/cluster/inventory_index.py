"""The inventories of all nodes, and their free amounts as arrays, for the filters that run before the exact fit.

A trial has its own (`fork`): capacity taken in a trial is taken nowhere else.
"""

from typing import Final

import numpy as np

from colo_common.model.constraints import CpuBind, DeviceRequest, NumaPolicy
from colo_common.model.placement import Attempt
from colo_scheduler.cluster.holding import Holding
from colo_scheduler.cluster.inventory import NodeInventory
from colo_scheduler.cluster.node import BoolArray
from colo_scheduler.cluster.pool import PoolName
from colo_scheduler.devices.inventory import DeviceInventory
from colo_scheduler.devices.node_scores import DeviceScores
from colo_scheduler.numa.zones import IntArray

__all__ = ["UNLIMITED", "InventoryIndex", "is_strict"]

UNLIMITED: Final = 1 << 53
"""The number of batch replicas that a node without a limit may hold."""


class InventoryIndex:
    """Arrays int64 of shape (size,): `own_cpus` free to be assigned by number, `batch_left` batch replicas that may still come.

    `agrees`: the ledger agrees with the node. `limited`: how many rows have a limit of batch replicas; `strict`: how many bind
    CPUs or align zones by a rule of their own.
    """

    def __init__(self, size: int) -> None:
        self.own_cpus: IntArray = np.zeros(size, dtype=np.int64)
        self.batch_left: IntArray = np.full(size, UNLIMITED, dtype=np.int64)
        self.agrees: BoolArray = np.ones(size, dtype=np.bool_)
        self.limited = 0
        self.strict = 0
        self._inventories: list[NodeInventory | None] = []
        self._free: dict[str, IntArray] = {}
        self._own: set[int] | None = None
        self._device_scores = DeviceScores()

    def resize(self, size: int) -> None:
        """Make room for `size` rows."""
        more = size - self.own_cpus.size
        zeros = np.zeros(more, dtype=np.int64)
        self.own_cpus = np.concatenate([self.own_cpus, zeros])
        self.batch_left = np.concatenate([self.batch_left, np.full(more, UNLIMITED, dtype=np.int64)])
        self.agrees = np.concatenate([self.agrees, np.ones(more, dtype=np.bool_)])
        self._free = {kind: np.concatenate([free, zeros]) for kind, free in self._free.items()}

    def add(self) -> None:
        """Add one row without an inventory."""
        self._inventories.append(None)

    def fork(self) -> "InventoryIndex":
        """An independent index with the same content: an inventory is copied when it changes on either side."""
        other = InventoryIndex(0)
        other.own_cpus, other.batch_left = self.own_cpus.copy(), self.batch_left.copy()
        other.agrees, other.limited, other.strict = self.agrees, self.limited, self.strict
        other._inventories, other._own = list(self._inventories), set()
        other._device_scores = self._device_scores.fork()
        other._free = {kind: free.copy() for kind, free in self._free.items()}
        self._own = set()
        return other

    # ---- changes

    def clear_row(self, row: int) -> None:
        """The row is vacant: no inventory of it is kept, and no hold."""
        deleted = self._inventories[row]
        if deleted is not None:
            self.limited -= deleted.rules.batch_replicas_most is not None
            self.strict -= is_strict(deleted)
        self._inventories[row] = None
        self.own_cpus[row], self.batch_left[row], self.agrees[row] = 0, UNLIMITED, True
        for free in self._free.values():
            free[row] = 0
        self._device_scores.note(row)

    def know(self, row: int, inventory: NodeInventory, batch_held: int) -> None:
        """Take a node's inventory with its holds."""
        before = self._inventories[row]
        for known, sign in ((before, -1), (inventory, 1)):
            if known is not None:
                self.limited += sign * (known.rules.batch_replicas_most is not None)
                self.strict += sign * is_strict(known)
        self._inventories[row] = inventory
        if self._own is not None:
            self._own.add(row)
        most = inventory.rules.batch_replicas_most
        self.batch_left[row] = (UNLIMITED if most is None else most) - batch_held
        for device in inventory.topology.devices:
            if device.kind not in self._free:
                self._free[device.kind] = np.zeros(self.own_cpus.size, dtype=np.int64)
        self.write(row)

    def write(self, row: int) -> None:
        """Bring the arrays up to date with the inventory of a row."""
        inventory = self._inventories[row]
        if inventory is None:
            return
        self.own_cpus[row] = inventory.free_cpus.bit_count()
        self._write_devices(row, inventory)

    def _write_devices(self, row: int, inventory: NodeInventory) -> None:
        kinds = inventory.devices.kinds
        self._device_scores.note(row)
        for kind, free in self._free.items():
            rooms = inventory.devices.free_devices(kind) if kind in kinds else ()
            free[row] = sum(room.core_pct > 0 for room in rooms)

    def take(self, pool: PoolName, row: int, attempt: Attempt, holding: Holding | None, *, is_choice: bool) -> None:
        """Take an attempt's hold on a pool beside amounts. Raises InvariantBroken for a choice of resources that are not free."""
        if pool is not PoolName.PROD and self.limited:
            self.batch_left[row] -= 1
        if holding is not None:
            inventory = self._mine(row)
            if inventory is None:
                return
            if is_choice:
                inventory.choose(attempt, holding)
            else:
                inventory.hold(attempt, holding)
            self.own_cpus[row] = inventory.free_cpus.bit_count()
            if holding.devices:
                self._write_devices(row, inventory)

    def leave(self, pool: PoolName, row: int, attempt: Attempt) -> None:
        """Give back an attempt's hold."""
        if pool is not PoolName.PROD and self.limited:
            self.batch_left[row] += 1
        inventory = self._inventories[row]
        if inventory is not None and attempt in inventory.holdings:
            inventory = self._mine(row)
            if inventory is not None:
                inventory.drop(attempt)
            self.write(row)

    def _mine(self, row: int) -> NodeInventory | None:
        inventory = self._inventories[row]
        if self._own is not None and row not in self._own and inventory is not None:
            self._inventories[row] = inventory.copy()
            self._own.add(row)
        return self._inventories[row]

    # ---- reads

    def of(self, row: int) -> NodeInventory | None:
        """The inventory of a node, None until the node reported its topology. Callers must not change it."""
        return self._inventories[row]

    def device_scores(self, requests: tuple[DeviceRequest, ...], count: int, *, packs: bool) -> IntArray:
        """The score of the first `count` rows for a request by their free devices, or, with `packs`, by their used devices."""
        return self._device_scores.of(requests, count, self._devices_of, packs=packs)

    def _devices_of(self, row: int) -> DeviceInventory | None:
        inventory = self._inventories[row]
        return inventory.devices if inventory is not None and inventory.devices.kinds else None

    def free_devices(self, kind: str) -> IntArray | None:
        """How many healthy devices of a kind have free capacity, by row; None when no node has a device of the kind."""
        return self._free.get(kind)


def is_strict(inventory: NodeInventory) -> bool:
    """Whether the node binds CPUs or aligns zones by a rule of its own, or another system assigns them there."""
    rules = inventory.rules
    is_unmanaged = rules.numa_rule != "colo"
    return rules.cpu_bind is not CpuBind.DEFAULT or rules.numa_policy is not NumaPolicy.NONE or is_unmanaged
