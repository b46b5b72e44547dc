"""The formula, a row for each class of inputs."""

import pytest

from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import ZoneShare
from colo_overcommit.allocatable import Resource, allocatable_of_zone, zone_inputs
from colo_overcommit.policy import Policy
from tests.support.builders import GIB, a_batch_workload, a_sample, a_topology

POLICY = Policy(
    cpu_reclaim_pct=80, memory_reclaim_pct=75, node_reserved_cpu_mcpu=1000, node_reserved_memory_bytes=2 * GIB
)


def resource(**changes: int) -> Resource:
    terms = {"capacity": 16_000, "reclaim_pct": 80, "reserved": 500, "system_used": 0, "online_used": 0, "held": 0}
    return Resource(**{**terms, **changes})


@pytest.mark.parametrize(
    ("name", "changes", "allocatable", "headroom"),
    [
        ("idle: capacity less margin less reservation", {}, 12_300, 12_300),
        ("system above reservation counts instead of it", {"system_used": 700}, 12_100, 12_100),
        ("system below reservation changes nothing", {"system_used": 400}, 12_300, 12_300),
        ("online use is taken off", {"online_used": 5000}, 7_300, 7_300),
        ("what is held is inside the number", {"online_used": 5000, "held": 3000}, 7_300, 4_300),
        ("never below what is held", {"online_used": 12_000, "held": 3000}, 3_000, -2_700),
        ("never below zero, headroom tells", {"online_used": 15_000}, 0, -2_700),
        ("the margin rounds up", {"capacity": 16_001, "online_used": 1}, 12_299, 12_299),
        ("reclaim 100 has no margin", {"reclaim_pct": 100}, 15_500, 15_500),
        ("reclaim 0 promises nothing", {"reclaim_pct": 0}, 0, -500),
    ],
)
def test_a_resource_is_promised(name: str, changes: dict[str, int], allocatable: int, headroom: int) -> None:
    terms = resource(**changes)
    assert (terms.allocatable, terms.headroom) == (allocatable, headroom), name


def test_batch_use_of_the_same_sample_is_not_online_use() -> None:
    sample = a_sample(zones=((6000, 10), (4000, 8)), workloads=(a_batch_workload(mcpu=2000, gib=2),))
    first, second = zone_inputs(a_topology(), sample, {}, POLICY)
    assert (first.cpu.online_used, first.memory.online_used) == (4000, 8 * GIB)
    assert (second.cpu.online_used, second.memory.online_used) == (4000, 8 * GIB)


def test_batch_use_over_two_zones_is_halved_rounding_down() -> None:
    sample = a_sample(zones=((6000, 8), (4000, 8)), workloads=(a_batch_workload(mcpu=2001, zones=(0, 1)),))
    first, second = zone_inputs(a_topology(), sample, {}, POLICY)
    assert (first.cpu.online_used, second.cpu.online_used) == (5000, 3000)


def test_online_use_is_never_negative_when_batch_use_is_overstated() -> None:
    sample = a_sample(zones=((1000, 1), (0, 0)), workloads=(a_batch_workload(mcpu=3000, gib=4),))
    first, _ = zone_inputs(a_topology(), sample, {}, POLICY)
    assert (first.cpu.online_used, first.memory.online_used) == (0, 0)


def test_node_reservation_is_shared_by_the_zones_rounding_up() -> None:
    policy = Policy(node_reserved_cpu_mcpu=1001, node_reserved_memory_bytes=3)
    first, second = zone_inputs(a_topology(), a_sample(), {}, policy)
    assert (first.cpu.reserved, second.cpu.reserved, first.memory.reserved) == (501, 501, 2)


def test_a_sample_with_other_zones_than_the_topology_is_refused() -> None:
    with pytest.raises(InvalidInput, match="zones: the sample must have exactly the zones of the topology"):
        zone_inputs(a_topology(), a_sample(zones=((1, 1),)), {}, POLICY)


def test_what_is_held_counts_in_its_zone_only() -> None:
    held = {1: ZoneShare(zone=1, cpu_mcpu=14_000, memory_bytes=60 * GIB)}
    first, second = (allocatable_of_zone(z) for z in zone_inputs(a_topology(), a_sample(), held, POLICY))
    assert first.batch_cpu_mcpu == 16_000 - 3_200 - 500 - 4_000
    assert (second.batch_cpu_mcpu, second.batch_memory_bytes) == (14_000, 60 * GIB)
    assert second.headroom_cpu_mcpu == 8_300 - 14_000
