"""Taking CPUs in whole pieces of the machine: sockets, then zones, then cores, then single CPUs.

The order is that of Koordinator's agent for node reservations (koordinator-sh/koordinator:pkg/koordlet/util/kubelet/
cpu_assignment.go): sockets before zones on every machine. Pieces of one level are ordered by (free CPUs, id), both ascending,
inside the pieces above them, so that small remainders are used up first.

A piece is whole when all its online CPUs are free. The original compares with the machine's average instead; that is the same on
every regular machine, and on others it would hand out CPUs that somebody holds.
"""

from collections.abc import Iterable, Sequence

from colo_common.model.cpuset import CpuSet
from colo_scheduler.cpus.topology import CpuTopology, cpus_of_mask

__all__ = ["PieceTaking", "take_sockets_first"]


def take_sockets_first(topology: CpuTopology, available: CpuSet, need: int) -> CpuSet | None:
    """The `need` CPUs that Koordinator's agent reserves on a node, or None when fewer are available.

    Free sockets no larger than the need, free zones, free cores, single CPUs; zones are listed inside the ordered sockets and
    cores inside the ordered zones. A need below 1 gives no CPU.
    """
    taking = PieceTaking(topology, available, need)
    if taking.is_short():
        return None
    taking.take_whole([topology.socket_masks[socket] for socket in taking.sockets()])
    taking.take_whole([topology.zone_masks[zone] for zone in taking.zones()])
    taking.take_whole(taking.cores(taking.zones(), topology.cores_of_zone))
    taking.take_single(taking.cores(taking.zones(), topology.cores_of_zone))
    return CpuSet(taking.taken)


class PieceTaking:
    """One choice under way: `free` may still be taken, `taken` is, `need` is what is still wanted."""

    def __init__(self, topology: CpuTopology, available: CpuSet, need: int) -> None:
        self.topology = topology
        self.free = available.mask & topology.all_mask
        self.taken = 0
        self.need = max(0, need)

    def is_short(self) -> bool:
        return self.free.bit_count() < self.need

    def take(self, mask: int) -> None:
        self.free &= ~mask
        self.taken |= mask
        self.need -= mask.bit_count()

    def take_whole(self, masks: Iterable[int]) -> None:
        """Take every piece that is wholly free and no larger than what is still needed, in this order."""
        for mask in masks:
            if mask & self.free == mask and mask.bit_count() <= self.need:
                self.take(mask)

    def take_single(self, cores: Sequence[int]) -> None:
        for mask in cores:
            for cpu in cpus_of_mask(mask & self.free):
                if self.need == 0:
                    return
                self.take(1 << cpu)

    def sockets(self) -> list[int]:
        """Indexes of the sockets that have a free CPU, in order."""
        return self._ordered(range(len(self.topology.socket_masks)), self.topology.socket_masks)

    def zones(self) -> list[int]:
        """Indexes of the zones that have a free CPU, in order; a zone that spans sockets stands in the first of them."""
        topology = self.topology
        found: dict[int, None] = {}
        for socket in self.sockets():
            free = self.free & topology.socket_masks[socket]
            zones = [zone for zone in topology.zones_of_socket[socket] if topology.zone_masks[zone] & free]
            found.update(dict.fromkeys(self._ordered(zones, topology.zone_masks)))
        return list(found)

    def cores(self, groups: Sequence[int], cores_of_group: Sequence[Sequence[int]]) -> list[int]:
        """Masks of the cores that have a free CPU, in order, group by group."""
        masks = self.topology.core_masks
        return [masks[core] for group in groups for core in self._ordered(cores_of_group[group], masks)]

    def _ordered(self, indexes: Iterable[int], masks: Sequence[int]) -> list[int]:
        """The pieces that have a free CPU, fewest free CPUs first, then the lowest id (indexes follow ids)."""
        counted = [((masks[index] & self.free).bit_count(), index) for index in indexes]
        return [index for count, index in sorted(counted) if count]
