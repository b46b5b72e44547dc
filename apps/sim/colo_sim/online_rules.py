"""Invariants of the online work in one node's ledger row: exclusive CPUs, and the capacity of each zone."""

from __future__ import annotations

from collections.abc import Iterable

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvariantBroken
from colo_common.model.placement import Placement
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.topology import NodeTopology

__all__ = ["check_online"]


def check_online(node: str, topology: NodeTopology, placements: Iterable[Placement]) -> int:
    """Check the placements of a node; returns the number of online ones. Raises InvariantBroken when

    - LSE or LSR has not exactly the whole CPUs that it asked for, zone by zone;
    - an exclusive CPU is held twice, or LSE leaves no CPU to the rest of the node;
    - requests of online work exceed CPU or memory of a zone.
    """
    everyone = tuple(placements)
    online = [placement for placement in everyone if placement.band is PriorityBand.PROD]
    taken: dict[int, str] = {}
    for placement in everyone:
        for cpu in _cpus(node, topology, placement):
            if cpu in taken:
                raise InvariantBroken("a CPU is held twice", node=node, cpu=cpu, by=(taken[cpu], placement.replica))
            taken[cpu] = placement.replica
    lse = {replica.replica for replica in online if replica.qos is QosClass.LSE}
    if all(taken.get(cpu.cpu) in lse for cpu in topology.cpus):
        raise InvariantBroken("LSE work leaves no CPU to the rest of the node", node=node)
    for zone in topology.zones:
        shares = [share for placement in online for share in placement.zones if share.zone == zone.zone]
        cpu_mcpu = sum(share.cpu_mcpu for share in shares)
        memory_bytes = sum(share.memory_bytes for share in shares)
        if cpu_mcpu > zone.cpu_capacity_mcpu or memory_bytes > zone.memory_bytes:
            raise InvariantBroken(
                "more online work is held than the zone has",
                node=node,
                zone=zone.zone,
                cpu_mcpu=cpu_mcpu,
                memory_bytes=memory_bytes,
            )
    return len(online)


def _cpus(node: str, topology: NodeTopology, placement: Placement) -> CpuSet:
    own = CpuSet.parse(placement.cpus)
    if not placement.qos.has_own_cpus and not own:
        return own
    for zone in topology.zones:
        here = sum(share.cpu_mcpu for share in placement.zones if share.zone == zone.zone)
        if len(own & CpuSet.parse(zone.cpus)) * 1_000 != here:
            raise InvariantBroken("own CPUs are not those that the zones' shares tell", node=node, placement=placement)
    if len(own) * 1_000 != placement.cpu_mcpu:
        raise InvariantBroken("own CPUs are not as many as were asked for", node=node, placement=placement)
    return own
