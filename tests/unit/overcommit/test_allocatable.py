"""The formula, a row for each class of inputs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from colo_common.events.node import WorkloadUsage
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_rules import UNRULED, NodeRules
from colo_common.model.placement import ZoneShare
from colo_common.model.qos import PriorityBand, QosClass, default_band
from colo_overcommit.allocatable import Resource, allocatable_of_zone, zone_inputs
from colo_overcommit.exclusive import ExclusiveCpus, exclusive_by_zone
from colo_overcommit.explain import explain, recompute
from colo_overcommit.held_by_batch import HeldByBatch
from colo_overcommit.policy import OvercommitPolicy
from colo_overcommit.reserved import reserved_by_zone
from tests.support.builders import GIB, a_batch_workload, a_sample, a_topology

POLICY = OvercommitPolicy(
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
        (
            "what LSE work leaves idle is nobody's",
            {"lse_requested": 4000, "lse_used": 1000, "online_used": 1000},
            8_300,
            8_300,
        ),
        (
            "LSE work that uses all it asked for costs its use",
            {"lse_requested": 4000, "lse_used": 4000, "online_used": 4000},
            8_300,
            8_300,
        ),
        (
            "LSE work above its request gives nothing back",
            {"lse_requested": 1000, "lse_used": 2000, "online_used": 2000},
            10_300,
            10_300,
        ),
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
    policy = OvercommitPolicy(node_reserved_cpu_mcpu=1001, node_reserved_memory_bytes=3)
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


TOPOLOGY = a_topology()


@pytest.mark.parametrize(
    ("rules", "mcpu", "gib"),
    [
        (NodeRules(reserved_cpus="0-1,16"), (2000, 1000), (0, 0)),
        (NodeRules(reserved_cpus="0", reserved_mcpu=8000), (1000, 0), (0, 0)),
        (NodeRules(reserved_mcpu=1001), (2000, 0), (0, 0)),
        (NodeRules(reserved_mcpu=2001), (3000, 0), (0, 0)),
        (NodeRules(reserved_mcpu=3001, reserved_spread=True), (2000, 2000), (0, 0)),
        (NodeRules(kubelet_reserved_cpus="0-1", system_cpus="1-2"), (3000, 0), (0, 0)),
        (NodeRules(reserved_mcpu=2000, system_cpus="16"), (2000, 1000), (0, 0)),
        (NodeRules(reserved_memory_bytes=4 * GIB, reserved_cpus_only=True), (0, 0), (2, 2)),
    ],
)
def test_the_operators_rules_keep_cpus_back_in_their_zone(rules, mcpu, gib) -> None:
    kept = reserved_by_zone(TOPOLOGY, rules)
    assert tuple(kept[zone].cpu_mcpu for zone in (0, 1)) == mcpu
    assert tuple(kept[zone].memory_bytes // GIB for zone in (0, 1)) == gib
    first, second = zone_inputs(TOPOLOGY, a_sample(), {}, POLICY, reserved=kept)
    assert (first.cpu.reserved, second.cpu.reserved) == tuple(max(500, each) for each in mcpu)
    assert (first.memory.reserved, second.memory.reserved) == tuple(max(1, each) * GIB for each in gib)


def test_a_node_without_rules_keeps_nothing_back_and_bad_rules_are_refused() -> None:
    assert reserved_by_zone(TOPOLOGY, UNRULED) == {}
    with pytest.raises(InvalidInput, match="rules.reserved_cpus: names CPUs that the node lacks"):
        reserved_by_zone(TOPOLOGY, NodeRules(reserved_cpus="32"))


def an_lse_workload(replica: str, mcpu: int, zones: tuple[int, ...] = (0,)) -> WorkloadUsage:
    return structs.replace(a_batch_workload(replica, mcpu=mcpu, zones=zones), qos=QosClass.LSE, band=PriorityBand.PROD)


def test_of_lse_work_the_request_counts_and_use_only_of_what_holds_something() -> None:
    held = HeldByBatch()
    share = ZoneShare(zone=0, cpu_mcpu=4000, memory_bytes=GIB)
    held.take("web/main/0", 1, (share,), 0, qos=QosClass.LSE, band=PriorityBand.PROD)
    held.take("web/main/1", 1, (share,), 0, qos=QosClass.LSR, band=PriorityBand.PROD)
    held.take("job/main/0", 1, (share,), 0)
    assert held.by_zone() == {0: share}
    workloads = (an_lse_workload("web/main/0", 1001, (0, 1)), an_lse_workload("web/main/9", 3000))
    exclusive = exclusive_by_zone(held, TOPOLOGY, workloads)
    assert exclusive == {0: ExclusiveCpus(requested_mcpu=4000, used_mcpu=500)}
    first, second = zone_inputs(TOPOLOGY, a_sample(), {}, POLICY, exclusive=exclusive)
    assert (first.cpu.lse_idle, second.cpu.lse_idle, first.memory.lse_idle) == (3500, 0, 0)
    assert recompute(explain((first, second))) == (allocatable_of_zone(first), allocatable_of_zone(second))
    assert [term.name for term in explain((first, second)).terms].count("cpu_lse_requested") == 1
    held.drop("web/main/0", 1)
    assert exclusive_by_zone(held, TOPOLOGY, workloads) == {}
    held.drop("job/main/0", 1)
    assert held.by_zone() == {}


@given(
    st.lists(st.tuples(st.sampled_from(list(QosClass)), st.integers(0, 1), st.integers(1, 20_000)), max_size=6),
    st.lists(st.integers(0, 20_000), min_size=6, max_size=6),
    st.sampled_from(["", "0-3", "5,16-20"]),
)
def test_every_number_recomputes_and_never_falls_below_what_batch_work_holds(placed, used, reserved) -> None:
    held = HeldByBatch()
    for index, (qos, zone, mcpu) in enumerate(placed):
        share = ZoneShare(zone=zone, cpu_mcpu=mcpu, memory_bytes=GIB)
        held.take(f"j/t/{index}", 1, (share,), 0, qos=qos, band=default_band(qos))
    workloads = tuple(
        structs.replace(a_batch_workload(f"j/t/{i}", mcpu=used[i], zones=(zone,)), qos=qos, band=default_band(qos))
        for i, (qos, zone, _) in enumerate(placed)
    )
    sample = a_sample(zones=((16_000, 8), (16_000, 8)), workloads=workloads)
    exclusive = exclusive_by_zone(held, TOPOLOGY, workloads)
    kept = reserved_by_zone(TOPOLOGY, NodeRules(reserved_cpus=reserved))
    inputs = zone_inputs(TOPOLOGY, sample, held.by_zone(), POLICY, reserved=kept, exclusive=exclusive)
    numbers = tuple(allocatable_of_zone(zone) for zone in inputs)
    assert recompute(explain(inputs)) == numbers
    for number, zone in zip(numbers, TOPOLOGY.zones, strict=True):
        share = held.by_zone().get(number.zone)
        # More than the zone has cannot be held there, whatever is said of it.
        assert number.batch_cpu_mcpu >= (min(share.cpu_mcpu, zone.cpu_capacity_mcpu) if share else 0)
    without = zone_inputs(TOPOLOGY, sample, held.by_zone(), POLICY)
    for zone, bare in zip(inputs, without, strict=True):
        assert zone.cpu.raw <= bare.cpu.raw, "LSE work and rules only shrink the promise"
