"""Batch work is told never to fit exactly where the emptiest promise of every machine cannot hold it."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from colo_common.events.job import PlacementRequest, PlacementsRequested
from colo_common.events.placement import PlacementRejected
from colo_common.model.constraints import Constraints, NumaPolicy
from colo_common.model.cpuset import CpuSet
from colo_common.model.node_rules import NodeRules
from colo_common.model.placement import Placement
from colo_common.model.topology import NodeTopology
from colo_overcommit.allocatable import Resource
from colo_overcommit.reserved import reserved_by_zone
from tests.support.builders import GIB, a_node, a_topology
from tests.support.scheduler_story import Bench, a_placement_request, an_allocatable, answer_in

CPUS = 8
"""Of each machine: one zone, or two of four."""
cpus = st.sets(st.integers(0, CPUS - 1), max_size=4).map(lambda chosen: CpuSet(sum(1 << cpu for cpu in chosen)))


@st.composite
def machines(draw: st.DrawFn) -> tuple[NodeTopology, NodeRules]:
    zones = draw(st.sampled_from((1, 2)))
    machine = a_topology(zones_per_socket=zones, cpus=CPUS // zones, memory_gib=8 // zones)
    pinned, kubelet = draw(cpus), draw(cpus)
    rules = NodeRules(
        reserved_cpus=draw(cpus).format(),
        reserved_mcpu=draw(st.sampled_from((0, 0, 500, 3_000))),
        reserved_spread=draw(st.booleans()),
        reserved_cpus_only=draw(st.booleans()),
        reserved_memory_bytes=draw(st.integers(0, 9)) * GIB // 2,
        kubelet_reserved_cpus=(kubelet | pinned).format(),
        kubelet_pinned_cpus=pinned.format(),
        system_cpus=draw(cpus).format(),
    )
    return machine, rules


def when_pods_ended(rules: NodeRules) -> NodeRules:
    kept = CpuSet.parse(rules.kubelet_reserved_cpus) - CpuSet.parse(rules.kubelet_pinned_cpus)
    return structs.replace(rules, kubelet_reserved_cpus=kept.format(), kubelet_pinned_cpus="")


def most_promised(machine: NodeTopology, rules: NodeRules) -> list[tuple[int, int]]:
    """What is promised of each zone of a machine on which nothing runs, by a policy that keeps nothing back itself."""
    kept = reserved_by_zone(machine, rules)

    def promised(capacity: int, reserved: int) -> int:
        empty = Resource(capacity=capacity, reclaim_pct=100, reserved=reserved, system_used=0, online_used=0, held=0)
        return empty.allocatable

    zones = [(zone, kept.get(zone.zone)) for zone in machine.zones]
    return [
        (
            promised(zone.cpu_capacity_mcpu, own.cpu_mcpu if own else 0),
            promised(zone.memory_bytes, own.memory_bytes if own else 0),
        )
        for zone, own in zones
    ]


def asked(bench: Bench, placement_request: PlacementRequest) -> Placement | PlacementRejected:
    return answer_in(bench.say(PlacementsRequested(placement_requests=(placement_request,))))


@given(
    fleet=st.lists(machines(), min_size=1, max_size=3),
    mcpu=st.integers(1, CPUS * 2).map(lambda halves: halves * 500),
    half_gib=st.integers(1, 17),
    in_one_zone=st.booleans(),
)
@example(
    fleet=[(a_topology(cpus=4, memory_gib=4), NodeRules(reserved_cpus="0"))], mcpu=7_500, half_gib=1, in_one_zone=False
)
def test_batch_work_is_told_never_to_fit_only_where_no_machine_could_be_promised_to_it(
    fleet: list[tuple[NodeTopology, NodeRules]], mcpu: int, half_gib: int, in_one_zone: bool
) -> None:
    place = Constraints(numa_policy=NumaPolicy.SINGLE_NUMA_NODE) if in_one_zone else Constraints()
    placement_request = a_placement_request("a/t/0", mcpu=mcpu, memory_bytes=half_gib * GIB // 2, constraints=place)
    full, empty = Bench(), Bench()
    for number, (machine, rules) in enumerate(fleet):
        name, lasting = f"n{number}", when_pods_ended(rules)
        full.say(a_node(name, machine, rules=rules))
        full.say(an_allocatable(name, [(0, 0)] * len(machine.zones)))
        empty.say(a_node(name, machine, rules=lasting))
        empty.say(an_allocatable(name, most_promised(machine, lasting)))
    now, one_day = asked(full, placement_request), asked(empty, placement_request)
    assert isinstance(now, PlacementRejected)
    could_fit = isinstance(one_day, Placement)
    assert not (now.never and could_fit)
    # An amount of CPU is kept back by the maker of the promise in a way of its own: of that only this much is known.
    if not any(rules.reserved_mcpu and not rules.reserved_cpus for _, rules in fleet):
        assert now.never is not could_fit
    if isinstance(one_day, PlacementRejected):
        assert one_day.never is now.never
