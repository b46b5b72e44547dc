"""A node whose kubelet hands out zones takes exactly what that kubelet would admit, and never gives anything out twice."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from colo_common.events.job import PlacementsRequested
from colo_common.model.constraints import NumaPolicy
from colo_common.model.cpuset import CpuSet
from colo_common.model.node_rules import NodeRules
from colo_common.model.placement import Placement
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.topology import NodeTopology
from colo_scheduler.cluster.pool import PoolName
from colo_scheduler.numa.mask import mask_of
from colo_scheduler.numa.policies import Hint
from colo_scheduler.numa.policies import TopologyPolicy as Policy
from colo_scheduler.peers.kubelet.policies import decide_kubelet
from colo_scheduler.placement.fit import NodeFit, fit_node_exactly
from colo_scheduler.requests.request_class import class_of
from tests.props.test_scheduler_props import placements_of
from tests.support.builders import GIB, a_node, a_topology
from tests.support.profiles import examples
from tests.support.scheduler_story import Bench, a_placement_request, an_allocatable

PROD = PriorityBand.PROD
steps = st.lists(
    st.tuples(st.sampled_from([QosClass.LSR, QosClass.LSE, QosClass.LS]), st.integers(1, 5), st.integers(1, 9)),
    max_size=6,
)


def hints_of(free: dict[int, int], capacity: dict[int, int], need: int) -> list[Hint]:
    """The kubelet's hints for one resource, every set tried: preferred are sets as small as the empty machine could do with."""
    zones = sorted(free)
    sets = [each for size in range(1, len(zones) + 1) for each in combinations(zones, size)]
    least = min((len(each) for each in sets if sum(capacity[zone] for zone in each) >= need), default=0)
    return [
        Hint(mask_of(each), len(each) == least) for each in sets if sum(max(0, free[zone]) for zone in each) >= need
    ]


def placed(
    machine: NodeTopology, rules: NodeRules, story: list[tuple[QosClass, int, int]]
) -> tuple[Bench, list[Placement]]:
    """One node after wants of so many CPUs and GiB, one after the other, and what of them it took."""
    bench = Bench()
    bench.say(a_node("n1", machine, is_online=True, rules=rules))
    bench.say(an_allocatable("n1", [(zone.cpu_capacity_mcpu, zone.memory_bytes) for zone in machine.zones]))
    held: list[Placement] = []
    for number, (qos, cpus, memory) in enumerate(story):
        placement_request = a_placement_request(
            f"s{number}/t/0", mcpu=cpus * 1000, memory_bytes=memory * GIB, qos=qos, band=PROD
        )
        held += placements_of(bench.say(PlacementsRequested(placement_requests=(placement_request,))))
        bench.core.check()
    return bench, held


@given(
    st.sampled_from([(2, 1), (2, 2), (4, 2)]),
    st.sampled_from([NumaPolicy.BEST_EFFORT, NumaPolicy.RESTRICTED, NumaPolicy.SINGLE_NUMA_NODE]),
    st.booleans(),
    steps,
    st.integers(1, 6),
    st.integers(1, 12),
)
def test_a_node_admits_exactly_what_its_kubelet_would(
    shape: tuple[int, int],
    policy: NumaPolicy,
    is_closest: bool,
    story: list[tuple[QosClass, int, int]],
    n: int,
    gib: int,
) -> None:
    machine = a_topology(sockets=shape[1], zones_per_socket=shape[0] // shape[1], cpus=4, memory_gib=8)
    rules = NodeRules(numa_rule="kubelet", numa_policy=policy, numa_closest=is_closest)
    bench, held = placed(machine, rules, story)
    for placement in held:
        own = CpuSet.parse(placement.cpus)
        for zone in machine.zones:
            share = sum(each.cpu_mcpu for each in placement.zones if each.zone == zone.zone)
            assert not own or len(own & CpuSet.parse(zone.cpus)) * 1000 == share
    numbered = [cpu for placement in held for cpu in CpuSet.parse(placement.cpus)]
    assert len(numbered) == len(set(numbered))

    view = bench.core.cluster.view(0)
    row = view.pools[PoolName.PROD].rows[0]
    free = {
        zone.zone: min(row.cpu[slot] // 1000, len([cpu for cpu in CpuSet.parse(zone.cpus) if cpu not in numbered]))
        for slot, zone in enumerate(machine.zones)
    }
    memory_free = {zone.zone: row.memory[slot] for slot, zone in enumerate(machine.zones)}
    cpu_hints = hints_of(free, {zone.zone: 4 for zone in machine.zones}, n)
    memory_hints = hints_of(memory_free, {zone.zone: zone.memory_bytes for zone in machine.zones}, gib * GIB)
    verdict = decide_kubelet(
        Policy(policy.value),
        sorted(free),
        [{"cpu": cpu_hints, "memory": memory_hints}],
        [list(zone.distances) for zone in machine.zones] if is_closest else None,
    )
    enough = sum(free.values()) >= n and sum(max(0, each) for each in memory_free.values()) >= gib * GIB
    request = class_of(a_placement_request("x/t/0", mcpu=n * 1000, memory_bytes=gib * GIB, qos=QosClass.LSR, band=PROD))
    found = fit_node_exactly(view, 0, request)
    assert isinstance(found, NodeFit) == (enough and verdict.is_admitted)
    if isinstance(found, NodeFit) and policy is not NumaPolicy.BEST_EFFORT and verdict.mask is not None:
        assert mask_of(share.zone for share in found.shares) & ~verdict.mask == 0


@examples(0.4)
@given(st.sampled_from(["kubelet", "koordinator", "crane", "katalyst"]), st.sampled_from(list(NumaPolicy)), steps)
def test_whoever_hands_out_no_zone_holds_more_than_it_has(
    rule: str, policy: NumaPolicy, story: list[tuple[QosClass, int, int]]
) -> None:
    if rule == "crane" and policy not in (NumaPolicy.NONE, NumaPolicy.SINGLE_NUMA_NODE):
        policy = NumaPolicy.NONE
    machine = a_topology(sockets=2, zones_per_socket=2, cpus=4, memory_gib=8)
    rules = NodeRules(numa_rule=rule, numa_policy=policy, reserved_cpus="0")  # type: ignore[arg-type]
    _, held = placed(machine, rules, story)
    for zone in machine.zones:
        shares = [share for placement in held for share in placement.zones if share.zone == zone.zone]
        assert sum(share.cpu_mcpu for share in shares) <= zone.cpu_capacity_mcpu - 1000 * (zone.zone == 0)
        assert sum(share.memory_bytes for share in shares) <= zone.memory_bytes
    numbered = [cpu for placement in held for cpu in CpuSet.parse(placement.cpus)]
    assert len(numbered) == len(set(numbered))
    assert 0 not in numbered
    for placement in held:
        assert sum(share.cpu_mcpu for share in placement.zones) == placement.cpu_mcpu
        assert sum(share.memory_bytes for share in placement.zones) == placement.memory_bytes
