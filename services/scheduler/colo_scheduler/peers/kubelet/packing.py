"""The order in which the kubelet's packing looks at zones, sockets, caches and cores."""

from collections.abc import Iterable

from colo_scheduler.cpus.accumulator import CpuAccumulator

__all__ = ["PackingOrder"]


class PackingOrder:
    """Lists the units of a machine as they are in an accumulator at the time of the call.

    Units are listed by (free CPUs, fewest first; id), those without a free CPU are left out. Where a zone holds one or more sockets
    (`is_zone_first`), sockets are listed zone by zone and cores socket by socket; else zones socket by socket and cores zone by
    zone. Every list names a unit once.
    """

    def __init__(self, accumulator: CpuAccumulator) -> None:
        self.accumulator = accumulator
        self.topology = accumulator.topology
        self.is_zone_first = len(self.topology.socket_ids) >= len(self.topology.zone_ids)

    def zones(self) -> list[int]:
        """Zones with free CPUs."""
        topology = self.topology
        if self.is_zone_first:
            return self.accumulator.fewest_free_first(range(len(topology.zone_ids)), topology.zone_masks)
        groups = (topology.zones_of_socket[socket] for socket in self.sockets())
        return _once(
            zone for group in groups for zone in self.accumulator.fewest_free_first(group, topology.zone_masks)
        )

    def sockets(self) -> list[int]:
        """Sockets with free CPUs."""
        topology = self.topology
        if not self.is_zone_first:
            return self.accumulator.fewest_free_first(range(len(topology.socket_ids)), topology.socket_masks)
        groups = (topology.sockets_of_zone[zone] for zone in self.zones())
        return _once(
            socket for group in groups for socket in self.accumulator.fewest_free_first(group, topology.socket_masks)
        )

    def caches(self) -> list[int]:
        """Last-level caches with free CPUs, zone by zone."""
        topology = self.topology
        listed: list[int] = []
        for zone in self.zones():
            mask = topology.zone_masks[zone]
            in_zone = [l3 for l3, l3_mask in enumerate(topology.l3_masks) if l3_mask & mask]
            listed += self.accumulator.fewest_free_first(in_zone, topology.l3_masks)
        return _once(listed)

    def cores(self) -> list[int]:
        """Cores with free CPUs."""
        topology, free = self.topology, self.accumulator.free
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


def _once(units: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(units))
