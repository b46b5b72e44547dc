"""Whether what the ledger holds on a node agrees with what the node is. Where it does not, nothing more is placed there."""

from collections.abc import Iterable

from colo_common.model.placement import ZoneShare
from colo_common.model.topology import NodeTopology
from colo_scheduler.cluster import Node

__all__ = ["disagreement_of"]


def disagreement_of(node: Node) -> str:
    """One sentence that names the first contradiction; empty when there is none or the node has not said yet what it is.

    Batch work is given what others do not use, so both pools together may hold more than the machine has, but neither alone.
    """
    if node.unreadable:
        return f"{len(node.unreadable)} entries of the ledger row cannot be read; the first: {node.unreadable[0]}"
    if node.topology is None:
        return ""
    prod = [shares for attempt, shares in node.holds.items() if attempt in node.prod]
    batch = [shares for attempt, shares in node.holds.items() if attempt not in node.prod]
    return _contradiction(node.topology, "batch", batch) or _contradiction(node.topology, "prod", prod)


def _contradiction(topology: NodeTopology, pool: str, holds: Iterable[tuple[ZoneShare, ...]]) -> str:
    cpu: dict[int, int] = {}
    memory: dict[int, int] = {}
    for shares in holds:
        for share in shares:
            cpu[share.zone] = cpu.get(share.zone, 0) + share.cpu_mcpu
            memory[share.zone] = memory.get(share.zone, 0) + share.memory_bytes
    zones = {zone.zone: zone for zone in topology.zones}
    for number in sorted(cpu):
        zone = zones.get(number)
        if zone is None:
            return f"the ledger holds CPU in zone {number}, which the node lacks"
        if cpu[number] > zone.cpu_capacity_mcpu:
            return f"{pool} work holds {cpu[number]} mCPU in zone {number}, which has {zone.cpu_capacity_mcpu}"
        if memory[number] > zone.memory_bytes:
            return f"{pool} work holds {memory[number]} bytes in zone {number}, which has {zone.memory_bytes}"
    return ""
