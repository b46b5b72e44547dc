"""Choosing CPUs by Koordinator's rules, through the door the scheduler uses."""

import pytest

from colo_common.model.cpu_topology import CpuRow, CpuTopology, cpus_of_mask
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import ZoneShare
from colo_common.model.reasons import Reason
from colo_common.model.topology import uniform_topology
from colo_scheduler.cpus.accumulate import Wish, take_cpus, take_preferred_cpus
from colo_scheduler.cpus.binding import BindPolicy, ExclusivePolicy, NoCpus, NumaStrategy
from colo_scheduler.cpus.choose import CpuRequest, choose_cpus
from colo_scheduler.cpus.exclusive import HeldCpus, Holders, sum_holders
from tests.support.cpu_topology import topology_from_node

FULL, SPREAD = BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS
MOST = NumaStrategy.MOST_ALLOCATED
# Two sockets of two zones, four cores of two threads in each: CPUs 0-7, 8-15, 16-23, 24-31.
MACHINE = topology_from_node(uniform_topology(sockets=2, zones_per_socket=2, cpus_per_zone=8, memory_bytes_per_zone=1))


def held(cpus: str, exclusive: ExclusivePolicy = ExclusivePolicy.NONE) -> HeldCpus:
    return HeldCpus(cpus=CpuSet.parse(cpus), exclusive=exclusive)


def share(zone: int, cpus: int) -> ZoneShare:
    return ZoneShare(zone=zone, cpu_mcpu=cpus * 1000, memory_bytes=0)


def cpus_of(found: CpuSet | NoCpus) -> str:
    assert isinstance(found, CpuSet), found
    return found.format()


class TestWhereCpusLie:
    def test_whole_cores_come_from_the_zone_with_the_most_room(self) -> None:
        assert cpus_of(choose_cpus(MACHINE, CpuRequest(count=4), [held("0-1,8-9,16-17")])) == "24-27"

    def test_or_from_the_one_with_the_least_that_is_enough(self) -> None:
        request = CpuRequest(count=4, strategy=MOST)
        assert cpus_of(choose_cpus(MACHINE, request, [held("0-1,8-13")])) == "2-5"

    def test_spread_cpus_take_one_thread_of_each_core(self) -> None:
        assert cpus_of(choose_cpus(MACHINE, CpuRequest(count=4, bind=SPREAD))) == "0,2,4,6"

    def test_spread_cpus_double_up_where_the_zone_has_no_more_cores(self) -> None:
        topology = CpuTopology.from_rows(CpuRow(cpu, cpu // 2, 0, 0) for cpu in range(8))
        assert cpus_of(choose_cpus(topology, CpuRequest(count=6, bind=SPREAD))) == "0-4,6"

    def test_what_no_zone_has_comes_from_one_socket(self) -> None:
        assert cpus_of(choose_cpus(MACHINE, CpuRequest(count=12, strategy=MOST), [held("0-1")])) == "2-13"

    def test_what_no_socket_has_takes_whole_sockets_first(self) -> None:
        assert cpus_of(choose_cpus(MACHINE, CpuRequest(count=20), [held("0-1")])) == "2-5,16-31"

    def test_an_odd_count_over_three_sockets_takes_not_a_thread_too_many(self) -> None:
        topology = CpuTopology.from_rows(CpuRow(cpu, cpu // 2, cpu // 6, cpu // 6) for cpu in range(24))
        found = choose_cpus(topology, CpuRequest(count=9))
        assert cpus_of(found) == "0-8"

    def test_cores_of_different_sizes_are_full_when_all_their_cpus_are_free(self) -> None:
        # Two cores with two threads and two with one.
        topology = CpuTopology.from_rows(CpuRow(cpu, core, 0, 0) for cpu, core in enumerate((0, 0, 1, 1, 2, 3)))
        required = CpuRequest(count=3, is_bind_required=True)
        assert cpus_of(choose_cpus(topology, CpuRequest(count=4))) == "0-3"
        assert choose_cpus(topology, required, [held("0,2")]) == NoCpus(
            reason=Reason.CPUS_SHORT, detail="not enough cpus available to satisfy request", short_count=1
        )


class TestWhatMayBeGiven:
    def test_neither_reserved_cpus_nor_those_of_others_are(self) -> None:
        found = choose_cpus(MACHINE, CpuRequest(count=2), [held("0-7"), held("10-31")], CpuSet.parse("8"))
        assert found == NoCpus(
            reason=Reason.CPUS_SHORT, detail="not enough cpus available to satisfy request", short_count=1
        )

    def test_the_rest_of_a_reservation_is_taken_first_although_it_is_held(self) -> None:
        request = CpuRequest(count=4, preferred=(CpuSet.parse("30-31"),))
        assert cpus_of(choose_cpus(MACHINE, request, [held("30-31")])) == "0-1,30-31"

    def test_a_preferred_cpu_with_another_holder_stays_his(self) -> None:
        request = CpuRequest(count=2, preferred=(CpuSet.parse("30-31"),))
        assert cpus_of(choose_cpus(MACHINE, request, [held("30-31"), held("30")])) == "0,31"

    def test_holders_are_counted_and_released_one_by_one(self) -> None:
        everyone = [held("0-3"), held("2-5", ExclusivePolicy.PCPU_LEVEL), held("3", ExclusivePolicy.NUMA_NODE_LEVEL)]
        holders = sum_holders(everyone, [CpuSet.parse("3-4"), CpuSet.parse("3,9")])
        assert [cpus_of_mask(plane) for plane in holders.planes] == [[0, 1, 2, 3, 5], [2]]
        assert (CpuSet(holders.pcpu_level).format(), CpuSet(holders.zone_level).format()) == ("2-3,5", "3")
        assert CpuSet(holders.held_by(2)).format() == "2"
        assert holders.held_by(3) == 0


class TestExclusivePolicies:
    def test_cores_of_another_exclusive_holder_are_avoided(self) -> None:
        request = CpuRequest(count=2, bind=SPREAD, exclusive=ExclusivePolicy.PCPU_LEVEL)
        holders = [held("0,2", ExclusivePolicy.PCPU_LEVEL), held("8-31")]
        assert choose_cpus(MACHINE, request, holders) == CpuSet.parse("4,6")

    def test_holders_without_the_policy_are_no_reason_to_keep_away(self) -> None:
        request = CpuRequest(count=4, bind=SPREAD, exclusive=ExclusivePolicy.PCPU_LEVEL)
        assert cpus_of(choose_cpus(MACHINE, request, [held("0,2"), held("8-31")])) == "1,3-4,6"

    def test_zones_of_another_exclusive_holder_are_avoided(self) -> None:
        request = CpuRequest(count=2, exclusive=ExclusivePolicy.NUMA_NODE_LEVEL)
        holders = [held("0", ExclusivePolicy.NUMA_NODE_LEVEL), held("8-11,16-31")]
        assert choose_cpus(MACHINE, request, holders) == CpuSet.parse("12-13")

    def test_the_policy_is_a_wish(self) -> None:
        request = CpuRequest(count=8, exclusive=ExclusivePolicy.NUMA_NODE_LEVEL)
        holders = [held("0,8,16,24", ExclusivePolicy.NUMA_NODE_LEVEL)]
        found = choose_cpus(MACHINE, request, holders)
        assert isinstance(found, CpuSet)
        assert len(found) == 8


class TestRequiredBinding:
    def test_begun_cores_are_no_room_for_whole_cores(self) -> None:
        request = CpuRequest(count=4, is_bind_required=True)
        found = choose_cpus(MACHINE, request, [held("0,2,4,6,8,10,12,14,16-29")])
        assert isinstance(found, NoCpus)
        assert (found.reason, found.short_count) == (Reason.CPUS_SHORT, 2)

    def test_half_a_core_is_refused(self) -> None:
        found = choose_cpus(MACHINE, CpuRequest(count=3, is_bind_required=True))
        assert found == NoCpus(
            reason=Reason.CPUS_NOT_WHOLE_CORES, detail="node(s) requested cpus not multiple cpus per core"
        )

    def test_one_thread_of_each_core_is_all_a_required_spread_can_have(self) -> None:
        request = CpuRequest(count=16, bind=SPREAD, is_bind_required=True)
        assert cpus_of(choose_cpus(MACHINE, request)) == CpuSet.from_iterable(range(0, 32, 2)).format()
        wider = CpuRequest(count=17, bind=SPREAD, is_bind_required=True)
        assert isinstance(choose_cpus(MACHINE, wider), NoCpus)

    def test_a_zone_decision_that_cuts_a_core_is_refused(self) -> None:
        request = CpuRequest(count=4, is_bind_required=True)
        found = choose_cpus(MACHINE, request, zones=[share(0, 1), share(1, 3)])
        assert isinstance(found, NoCpus)
        assert found.reason is Reason.CPU_BIND_CONFLICT


class TestZoneDecision:
    def test_each_zone_gives_its_share(self) -> None:
        assert cpus_of(choose_cpus(MACHINE, CpuRequest(count=6), zones=[share(1, 4), share(3, 2)])) == "8-11,24-25"

    def test_a_zone_that_cannot_is_not_replaced_by_another(self) -> None:
        found = choose_cpus(MACHINE, CpuRequest(count=4), [held("8-13")], zones=[share(1, 4)])
        assert found == NoCpus(
            reason=Reason.CPUS_SHORT, detail="not enough cpus available to satisfy request", short_count=2
        )

    def test_a_zone_named_twice_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="zones"):
            choose_cpus(MACHINE, CpuRequest(count=4), zones=[share(1, 2), share(1, 2)])


class TestCpusThatTheMachineLacks:
    def test_they_do_not_count_as_free(self) -> None:
        free = CpuSet.parse("0-1,40-42").mask
        assert take_cpus(MACHINE, free, 3, Wish(), Holders()) == NoCpus(
            reason=Reason.CPUS_SHORT, detail="not enough cpus available to satisfy request", short_count=1
        )
        assert take_cpus(MACHINE, free, 2, Wish(), Holders()) == CpuSet.parse("0-1").mask

    def test_preferring_them_changes_nothing(self) -> None:
        free, preferred = CpuSet.parse("0-3,40-41").mask, CpuSet.parse("2-3,40-41").mask
        assert take_preferred_cpus(MACHINE, free, preferred, 2, Wish(), Holders()) == CpuSet.parse("2-3").mask


class TestBadRequests:
    @pytest.mark.parametrize(
        ("request_", "field"),
        [
            (CpuRequest(count=0), "request.count"),
            (CpuRequest(count=-2), "request.count"),
        ],
    )
    def test_contradictions_are_named(self, request_: CpuRequest, field: str) -> None:
        with pytest.raises(InvalidInput) as refused:
            choose_cpus(MACHINE, request_)
        assert refused.value.field == field

    def test_more_than_the_machine_has_is_short_by_the_difference(self) -> None:
        found = choose_cpus(MACHINE, CpuRequest(count=100))
        assert isinstance(found, NoCpus)
        assert found.short_count == 68
