"""The machines: sizes of a real cluster, each split into zones of equal size, or one size only."""

from __future__ import annotations

from typing import Final, NamedTuple

from colo_common.model.topology import NodeTopology, uniform_topology
from tests.bench.openb import MIB
from tests.evidence.mix import Ask

__all__ = ["Fleet", "Machine", "openb_fleet", "uniform_fleet"]

# fmt: off
#: (nodes, mcpu, MiB) of the 1,523 nodes of the openb trace (cluster-trace-gpu-v2023), the most frequent first.
_OPENB_NODES: Final = (
    (596, 96_000, 393_216), (407, 104_000, 524_288), (129, 32_000, 262_144), (107, 16_000, 122_880),
    (59, 96_000, 524_288), (51, 32_000, 131_072), (39, 128_000, 786_432), (37, 64_000, 262_144), (22, 96_000, 786_432),
    (22, 64_000, 524_288), (19, 8_000, 32_768), (10, 32_000, 65_536), (9, 48_000, 376_832), (5, 8_000, 61_440),
    (4, 64_000, 131_072), (3, 104_000, 786_432), (2, 128_000, 1_048_576), (1, 82_000, 344_064), (1, 104_000, 196_608),
)
# fmt: on


class Machine(NamedTuple):
    """A machine of equal zones, the same number on each socket."""

    sockets: int
    zones_per_socket: int
    zone_mcpu: int
    zone_bytes: int

    @property
    def zones(self) -> int:
        """How many zones it has."""
        return self.sockets * self.zones_per_socket

    @property
    def cpu_mcpu(self) -> int:
        """CPU of all zones."""
        return self.zones * self.zone_mcpu

    @property
    def memory_bytes(self) -> int:
        """Memory of all zones."""
        return self.zones * self.zone_bytes

    @property
    def socket_of_zone(self) -> tuple[int, ...]:
        """The socket of each zone."""
        return tuple(zone // self.zones_per_socket for zone in range(self.zones))

    @property
    def topology(self) -> NodeTopology:
        """The machine as a collector would tell it. Its zones must have whole CPUs."""
        cpus = self.zone_mcpu // 1_000
        return uniform_topology(
            sockets=self.sockets,
            zones_per_socket=self.zones_per_socket,
            cpus_per_zone=cpus,
            memory_bytes_per_zone=self.zone_bytes,
            threads_per_core=1 if cpus % 2 else 2,
        )

    def holds(self, ask: Ask) -> bool:
        """Whether it could hold the request if it were empty."""
        return ask.cpu_mcpu <= self.cpu_mcpu and ask.memory_bytes <= self.memory_bytes


class Fleet(NamedTuple):
    """Machines in the order of their names."""

    name: str
    machines: tuple[Machine, ...]

    @property
    def cpu_mcpu(self) -> int:
        """CPU of all machines."""
        return sum(machine.cpu_mcpu for machine in self.machines)

    @property
    def memory_bytes(self) -> int:
        """Memory of all machines."""
        return sum(machine.memory_bytes for machine in self.machines)

    def holds(self, ask: Ask) -> bool:
        """Whether some machine could hold the request if it were empty."""
        return any(machine.holds(ask) for machine in set(self.machines))


def openb_fleet(nodes: int) -> Fleet:
    """So many machines with the sizes of the openb trace, as often as there, each of two sockets with one zone.

    Which sizes a small fleet has is decided by the largest remainders; machines of a size are spread evenly over the names.
    """
    total = sum(count for count, _, _ in _OPENB_NODES)
    counts = [nodes * count // total for count, _, _ in _OPENB_NODES]
    largest = sorted(range(len(counts)), key=lambda at: (-(nodes * _OPENB_NODES[at][0] % total), at))
    for at in largest[: nodes - sum(counts)]:
        counts[at] += 1
    placed = sorted(
        ((2 * number + 1) / (2 * count), at, number) for at, count in enumerate(counts) for number in range(count)
    )
    machines = tuple(Machine(2, 1, _OPENB_NODES[at][1] // 2, _OPENB_NODES[at][2] // 2 * MIB) for _, at, _ in placed)
    return Fleet(f"{nodes} nodes with the sizes of openb, 2 sockets x 1 zone", machines)


def uniform_fleet(nodes: int) -> Fleet:
    """So many machines of 96 CPUs and 384 GiB, openb's most frequent size, each of two sockets with two zones."""
    return Fleet(
        f"{nodes} equal nodes, 96 CPUs and 384 GiB, 2 sockets x 2 zones",
        (Machine(2, 2, 24_000, 96 * 1_024 * MIB),) * nodes,
    )
