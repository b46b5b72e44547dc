"""The index over a machine's CPUs: what it knows, and which machines it refuses."""

import msgspec
import pytest

from colo_common.model.cpu_topology import CpuRow, CpuTopology, cpus_of_mask
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.topology import uniform_topology
from tests.support.cpu_topology import topology_from_node

MACHINE = uniform_topology(sockets=2, zones_per_socket=2, cpus_per_zone=4, memory_bytes_per_zone=1)


class TestWhatItKnows:
    def test_a_node_of_the_collector_and_its_plain_rows_give_the_same_index(self) -> None:
        rows = [CpuRow(row.cpu, row.core, row.zone, row.socket, row.l3) for row in reversed(MACHINE.cpus)]
        assert topology_from_node(MACHINE) == CpuTopology.from_rows(rows)

    def test_it_counts_cpus_a_core_a_zone_and_a_socket(self) -> None:
        topology = topology_from_node(MACHINE)
        sizes = (topology.cpus_per_core, topology.cpus_per_zone, topology.cpus_per_socket, topology.cpu_count)
        assert sizes == (2, 4, 8, 16)
        assert topology.cpus_of_zone(2) == CpuSet.parse("8-11")

    def test_a_zone_that_is_not_there_has_no_cpus(self) -> None:
        topology = topology_from_node(MACHINE)
        assert not topology.cpus_of_zone(9)

    def test_core_ids_that_repeat_from_socket_to_socket_are_different_cores(self) -> None:
        topology = CpuTopology.from_rows(CpuRow(cpu, cpu % 2, cpu // 2, cpu // 2) for cpu in range(4))
        assert topology.cores == ((0, 0), (0, 1), (1, 0), (1, 1))
        assert topology.core_masks == (1, 2, 4, 8)

    def test_a_zone_may_span_sockets_and_a_socket_may_hold_zones(self) -> None:
        spanning = CpuTopology.from_rows(CpuRow(cpu, cpu, 0, cpu) for cpu in range(2))
        assert (spanning.sockets_of_zone, spanning.zones_of_socket) == (((0, 1),), ((0,), (0,)))
        topology = topology_from_node(MACHINE)
        assert topology.zones_of_socket == ((0, 1), (2, 3))

    def test_ids_may_have_gaps(self) -> None:
        topology = CpuTopology.from_rows([CpuRow(9, 4, 7, 3), CpuRow(2, 1, 5, 3)])
        assert topology.zone_ids == (5, 7)
        assert cpus_of_mask(topology.all_mask) == [2, 9]
        assert topology.core_of_cpu[3] == -1


class TestWhatItRefuses:
    @pytest.mark.parametrize(
        ("rows", "field"),
        [
            ([], "topology.cpus"),
            ([CpuRow(1, 0, 0, 0), CpuRow(1, 1, 0, 0)], "topology.cpus[1]"),
            ([CpuRow(-1, 0, 0, 0)], "topology.cpus[-1].cpu"),
            ([CpuRow(8192, 0, 0, 0)], "topology.cpus[8192].cpu"),
            ([CpuRow(0, 0, None, 0)], "topology.cpus[0].zone"),  # type: ignore[arg-type]
            ([CpuRow(0, 0, 0, -3)], "topology.cpus[0].socket"),
            ([CpuRow(0, 0, 0, 0, -1)], "topology.cpus[0].l3"),
            ([CpuRow(0, 0, 0, 0), CpuRow(1, 0, 1, 0)], "topology.cpus[1].zone"),
            ([CpuRow(0, 0, 0, 0, 1), CpuRow(1, 0, 0, 0, 2)], "topology.cpus[1].l3"),
        ],
        ids=[
            "no CPU",
            "twice",
            "negative",
            "too large",
            "no zone",
            "socket",
            "cache",
            "core in two zones",
            "two caches",
        ],
    )
    def test_rows_that_make_no_machine(self, rows: list[CpuRow], field: str) -> None:
        with pytest.raises(InvalidInput) as refused:
            CpuTopology.from_rows(rows)
        assert refused.value.field == field

    def test_a_node_with_a_missing_zone(self) -> None:
        with pytest.raises(InvalidInput, match="names a zone that the node lacks"):
            topology_from_node(msgspec.structs.replace(MACHINE, zones=MACHINE.zones[:3]))

    def test_a_node_whose_zones_overlap(self) -> None:
        wide = msgspec.structs.replace(MACHINE.zones[0], cpus="0-4")
        with pytest.raises(InvalidInput, match="must equal the CPUs that name the zone"):
            topology_from_node(msgspec.structs.replace(MACHINE, zones=(wide, *MACHINE.zones[1:])))
