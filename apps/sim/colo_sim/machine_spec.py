"""The shape of a simulated machine, and the stated assumptions about how batch work disturbs online services."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import structs

from colo_common.events.node import Capability
from colo_common.model.constraints import HugePages
from colo_common.model.invalid import InvalidInput
from colo_common.model.topology import Device, NodeTopology, uniform_topology

__all__ = ["DEVICE_LABEL", "GIB", "Interference", "MachineSpec"]

DEVICE_LABEL = "devices"
"""The label of a simulated node that has devices."""

GIB = 2**30
MIB = 2**20
_PERMILLE = 1_000
_GPUS_A_ROOT = 2


@dataclass(frozen=True, slots=True)
class Interference:
    """Assumptions of the model that no trace can provide. ASSUMED, not measured; a report that uses them must state so.

    - `batch_weight_permille`: the share of a zone that batch keeps under contention (2 of 1024 weight, the kernel's least).
    - `wakeup_wait_permille`: while no CPU of a zone is idle, online threads there spend this share of the time waiting:
      a woken thread waits for a tick and for refilled caches even where it has all priority.
    - `smt_slowdown_permille`: how much longer a thread takes while the other one of its core is busy.
    - `harm_use_permille`: online work counts as hurt where its delay is above that of a zone which online work alone fills so far.
    - `stop_least_ms`, `stop_most_ms`: how long a replica takes to end after SIGTERM; one that would need longer than
      its grace is killed.
    - `memory_ramp_ms`: a replica's memory grows to its request in this time, linearly.
    """

    batch_weight_permille: int = 2
    wakeup_wait_permille: int = 100
    smt_slowdown_permille: int = 600
    harm_use_permille: int = 800
    stop_least_ms: int = 100
    stop_most_ms: int = 2_000
    memory_ramp_ms: int = 30_000

    def __post_init__(self) -> None:
        for name in ("batch_weight_permille", "wakeup_wait_permille", "smt_slowdown_permille", "harm_use_permille"):
            if not 0 <= getattr(self, name) <= _PERMILLE:
                raise InvalidInput(name, f"must be from 0 to {_PERMILLE}", getattr(self, name))
        if not 1 <= self.stop_least_ms <= self.stop_most_ms:
            raise InvalidInput("stop_least_ms", "must be from 1 to stop_most_ms", self.stop_least_ms)
        if self.memory_ramp_ms < 0:
            raise InvalidInput("memory_ramp_ms", "must be at least 0", self.memory_ramp_ms)


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """A regular machine: zones are numbered through, zone z has CPUs z x cpus_per_zone and following.

    GPUs hang two by two on PCIe roots of their zone, and its network cards on these roots, round-robin. Huge pages are of 2 MiB.

    `sub_step_ms` is how long demand is held before it is read again: 1 s for a lab, 10 s or more for a large fleet.
    """

    sockets: int = 2
    zones_per_socket: int = 2
    cpus_per_zone: int = 16
    memory_bytes_per_zone: int = 64 * GIB
    sub_step_ms: int = 1_000
    gpus_per_zone: int = 0
    nics_per_zone: int = 0
    memory_bytes_per_gpu: int = 80 * GIB
    huge_pages_per_zone: int = 0
    interference: Interference = Interference()

    def __post_init__(self) -> None:
        for name in ("sockets", "zones_per_socket", "cpus_per_zone", "memory_bytes_per_zone", "sub_step_ms"):
            if getattr(self, name) < 1:
                raise InvalidInput(name, "must be at least 1", getattr(self, name))
        for name in ("gpus_per_zone", "nics_per_zone", "memory_bytes_per_gpu", "huge_pages_per_zone"):
            if getattr(self, name) < 0:
                raise InvalidInput(name, "must be at least 0", getattr(self, name))

    @property
    def zones(self) -> int:
        """Number of NUMA zones."""
        return self.sockets * self.zones_per_socket

    @property
    def threads_per_core(self) -> int:
        """Two where the CPUs of a zone are even, else one."""
        return 2 if self.cpus_per_zone % 2 == 0 else 1

    @property
    def cpu_capacity_mcpu(self) -> int:
        """1000 for each CPU of the machine."""
        return self.zones * self.cpus_per_zone * 1_000

    @property
    def memory_capacity_bytes(self) -> int:
        """Memory of all zones."""
        return self.zones * self.memory_bytes_per_zone

    def capabilities(self) -> tuple[Capability, ...]:
        """The capabilities that its executor reports: all that placed work needs."""
        return (Capability(name="online", present=True, detail="simulated"),)

    def topology(self) -> NodeTopology:
        """Return the machine as a collector would report it."""
        topology = uniform_topology(
            sockets=self.sockets,
            zones_per_socket=self.zones_per_socket,
            cpus_per_zone=self.cpus_per_zone,
            memory_bytes_per_zone=self.memory_bytes_per_zone,
            threads_per_core=self.threads_per_core,
        )
        if self.huge_pages_per_zone:
            pages = (HugePages(page_bytes=2 * MIB, total_bytes=self.huge_pages_per_zone * 2 * MIB),)
            zones = tuple(structs.replace(zone, huge_pages=pages) for zone in topology.zones)
            topology = structs.replace(topology, zones=zones)
        return structs.replace(topology, devices=self._devices())

    def _devices(self) -> tuple[Device, ...]:
        roots = max(1, -(-self.gpus_per_zone // _GPUS_A_ROOT))
        gpus: list[Device] = []
        nics: list[Device] = []
        for zone in range(self.zones):
            names = [f"pci{zone:04x}:{root:02x}" for root in range(roots)]
            for number in range(self.gpus_per_zone):
                gpus.append(
                    Device(
                        kind="gpu",
                        device=len(gpus),
                        zone=zone,
                        memory_bytes=self.memory_bytes_per_gpu,
                        pcie=names[number // _GPUS_A_ROOT],
                        labels=(("model", "simulated"),),
                    )
                )
            for number in range(self.nics_per_zone):
                nics.append(Device(kind="nic", device=len(nics), zone=zone, pcie=names[number % roots]))
        return (*gpus, *nics)
