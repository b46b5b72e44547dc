"""The topology of a machine: sockets, NUMA zones, physical cores, logical CPUs, last-level caches and devices."""

from functools import lru_cache
from typing import Final

from msgspec import Struct

from colo_common.model.constraints import HugePages
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.units import Bytes, Number, ZoneBytes

__all__ = ["Cache", "Cpu", "Device", "DevicePartition", "NodeTopology", "Zone", "uniform_topology"]

# Every sample reads the capacity of its zones, and the machines of a cluster have few different CPU lists.
_LISTS_REMEMBERED: Final = 4_096

# MAX_NUMNODES of mainstream kernels.
ZONES_MAX: Final = 1_024
_PARTITIONS_MAX: Final = 256
_DEVICE_LABELS_MAX: Final = 16
_TEXT_MOST: Final = 253


@lru_cache(maxsize=_LISTS_REMEMBERED)
def _cpu_count(cpus: str) -> int:
    return len(CpuSet.parse(cpus))


class Cpu(Struct, frozen=True, kw_only=True):
    """One logical CPU. `core`, `socket`, `zone` and `l3` are ids that are unique in the node; `die` is unique in its socket."""

    cpu: Number
    core: Number
    socket: Number
    zone: Number
    l3: Number = 0
    die: Number = 0


class Cache(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cache that its CPUs share; `cache` is the kernel's id, by which resctrl names domains. Ids need not be contiguous.

    `size_bytes` 0: the kernel does not say.
    """

    level: Number
    cache: Number
    cpus: str
    size_bytes: Bytes = 0


class Zone(Struct, frozen=True, kw_only=True):
    """One NUMA node. `cpus` is a kernel CPU list ("0-3,8"); `distances[i]` is the distance to the i-th zone of the topology."""

    zone: Number
    socket: Number
    cpus: str
    memory_bytes: ZoneBytes
    distances: tuple[Number, ...] = ()
    huge_pages: tuple[HugePages, ...] = ()

    @property
    def cpu_capacity_mcpu(self) -> int:
        """1000 for each online CPU of the zone."""
        return _cpu_count(self.cpus) * 1000


class Device(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One device; `device` is its number among the devices of its kind. `pcie` is the name of its PCIe root, "" when not known.

    `address` is its place on the PCI bus ("0000:3b:00.0"), by which its node finds its files, "" when not known.

    `labels` are pairs, sorted by name: `vendor` and `product` from the PCI bus, and the operator's labels.
    """

    kind: str
    device: Number
    zone: Number
    memory_bytes: Bytes = 0
    pcie: str = ""
    is_healthy: bool = True
    labels: tuple[tuple[str, str], ...] = ()
    address: str = ""


class DevicePartition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group of GPUs, by number, with fast links between them. The scheduler may give them out as one group.

    Groups of one size are given out in ascending `score`. `bandwidth_bytes_per_s` is that of their ring, None when not known.
    """

    devices: tuple[Number, ...]
    score: Number = 1
    bandwidth_bytes_per_s: Bytes | None = None


class NodeTopology(Struct, frozen=True, kw_only=True):
    """Zones in ascending id, online CPUs in ascending id, devices in ascending kind and number.

    `gpu_partitions` is the table of GPU groups, where the operator gave one. `offline` are CPUs that are present and not online;
    `isolated` and `nohz_full` those that the kernel's command line keeps from the scheduler and from the timer. `caches` are of
    level 2 and 3, in ascending level and id. `attributes` are pairs from files that the operator named, sorted by name.
    """

    zones: tuple[Zone, ...]
    cpus: tuple[Cpu, ...]
    devices: tuple[Device, ...] = ()
    gpu_partitions: tuple[DevicePartition, ...] = ()
    offline: str = ""
    isolated: str = ""
    nohz_full: str = ""
    caches: tuple[Cache, ...] = ()
    cpu_vendor: str = ""
    cpu_model: str = ""
    attributes: tuple[tuple[str, str], ...] = ()

    @property
    def cpu_capacity_mcpu(self) -> int:
        """1000 for each online CPU."""
        return len(self.cpus) * 1000

    @property
    def memory_capacity_bytes(self) -> int:
        """Memory of all zones."""
        return sum(zone.memory_bytes for zone in self.zones)

    def zone(self, zone_id: int) -> Zone | None:
        """The zone of that id, or None."""
        return next((zone for zone in self.zones if zone.zone == zone_id), None)

    def validate(self) -> None:
        """Raise InvalidInput unless zones and CPUs are ordered, disjoint, non-empty and agree with each other."""
        if not self.cpus:
            raise InvalidInput("topology.cpus", "at least one CPU is needed", self.cpus)
        if len(self.zones) > ZONES_MAX:
            raise InvalidInput("topology.zones", f"must be at most {ZONES_MAX}", len(self.zones))
        if not self.zones:
            raise InvalidInput("topology.zones", "at least one zone is needed", self.zones)
        cpu_ids = [cpu.cpu for cpu in self.cpus]
        if cpu_ids != sorted(set(cpu_ids)):
            raise InvalidInput("topology.cpus", "ids must ascend without repetition", cpu_ids)
        zone_ids = [zone.zone for zone in self.zones]
        if zone_ids != sorted(set(zone_ids)):
            raise InvalidInput("topology.zones", "ids must ascend without repetition", zone_ids)
        members: dict[int, list[int]] = {zone_id: [] for zone_id in zone_ids}
        for cpu in self.cpus:
            if cpu.zone not in members:
                raise InvalidInput(f"topology.cpus[{cpu.cpu}].zone", "names a zone that the node lacks", cpu.zone)
            members[cpu.zone].append(cpu.cpu)
        for zone in self.zones:
            if list(CpuSet.parse(zone.cpus)) != members[zone.zone]:
                raise InvalidInput(
                    f"topology.zones[{zone.zone}].cpus", "must equal the CPUs that name the zone", zone.cpus
                )
            if zone.memory_bytes < 0:
                raise InvalidInput(
                    f"topology.zones[{zone.zone}].memory_bytes", "must not be negative", zone.memory_bytes
                )
            if zone.distances and len(zone.distances) != len(self.zones):
                raise InvalidInput(
                    f"topology.zones[{zone.zone}].distances", "needs one distance a zone", zone.distances
                )
        for name in ("offline", "isolated", "nohz_full"):
            CpuSet.parse(getattr(self, name), f"topology.{name}")
        keys = [(cache.level, cache.cache) for cache in self.caches]
        if keys != sorted(set(keys)):
            raise InvalidInput("topology.caches", "levels and ids must ascend without repetition", keys[:10])
        self._check_devices(members)

    def _check_devices(self, members: dict[int, list[int]]) -> None:
        keys = [(device.kind, device.device) for device in self.devices]
        if keys != sorted(set(keys)):
            raise InvalidInput("topology.devices", "kinds and numbers must ascend without repetition", keys)
        for device in self.devices:
            where = f"topology.devices[{device.kind}-{device.device}]"
            if not device.kind:
                raise InvalidInput(f"{where}.kind", "must not be empty", device.kind)
            if device.zone not in members:
                raise InvalidInput(f"{where}.zone", "names a zone that the node lacks", device.zone)
            names = [name for name, _ in device.labels]
            if names != sorted(set(names)) or len(names) > _DEVICE_LABELS_MAX:
                rule = f"names must ascend without repetition, at most {_DEVICE_LABELS_MAX}"
                raise InvalidInput(f"{where}.labels", rule, names)
            if any(not 1 <= len(name) <= _TEXT_MOST or len(text) > _TEXT_MOST for name, text in device.labels):
                raise InvalidInput(f"{where}.labels", f"names and values are at most {_TEXT_MOST} characters", names)
        self._check_partitions()

    def _check_partitions(self) -> None:
        if len(self.gpu_partitions) > _PARTITIONS_MAX:
            raise InvalidInput(
                "topology.gpu_partitions", f"must be at most {_PARTITIONS_MAX}", len(self.gpu_partitions)
            )
        groups = [partition.devices for partition in self.gpu_partitions]
        if len(set(groups)) != len(groups):
            raise InvalidInput("topology.gpu_partitions", "a group may come once", groups[:10])
        for number, devices in enumerate(groups):
            if not devices or list(devices) != sorted(set(devices)):
                rule = "numbers must ascend without repetition, at least one"
                raise InvalidInput(f"topology.gpu_partitions[{number}].devices", rule, devices)


def uniform_topology(
    *, sockets: int, zones_per_socket: int, cpus_per_zone: int, memory_bytes_per_zone: int, threads_per_core: int = 2
) -> NodeTopology:
    """A regular machine: consecutive CPU ids in a core, cores in a zone, zones in a socket; one L3 a zone.

    Raises InvalidInput when a count is below 1 or the threads do not divide the CPUs of a zone.
    """
    for name, count in (("sockets", sockets), ("zones_per_socket", zones_per_socket), ("cpus_per_zone", cpus_per_zone)):
        if count < 1:
            raise InvalidInput(name, "must be at least 1", count)
    if threads_per_core < 1 or cpus_per_zone % threads_per_core:
        raise InvalidInput("threads_per_core", "must divide cpus_per_zone", threads_per_core)
    count = sockets * zones_per_socket
    zones: list[Zone] = []
    cpus: list[Cpu] = []
    for zone in range(count):
        first = zone * cpus_per_zone
        socket = zone // zones_per_socket
        ids = range(first, first + cpus_per_zone)
        distances = tuple(10 if z == zone else 12 if z // zones_per_socket == socket else 20 for z in range(count))
        zones.append(
            Zone(
                zone=zone,
                socket=socket,
                cpus=CpuSet.from_iterable(ids).format(),
                memory_bytes=memory_bytes_per_zone,
                distances=distances,
            )
        )
        cpus.extend(Cpu(cpu=i, core=i // threads_per_core, socket=socket, zone=zone, l3=zone) for i in ids)
    return NodeTopology(zones=tuple(zones), cpus=tuple(cpus))
