"""The state of one packing, and the order in which it looks at zones, sockets, caches and cores."""

from collections.abc import Iterable, Sequence

from colo_scheduler.cpus.topology import CpuTopology

__all__ = ["Packing"]


class Packing:
    """Free and taken CPUs as masks and the number still needed. Lives as long as one choice.

    Units are listed by (free CPUs, fewest first; id), those without a free CPU are left out. Where a zone holds one or more sockets
    (`is_zone_first`), sockets are listed zone by zone and cores socket by socket; else zones socket by socket and cores zone by
    zone. Every list shows the state at the time of the call and names a unit once.
    """

    def __init__(self, topology: CpuTopology, free: int, need: int) -> None:
        self.topology = topology
        self.free = free & topology.all_mask
        self.taken = 0
        self.need = need
        self.is_zone_first = len(topology.socket_ids) >= len(topology.zone_ids)

    def take(self, cpus: int) -> None:
        """Take a mask of free CPUs, which are not more than are needed."""
        self.free &= ~cpus
        self.taken |= cpus
        self.need -= cpus.bit_count()

    def take_cpus(self, cpus: Iterable[int]) -> None:
        """Take CPUs one by one until nothing is needed; one that is not free is passed over."""
        for cpu in cpus:
            if not self.need:
                return
            self.take(self.free & (1 << cpu))

    def zones(self) -> list[int]:
        """Zones with free CPUs."""
        topology = self.topology
        if self.is_zone_first:
            return self._sorted(range(len(topology.zone_ids)), topology.zone_masks)
        groups = (topology.zones_of_socket[socket] for socket in self.sockets())
        return _once(zone for group in groups for zone in self._sorted(group, topology.zone_masks))

    def sockets(self) -> list[int]:
        """Sockets with free CPUs."""
        topology = self.topology
        if not self.is_zone_first:
            return self._sorted(range(len(topology.socket_ids)), topology.socket_masks)
        groups = (topology.sockets_of_zone[zone] for zone in self.zones())
        return _once(socket for group in groups for socket in self._sorted(group, topology.socket_masks))

    def caches(self) -> list[int]:
        """Last-level caches with free CPUs, zone by zone."""
        topology = self.topology
        listed: list[int] = []
        for zone in self.zones():
            mask = topology.zone_masks[zone]
            in_zone = [l3 for l3, l3_mask in enumerate(topology.l3_masks) if l3_mask & mask]
            listed += self._sorted(in_zone, topology.l3_masks)
        return _once(listed)

    def cores(self) -> list[int]:
        """Cores with free CPUs."""
        topology, free = self.topology, self.free
        if self.is_zone_first:
            groups = [topology.cores_of_socket[socket] for socket in self.sockets()]
        else:
            groups = [topology.cores_of_zone[zone] for zone in self.zones()]
        listed: list[int] = []
        for group in groups:
            with_free = [
                (in_core, core) for core in group if (in_core := (free & topology.core_masks[core]).bit_count())
            ]
            if len(topology.socket_ids) > 1:
                with_free.sort(key=lambda pair: (pair[0], topology.cores[pair[1]][1], pair[1]))
            else:
                with_free.sort()
            listed += [core for _, core in with_free]
        return _once(listed)

    def _sorted(self, units: Iterable[int], masks: Sequence[int]) -> list[int]:
        with_free = [(in_unit, unit) for unit in units if (in_unit := (self.free & masks[unit]).bit_count())]
        with_free.sort()
        return [unit for _, unit in with_free]


def _once(units: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(units))
