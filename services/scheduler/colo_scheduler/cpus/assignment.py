"""Taking CPUs in whole pieces of the machine: sockets, then zones, then cores, then single CPUs.

The order is that of Koordinator's agent for node reservations (koordinator-sh/koordinator:pkg/koordlet/util/kubelet/
cpu_assignment.go): sockets before zones on every machine. Pieces of one level are ordered by (free CPUs, id), both ascending,
inside the pieces above them.

A piece is whole when all its online CPUs are free. The original compares with the machine's average instead; that is the same on
every regular machine, and on others it would hand out CPUs that are held.
"""

from collections.abc import Iterator, Sequence

from colo_common.model.cpuset import CpuSet
from colo_scheduler.cpus.accumulator import CpuAccumulator
from colo_scheduler.cpus.topology import CpuTopology, cpus_of_mask

__all__ = ["cores_in", "free_cpus_in", "sockets_in_order", "take_sockets_first"]


def take_sockets_first(topology: CpuTopology, available: CpuSet, need: int) -> CpuSet | None:
    """The `need` CPUs that Koordinator's agent reserves on a node, or None when fewer are available.

    Free sockets no larger than the need, free zones, free cores, single CPUs; zones are listed inside the ordered sockets and
    cores inside the ordered zones. A need below 1 gives no CPU.
    """
    accumulator = CpuAccumulator(topology, available.mask, need)
    if accumulator.short_count:
        return None
    accumulator.take_whole([topology.socket_masks[socket] for socket in sockets_in_order(accumulator)])
    accumulator.take_whole([topology.zone_masks[zone] for zone in _zones_in_order(accumulator)])
    accumulator.take_whole(cores_in(accumulator, _zones_in_order(accumulator), topology.cores_of_zone))
    cores = cores_in(accumulator, _zones_in_order(accumulator), topology.cores_of_zone)
    accumulator.take_cpus(free_cpus_in(accumulator, cores))
    return CpuSet(accumulator.taken)


def sockets_in_order(accumulator: CpuAccumulator) -> list[int]:
    """Indexes of the sockets that have a free CPU, in order."""
    masks = accumulator.topology.socket_masks
    return accumulator.fewest_free_first(range(len(masks)), masks)


def _zones_in_order(accumulator: CpuAccumulator) -> list[int]:
    """Indexes of the zones that have a free CPU, in order; a zone that spans sockets stands in the first of them."""
    topology = accumulator.topology
    found: dict[int, None] = {}
    for socket in sockets_in_order(accumulator):
        free = accumulator.free & topology.socket_masks[socket]
        zones = [zone for zone in topology.zones_of_socket[socket] if topology.zone_masks[zone] & free]
        found.update(dict.fromkeys(accumulator.fewest_free_first(zones, topology.zone_masks)))
    return list(found)


def cores_in(accumulator: CpuAccumulator, groups: Sequence[int], cores_of_group: Sequence[Sequence[int]]) -> list[int]:
    """Masks of the cores that have a free CPU, in order, group by group."""
    masks = accumulator.topology.core_masks
    return [masks[core] for group in groups for core in accumulator.fewest_free_first(cores_of_group[group], masks)]


def free_cpus_in(accumulator: CpuAccumulator, masks: Sequence[int]) -> Iterator[int]:
    """The free CPUs of these pieces, piece by piece, by id."""
    free = accumulator.free
    return (cpu for mask in masks for cpu in cpus_of_mask(mask & free))
