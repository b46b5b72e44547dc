"""The CPUs still free and those already taken, in the middle of one choice.

One accumulator serves every order in which CPUs are taken. An order says which sockets, zones, caches, cores or CPUs come first;
whether a piece is whole, and what taking it leaves, is answered here.

CPUs are taken in whole pieces of the machine: sockets, then zones, then cores, then single CPUs. That order is the one of
Koordinator's agent for node reservations (koordinator-sh/koordinator:pkg/koordlet/util/kubelet/cpu_assignment.go): sockets before
zones on every machine. Pieces of one level are ordered by (free CPUs, id), both ascending, inside the pieces above them.

A piece is whole when all its online CPUs are free. The original compares with the machine's average instead; that is the same on
every regular machine, and on others it would hand out CPUs that are held.
"""

from collections.abc import Iterable, Iterator, Sequence

from colo_common.model.cpu_topology import CpuTopology, cpus_of_mask
from colo_common.model.cpuset import CpuSet

__all__ = ["CpuAccumulator", "cores_in", "free_cpus_in", "sockets_in_order", "take_sockets_first"]


class CpuAccumulator:
    """Free and taken CPUs as masks, and the number still needed, never below 0. Lives as long as one choice.

    `need` falls by one with every CPU taken. A piece is named by its index in the topology, whose indexes follow ids.
    """

    def __init__(self, topology: CpuTopology, free: int, need: int) -> None:
        self.topology = topology
        self.free = free & topology.all_mask
        self.taken = 0
        self.need = max(0, need)

    @property
    def short_count(self) -> int:
        """How many CPUs are needed and not free, 0 when there are enough."""
        return max(0, self.need - self.free.bit_count())

    def take(self, cpus: int) -> None:
        """Take a mask of free CPUs, which are not more than are needed."""
        self.free &= ~cpus
        self.taken |= cpus
        self.need -= cpus.bit_count()

    def take_whole(self, masks: Iterable[int]) -> None:
        """Take every piece that is wholly free and no larger than what is still needed, in this order."""
        for mask in masks:
            if not self.need:
                return
            if not mask & ~self.free and mask.bit_count() <= self.need:
                self.take(mask)

    def take_cpus(self, cpus: Iterable[int]) -> None:
        """Take single CPUs in this order until nothing is needed; one that is not free is passed over."""
        taken, need = 0, self.need
        for cpu in cpus:
            if not need:
                break
            bit = 1 << cpu & self.free & ~taken
            if bit:
                taken |= bit
                need -= 1
        self.take(taken)

    def keep_to(self, cpus: int) -> None:
        """Take no CPU outside of this mask from now on."""
        self.free &= cpus

    def fewest_free_first(self, pieces: Iterable[int], masks: Sequence[int]) -> list[int]:
        """The pieces that have a free CPU, by (free CPUs, index), both ascending, so that small remainders are used up first."""
        counted = [(count, piece) for piece in pieces if (count := (masks[piece] & self.free).bit_count())]
        counted.sort()
        return [piece for _, piece in counted]


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
