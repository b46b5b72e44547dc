"""The formula of one node, whatever the node is and hears: it explains itself to the unit, and keeps what is held."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from colo_common.events.node import NodeUsageSampled, WorkloadUsage, ZoneUsage
from colo_common.model.node_rules import NodeRules
from colo_common.model.placement import ZoneShare
from colo_common.model.qos import PriorityBand, QosClass, default_band
from colo_common.model.topology import NodeTopology
from colo_overcommit.allocatable import allocatable_of_zone, zone_inputs
from colo_overcommit.exclusive import exclusive_by_zone
from colo_overcommit.explain import explain, recompute
from colo_overcommit.explain_mid import recompute_mid
from colo_overcommit.held_by_batch import with_bands
from colo_overcommit.known_node import KnownNode
from colo_overcommit.mid import mid_of_zones
from colo_overcommit.mid_of_node import mid_of_node
from colo_overcommit.policy import MidMode, OvercommitPolicy
from colo_overcommit.reserved import reserved_by_zone
from tests.support.builders import a_topology

MCPU_MOST = 1 << 40
BYTES_MOST = 1 << 60
ZONE_BYTES_MOST = 1 << 50

mcpu = st.integers(0, 40_000) | st.integers(0, MCPU_MOST)
size = st.integers(0, 1 << 37) | st.integers(0, ZONE_BYTES_MOST)
# The numbers of zones need not begin at 0 nor be without gaps: memory may be offline.
numbers = st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True).map(sorted)


def renumbered(topology: NodeTopology, zones: list[int]) -> NodeTopology:
    return structs.replace(
        topology,
        zones=tuple(structs.replace(zone, zone=zones[zone.zone]) for zone in topology.zones),
        cpus=tuple(structs.replace(cpu, zone=zones[cpu.zone]) for cpu in topology.cpus),
    )


@st.composite
def workloads(draw: st.DrawFn) -> WorkloadUsage:
    index, qos = draw(st.integers(0, 5)), draw(st.sampled_from(list(QosClass)))
    band = draw(st.sampled_from([default_band(qos), *PriorityBand]))
    return WorkloadUsage(
        workload=f"w{index}",
        qos=qos,
        band=band,
        cpu_used_mcpu=draw(mcpu),
        memory_used_bytes=draw(st.integers(0, 1 << 36) | st.integers(0, BYTES_MOST)),
        zones=tuple(draw(st.lists(st.integers(0, 7), max_size=4))),
        replica=f"j/t/{index}",
        attempt=1,
    )


@st.composite
def nodes(draw: st.DrawFn) -> KnownNode:
    zones = draw(numbers)
    gib = draw(st.integers(1, 64) | st.just(1 << 19))
    topology = renumbered(
        a_topology(zones_per_socket=len(zones), cpus=draw(st.sampled_from([2, 4, 16])), memory_gib=gib), zones
    )
    topology.validate()
    cpus = len(topology.cpus)
    rules = NodeRules(
        reserved_cpus=draw(st.sampled_from(["", "0"])),
        reserved_mcpu=draw(st.integers(0, 1000 * cpus)),
        reserved_memory_bytes=draw(size),
        system_cpus=draw(st.sampled_from(["", str(cpus - 1)])),
    )
    known = KnownNode(topology=topology, reserved=reserved_by_zone(topology, rules), is_colocated=draw(st.booleans()))
    for index in draw(st.sets(st.integers(0, 5))):
        qos = draw(st.sampled_from(list(QosClass)))
        share = ZoneShare(
            zone=draw(st.sampled_from([*zones, 9])),
            cpu_mcpu=draw(st.integers(0, 1 << 24)),
            memory_bytes=draw(st.integers(0, 1 << 46)),
        )
        band = draw(st.sampled_from([default_band(qos), PriorityBand.MID]))
        known.held.take(f"j/t/{index}", 1, (share,), 0, qos=qos, band=band)
    known.sample = NodeUsageSampled(
        node="n",
        sample_seq=1,
        interval_ms=1000,
        cpu_used_mcpu=0,
        memory_used_bytes=0,
        zones=tuple(ZoneUsage(zone=z, cpu_used_mcpu=draw(mcpu), memory_used_bytes=draw(size)) for z in zones),
        workloads=tuple(draw(st.lists(workloads(), max_size=8))),
        system_cpu_used_mcpu=draw(mcpu),
        system_memory_used_bytes=draw(st.integers(0, 1 << 36) | st.integers(0, BYTES_MOST)),
    )
    return known


policies = st.builds(
    OvercommitPolicy,
    cpu_reclaim_pct=st.integers(0, 100),
    memory_reclaim_pct=st.integers(0, 100),
    node_reserved_cpu_mcpu=mcpu,
    node_reserved_memory_bytes=size,
    mid_mode=st.sampled_from([each.value for each in MidMode]),
    mid_cpu_most_pct=st.integers(0, 100),
    mid_unallocated_pct=st.integers(0, 100),
    mid_static_cpu_pct=st.integers(0, 100),
    mid_static_memory_pct=st.integers(0, 100),
)


@given(nodes(), policies)
def test_the_explanation_gives_the_number_which_is_never_below_what_is_held(
    node: KnownNode, policy: OvercommitPolicy
) -> None:
    assert node.topology is not None
    assert node.sample is not None
    inputs = zone_inputs(
        node.topology,
        node.sample,
        node.held.by_zone(),
        policy,
        reserved=node.reserved,
        exclusive=exclusive_by_zone(node.held, node.topology, node.sample.workloads),
        is_colocated=node.is_colocated,
    )
    numbers = tuple(allocatable_of_zone(zone) for zone in inputs)
    assert recompute(explain(inputs)) == numbers
    assert [number.zone for number in numbers] == [zone.zone for zone in node.topology.zones]
    for number, zone in zip(numbers, node.topology.zones, strict=True):
        held = node.held.by_zone().get(number.zone) or ZoneShare(zone=number.zone, cpu_mcpu=0, memory_bytes=0)
        # More than the zone has cannot be held there, whatever is said of it.
        most = structs.replace(
            held,
            cpu_mcpu=min(held.cpu_mcpu, zone.cpu_capacity_mcpu),
            memory_bytes=min(held.memory_bytes, zone.memory_bytes),
        )
        assert number.batch_cpu_mcpu >= most.cpu_mcpu
        assert number.batch_memory_bytes >= most.memory_bytes
        if not node.is_colocated:
            assert (number.batch_cpu_mcpu, number.batch_memory_bytes) == (most.cpu_mcpu, most.memory_bytes)


@given(nodes(), policies)
def test_the_mid_tier_explains_itself_and_is_never_below_what_its_work_holds(
    node: KnownNode, policy: OvercommitPolicy
) -> None:
    assert node.topology is not None
    assert node.sample is not None
    sample = with_bands(node.sample, node.held)
    inputs = zone_inputs(node.topology, sample, node.held.by_zone(), policy, is_colocated=node.is_colocated)
    terms = mid_of_node(node, sample, inputs, policy)
    tier = mid_of_zones(terms)
    assert recompute_mid(explain(inputs, None, terms)) == tier
    held = node.held.mid_by_zone()
    is_open = policy.mid_mode != MidMode.OFF and node.is_colocated
    assert bool(tier) == (is_open or bool(held))
    for number, zone in zip(tier, node.topology.zones, strict=False):
        share = held.get(number.zone) or ZoneShare(zone=number.zone, cpu_mcpu=0, memory_bytes=0)
        least = (min(share.cpu_mcpu, zone.cpu_capacity_mcpu), min(share.memory_bytes, zone.memory_bytes))
        assert number.zone == zone.zone
        assert least[0] <= number.cpu_mcpu <= zone.cpu_capacity_mcpu
        assert least[1] <= number.memory_bytes <= zone.memory_bytes
        if not is_open:
            assert (number.cpu_mcpu, number.memory_bytes) == least
