"""Choosing CPUs by the rules of the kubelet's static policy and its options."""

import pytest

from colo_common.model.cpu_topology import CpuRow, CpuTopology
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.reasons import Reason
from colo_common.model.topology import uniform_topology
from colo_scheduler.cpus.binding import NoCpus
from colo_scheduler.peers.kubelet.options import KubeletOptions
from colo_scheduler.peers.kubelet.static_policy import choose_static, take_distributed
from tests.support.cpu_topology import topology_from_node

# Two sockets of two zones, four cores of two threads in each: CPUs 0-7, 8-15, 16-23, 24-31.
MACHINE = topology_from_node(uniform_topology(sockets=2, zones_per_socket=2, cpus_per_zone=8, memory_bytes_per_zone=1))
# One zone, four caches of four cores of two threads; threads of a core are 16 apart.
CACHES = CpuTopology.from_rows(CpuRow(cpu, cpu % 16, 0, 0, cpu % 16 // 4) for cpu in range(32))


def choose(
    topology: CpuTopology,
    count: int,
    options: KubeletOptions,
    reserved: str = "",
    zones: tuple[int, ...] = (),
) -> str:
    found = choose_static(topology, count, options, (), CpuSet.parse(reserved), zones)
    assert isinstance(found, CpuSet), found
    return found.format()


def many_zones(zones: int, cpus_per_zone: int = 32) -> CpuTopology:
    return topology_from_node(
        uniform_topology(sockets=2, zones_per_socket=zones // 2, cpus_per_zone=cpus_per_zone, memory_bytes_per_zone=1)
    )


def taken_by_zone(topology: CpuTopology, cpus: CpuSet) -> list[int]:
    return [len(cpus & topology.cpus_of_zone(zone)) for zone in topology.zone_ids]


class TestPacked:
    def test_a_whole_socket_then_a_whole_zone_then_cores_then_a_thread(self) -> None:
        assert choose(MACHINE, 27, KubeletOptions()) == "0-26"

    def test_begun_places_are_filled_first(self) -> None:
        assert choose(MACHINE, 3, KubeletOptions(), reserved="24-25,30") == "26-27,31"

    def test_across_cores_takes_the_lowest_cpus_of_the_fullest_socket(self) -> None:
        topology = CpuTopology.from_rows(CpuRow(cpu, cpu % 4, 0, 0) for cpu in range(8))
        assert choose(topology, 4, KubeletOptions(is_across_cores=True)) == "0-3"
        assert choose(topology, 4, KubeletOptions()) == "0-1,4-5"

    def test_the_zones_of_a_hint_come_first_and_others_after_them(self) -> None:
        assert choose(MACHINE, 10, KubeletOptions(), reserved="0-11", zones=(2,)) == "12-13,16-23"

    def test_align_by_socket_widens_the_hint_to_its_sockets(self) -> None:
        options = KubeletOptions(is_by_socket=True)
        assert choose(MACHINE, 10, options, reserved="0-11", zones=(2,)) == "16-25"


class TestOptions:
    def test_options_that_exclude_each_other_are_named(self) -> None:
        options = KubeletOptions(is_across_cores=True, is_across_numa=True)
        with pytest.raises(InvalidInput) as refused:
            choose_static(MACHINE, 1, options)
        assert refused.value.field == "kubelet.is_across_cores"


class TestFullCpusOnly:
    def test_half_a_core_is_refused_with_the_kubelets_words(self) -> None:
        assert choose_static(MACHINE, 3, KubeletOptions(is_full_pcpus_only=True)) == NoCpus(
            reason=Reason.CPUS_NOT_WHOLE_CORES,
            detail="SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2",
        )

    def test_begun_cores_are_no_room(self) -> None:
        options = KubeletOptions(is_full_pcpus_only=True)
        assert choose(MACHINE, 2, options, reserved="0-21,24,26,28,30") == "22-23"
        found = choose_static(MACHINE, 4, options, (), CpuSet.parse("0-21,24,26,28,30"))
        assert isinstance(found, NoCpus)
        assert found.short_count == 2


class TestCaches:
    BY_CACHE = KubeletOptions(is_by_l3=True)

    def test_a_request_of_a_cache_gets_one_although_others_are_begun(self) -> None:
        assert choose(CACHES, 8, self.BY_CACHE, reserved="0-1,16-17") == "4-7,20-23"
        assert choose(CACHES, 8, KubeletOptions(), reserved="0-1,16-17") == "2-5,18-21"

    def test_a_smaller_request_gets_a_begun_cache_that_has_room_for_all_of_it(self) -> None:
        assert choose(CACHES, 4, self.BY_CACHE, reserved="4-5,20-21") == "6-7,22-23"
        assert choose(CACHES, 6, self.BY_CACHE, reserved="4-5,20-21") == "0-2,16-18"

    def test_an_odd_request_ends_with_one_thread(self) -> None:
        assert choose(CACHES, 11, self.BY_CACHE) == "0-5,16-20"

    def test_a_cache_with_begun_cores_is_used_when_it_has_room(self) -> None:
        assert choose(CACHES, 4, self.BY_CACHE, reserved="0,8-15,24-31") == "1-2,17-18"

    def test_a_rest_that_no_cache_holds_is_packed_by_cores(self) -> None:
        assert choose(CACHES, 5, self.BY_CACHE, reserved="1-3,5-7,9-11,13-15,17-19,21-23,25-27,29-31") == "0,4,8,16,20"

    def test_without_known_caches_the_socket_is_one(self) -> None:
        topology = CpuTopology.from_rows(CpuRow(cpu, cpu // 2, cpu // 8, cpu // 16) for cpu in range(32))
        assert choose(topology, 6, self.BY_CACHE) == choose(topology, 6, KubeletOptions())


class TestDistributed:
    ACROSS = KubeletOptions(is_across_numa=True)

    def test_one_zone_is_enough_for_what_fits_one(self) -> None:
        assert choose(MACHINE, 8, self.ACROSS) == "0-7"

    def test_more_is_taken_evenly_from_as_few_zones_as_hold_it(self) -> None:
        assert choose(MACHINE, 12, self.ACROSS) == "0-5,8-13"

    def test_the_rest_goes_where_it_leaves_the_machine_even(self) -> None:
        found = choose_static(MACHINE, 13, self.ACROSS, (), CpuSet.parse("0"))
        assert isinstance(found, CpuSet)
        assert taken_by_zone(MACHINE, found) == [0, 7, 6, 0]

    def test_align_by_socket_prefers_zones_of_one_socket(self) -> None:
        options = KubeletOptions(is_across_numa=True, is_by_socket=True)
        reserved = "0-1,16-17"  # the even sets cross sockets: zones 1 and 3 are the most free
        assert choose(MACHINE, 12, self.ACROSS, reserved) == "8-13,24-29"
        assert choose(MACHINE, 12, options, reserved) == "2-13"

    def test_groups_of_two_with_odd_numbers_free_end(self) -> None:
        # Seven free in each of two zones hold three groups each: a rest of one group has a place, a fourth one has not.
        topology = CpuTopology.from_rows(CpuRow(cpu, cpu // 2, cpu // 8, cpu // 8) for cpu in range(16))
        free = topology.all_mask & ~(1 << 0) & ~(1 << 8)
        found = take_distributed(topology, free, 10, 2)
        assert isinstance(found, int)
        assert sorted(taken_by_zone(topology, CpuSet(found))) == [4, 6]
        packed = take_distributed(topology, free, 14, 2)
        assert packed == free

    @pytest.mark.parametrize("zones", [6, 8, 16, 64])
    def test_many_zones_with_different_room_are_shared_evenly_and_in_bounded_work(self, zones: int) -> None:
        topology = many_zones(zones)
        reserved = CpuSet()
        for zone in range(zones):
            reserved = reserved | topology.cpus_of_zone(zone).first(zone * 5 % 29)
        free = topology.cpu_count - len(reserved)
        for count in range(3, free, free // 7):
            found = choose_static(topology, count, self.ACROSS, (), reserved)
            assert isinstance(found, CpuSet)
            assert len(found) == count
            assert found.is_disjoint(reserved)

    def test_a_search_cut_short_still_takes_the_same_from_each_zone(self) -> None:
        topology = many_zones(32)
        reserved = CpuSet()
        for zone in range(32):
            reserved = reserved | topology.cpus_of_zone(zone).first(zone // 2)
        found = choose_static(topology, 16 * 16 + 5, self.ACROSS, (), reserved)
        assert isinstance(found, CpuSet)
        taken = [count for count in taken_by_zone(topology, found) if count]
        assert len(found) == 261
        assert max(taken) - min(taken) <= 6
