"""Taking CPUs in whole pieces of the machine: sockets, then caches or zones, then cores, then single CPUs.

Two orders are kept. `take_by_topology` is Katalyst's (kubewharf/katalyst-core:pkg/agent/qrm-plugins/cpu/dynamicpolicy/calculator/
cpu_assignment.go): it knows caches and no zones. `take_sockets_first` is that of Koordinator's agent for node reservations
(koordinator-sh/koordinator:pkg/koordlet/util/kubelet/cpu_assignment.go): sockets before zones on every machine. In both, pieces of
one level are ordered by (free CPUs, id), both ascending, inside the pieces above them, so that small remainders are used up first.

A piece is whole when all its online CPUs are free. The originals compare with the machine's average instead; that is the same on
every regular machine, and on others it would hand out CPUs that somebody holds.
"""

from collections.abc import Iterable, Sequence

from colo_common.model.cpuset import CpuSet
from colo_scheduler.cpus.topology import CpuTopology, cpus_of_mask

__all__ = ["take_by_topology", "take_sockets_first"]


def take_by_topology(
    topology: CpuTopology, available: CpuSet, need: int, *, caches: Sequence[int] | None = None
) -> CpuSet | None:
    """The `need` CPUs that Katalyst takes, or None when fewer are available. The same input gives the same CPUs.

    Free sockets no larger than the need; then, with `caches` (masks of last-level caches in order of id, `topology.l3_masks`),
    the cache that fits best: one with exactly as many free CPUs as needed, else the smallest larger one and from there on nothing
    outside of it, else the largest smaller one whole, and again; then free cores; then single CPUs. Equal caches: the first.
    A need below 1 gives no CPU.
    """
    taking = _Taking(topology, available, need)
    if taking.is_short():
        return None
    taking.take_whole([topology.socket_masks[socket] for socket in taking.sockets()])
    if caches is not None:
        taking.align(caches)
    taking.take_whole(taking.cores(taking.sockets(), topology.cores_of_socket))
    taking.take_single(taking.cores(taking.sockets(), topology.cores_of_socket))
    return CpuSet(taking.taken)


def take_sockets_first(topology: CpuTopology, available: CpuSet, need: int) -> CpuSet | None:
    """The `need` CPUs that Koordinator's agent reserves on a node, or None when fewer are available.

    Free sockets no larger than the need, free zones, free cores, single CPUs; zones are listed inside the ordered sockets and
    cores inside the ordered zones. A need below 1 gives no CPU.
    """
    taking = _Taking(topology, available, need)
    if taking.is_short():
        return None
    taking.take_whole([topology.socket_masks[socket] for socket in taking.sockets()])
    taking.take_whole([topology.zone_masks[zone] for zone in taking.zones()])
    taking.take_whole(taking.cores(taking.zones(), topology.cores_of_zone))
    taking.take_single(taking.cores(taking.zones(), topology.cores_of_zone))
    return CpuSet(taking.taken)


class _Taking:
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

    def align(self, caches: Sequence[int]) -> None:
        """Choose caches until one holds what is left of the need, or nothing is left of it."""
        while self.need > 0:
            sizes = [(mask, (mask & self.free).bit_count()) for mask in caches if mask & self.free]
            if not sizes:
                return
            enough = [entry for entry in sizes if entry[1] >= self.need]
            mask, size = min(enough, key=_size) if enough else max(sizes, key=_size)
            if size > self.need:
                self.free &= mask
                return
            self.take(mask & self.free)

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


def _size(entry: tuple[int, int]) -> int:
    return entry[1]
