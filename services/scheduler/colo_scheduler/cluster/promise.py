"""The capacity of a node, pool by pool, and its free part: an entry for each of its zones, in mcpu and bytes."""

from collections.abc import Iterable, Sequence

from colo_scheduler.cluster.holding import amplified
from colo_scheduler.cluster.inventory import NodeInventory
from colo_scheduler.cluster.node import Node, costs_of
from colo_scheduler.cluster.pool import PoolName
from colo_scheduler.cluster.unmanaged import claimed_of
from colo_scheduler.numa.zones import CPU_MAX_MCPU, MEMORY_MAX_BYTES

__all__ = ["Promised", "batch_of", "free_of", "mid_of", "prod_of"]

Promised = tuple[Sequence[int], Sequence[int]]
"""mcpu and bytes by column."""


def batch_of(node: Node, inventory: NodeInventory | None, most_bytes: Sequence[int] | None) -> Promised:
    """The capacity that overcommit promises, without LSE's CPUs and the node's reserves (its rules leave `most_bytes`).

    Of a promise no more is believed than the zone has.
    """
    zones = node.allocatable.zones if node.allocatable else ()
    found = ((zone.zone, zone.batch_cpu_mcpu, zone.batch_memory_bytes) for zone in zones)
    return _bounded(found, node, inventory, most_bytes)


def mid_of(node: Node, inventory: NodeInventory | None, most_bytes: Sequence[int] | None) -> Promised:
    """The capacity that overcommit promises the mid tier, bounded like that of batch work; zeros on a node without the tier."""
    zones = node.allocatable.mid if node.allocatable else ()
    found = ((zone.zone, zone.cpu_mcpu, zone.memory_bytes) for zone in zones)
    return _bounded(found, node, inventory, most_bytes)


def _bounded(
    promised: Iterable[tuple[int, int, int]],
    node: Node,
    inventory: NodeInventory | None,
    most_bytes: Sequence[int] | None,
) -> Promised:
    """Zone, mcpu and bytes of a promise as columns."""
    zones = node.topology.zones if node.topology else ()
    cpu, memory = [0] * len(node.zone_ids), [0] * len(node.zone_ids)
    for zone, promised_mcpu, promised_bytes in promised:
        if zone in node.zone_ids:
            slot = node.zone_ids.index(zone)
            most_mcpu = inventory.batch_most_mcpu(zone) if inventory else None
            mcpu = min(max(0, promised_mcpu), zones[slot].cpu_capacity_mcpu)
            cpu[slot] = min(mcpu, CPU_MAX_MCPU if most_mcpu is None else most_mcpu)
            size_bytes = min(max(0, promised_bytes), zones[slot].memory_bytes)
            memory[slot] = min(size_bytes, most_bytes[slot] if most_bytes else MEMORY_MAX_BYTES)
    return cpu, memory


def prod_of(node: Node) -> Promised:
    """The machine's capacity without the reserved amounts; CPU as the node claims it."""
    zones = node.topology.zones if node.topology else ()
    cpu = [zone.cpu_capacity_mcpu for zone in zones]
    memory = [min(zone.memory_bytes, MEMORY_MAX_BYTES) for zone in zones]
    for share in node.reserved if zones else ():
        slot = node.slot(share.zone)
        cpu[slot] = max(0, cpu[slot] - share.cpu_mcpu)
        memory[slot] = max(0, memory[slot] - share.memory_bytes)
    if node.reported is not None:
        cpu = [min(amplified(mcpu, node.reported.rules), CPU_MAX_MCPU) for mcpu in cpu]
    return cpu, memory


def free_of(node: Node, name: PoolName, promised: Promised) -> tuple[list[int], list[int]]:
    """The free part of this capacity, with all holds of the pool subtracted again."""
    cpu, memory = list(promised[0]), list(promised[1])
    taken = list(claimed_of(node.room, node.reported)) if name is PoolName.PROD else []
    if node.count_of(name):
        for attempt, shares in node.holds.items():
            if node.pool_of(attempt) is name:
                taken += costs_of(node, name, shares, node.holdings.get(attempt))
    for share in taken:
        slot = node.slot(share.zone)
        cpu[slot] -= share.cpu_mcpu
        memory[slot] -= share.memory_bytes
    return cpu, memory
