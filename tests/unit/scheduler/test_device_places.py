"""Devices that a job says more of than their number: which ones the core gives, what it refuses at once, and what it tells."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from colo_common.events.effects import Publish, Reply, RequestReceived
from colo_common.events.job import PlacementsRequested
from colo_common.events.placement import PlacementRejected, PlacementsDecided
from colo_common.events.requests import CreateReservation, JobPlanned, PlanJob
from colo_common.model.constraints import (
    Constraints,
    DeviceExclusive,
    DeviceRequest,
    DeviceScope,
    JointDevices,
    NumaPolicy,
    PartitionPolicy,
    PartitionWish,
)
from colo_common.model.node_rules import NodeRules
from colo_common.model.placement import DeviceShare, Placement
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import Reason
from colo_common.model.shortage import shortage_text
from colo_common.model.topology import Device, DevicePartition, NodeTopology
from colo_common.model.workload import JobSpec, ResourceRequest, TaskSpec
from colo_scheduler.cluster.node import NodeFacts
from colo_scheduler.devices.inventory import DeviceInventory
from colo_scheduler.devices.need import node_score
from colo_scheduler.devices.node_scores import DeviceScores
from colo_scheduler.policy import SchedulerPolicy, ScorerWeights
from tests.support.builders import GIB, a_node, a_topology
from tests.support.reserve_story import ReservingBench, a_claim, a_reservation
from tests.support.scheduler_story import EITHER, Bench, a_placement_request, an_allocatable, answer_in

LABELS = (("model", "H100"),)


def a_machine(gpus: int = 8, nics: int = 4, **more: Any) -> NodeTopology:
    """Two zones of 16 CPUs; two GPUs and one NIC on each of four PCIe roots, two roots in each zone."""
    devices = [
        Device(kind="gpu", device=n, zone=n // 4, pcie=f"pci{n // 2}", memory_bytes=16 * GIB, labels=LABELS)
        for n in range(gpus)
    ]
    devices += [Device(kind="nic", device=n, zone=n // 2, pcie=f"pci{n}") for n in range(nics)]
    return structs.replace(a_topology(cpus=16, memory_gib=64), devices=tuple(devices), **more)


def a_bench(*machines: NodeTopology, rules: NodeRules | None = None, policy: SchedulerPolicy | None = None) -> Bench:
    bench = Bench(policy=policy) if policy else Bench()
    for number, machine in enumerate(machines or (a_machine(),), 1):
        name = f"n{number}"
        bench.say(a_node(name, machine, is_online=True, rules=rules or NodeRules()))
        bench.say(an_allocatable(name, [(zone.cpu_capacity_mcpu, zone.memory_bytes) for zone in machine.zones]))
    return bench


def asked(bench: Bench, name: str, *devices: DeviceRequest, **about: Any) -> Placement | PlacementRejected:
    place = Constraints(devices=tuple(sorted(devices, key=lambda each: each.kind)), **about)
    placement_request = a_placement_request(f"{name}/t/0", mcpu=1000, constraints=place, queued_at_ms=bench.now_ms)
    return answer_in(bench.say(PlacementsRequested(placement_requests=(placement_request,))))


def got(bench: Bench, name: str, *devices: DeviceRequest, **about: Any) -> tuple[list[int], list[int]]:
    """The numbers of the GPUs and of the NICs."""
    placement = asked(bench, name, *devices, **about)
    assert isinstance(placement, Placement), placement
    return numbers(placement, "gpu"), numbers(placement, "nic")


def numbers(placement: Any, kind: str) -> list[int]:
    return [share.device for share in placement.devices if share.kind == kind]


def refused(bench: Bench, name: str, *devices: DeviceRequest, **about: Any) -> tuple[Reason, bool, str]:
    """The only reason, whether it is for good, and the nearest miss in words."""
    fact = asked(bench, name, *devices, **about)
    assert isinstance(fact, PlacementRejected), fact
    (count,) = fact.counts
    assert fact.nearest is not None
    return count.reason, fact.never, shortage_text(**structs.asdict(fact.nearest))


def gpu(count: int = 1, **about: Any) -> DeviceRequest:
    return DeviceRequest(kind="gpu", count=count, **about)


def nic(count: int = 1, **about: Any) -> DeviceRequest:
    return DeviceRequest(kind="nic", count=count, **about)


SIBLING = JointDevices(kinds=("gpu", "nic"), required=True)
IN_ZONE = JointDevices(kinds=("gpu", "nic"), required=True, scope=DeviceScope.NUMA_NODE)


# ---- joint


def test_a_gpu_and_a_nic_hang_on_one_root_and_the_next_ones_on_another() -> None:
    bench = a_bench()
    pairs = [got(bench, name, gpu(), nic(), joint_devices=SIBLING) for name in "abcd"]
    assert sorted(pairs) == [([0], [0]), ([2], [1]), ([4], [2]), ([6], [3])]
    # Four GPUs are free, and no NIC beside one of them.
    assert refused(bench, "e", gpu(), nic(), joint_devices=SIBLING) == (
        Reason.DEVICE_SHORT,
        False,
        "1 nic short in n1 (0 of 1)",
    )


def test_gpus_go_where_nics_are_left_although_they_had_rather_be_elsewhere() -> None:
    bench = a_bench()
    got(bench, "a", nic(1))
    got(bench, "b", gpu(1))
    # By itself the pair of GPUs goes to the roots beside those that are used; the first NIC is gone there.
    assert got(bench, "c", gpu(2), nic(), joint_devices=SIBLING) == ([2, 3], [1])


def test_of_every_root_of_the_gpus_there_is_a_nic() -> None:
    assert got(a_bench(), "a", gpu(4), nic(), joint_devices=SIBLING) == ([0, 1, 2, 3], [0, 1])
    assert got(a_bench(), "a", gpu(4), nic(), joint_devices=IN_ZONE) == ([0, 1, 2, 3], [0])


def test_what_is_only_preferred_is_had_where_it_can_and_done_without_where_it_cannot() -> None:
    bench = a_bench(a_machine(gpus=4, nics=1))
    rather = structs.replace(SIBLING, required=False)
    part = DeviceRequest(kind="nic", core_pct=10)
    assert got(bench, "a", gpu(2), part, joint_devices=rather) == ([0, 1], [0])
    assert refused(bench, "b", gpu(), part, joint_devices=SIBLING) == (
        Reason.DEVICE_SHORT,
        False,
        "1 gpu on one PCIe root with nic short in n1 (0 of 1)",
    )
    assert got(bench, "c", gpu(), part, joint_devices=rather) == ([2], [0])


def test_how_near_it_came_is_told_by_root() -> None:
    bench = a_bench(a_machine(gpus=4, nics=2))
    assert [got(bench, name, gpu(), nic(), joint_devices=SIBLING)[0] for name in "ab"] == [[0], [2]]
    assert refused(bench, "c", gpu(2, scope=DeviceScope.PCIE)) == (
        Reason.DEVICE_SHORT,
        False,
        "1 gpu on one PCIe root short in n1 (1 of 2)",
    )


def test_what_a_machine_could_never_hold_is_refused_at_once_and_for_good() -> None:
    # The NICs of this machine hang on roots without GPUs.
    apart = a_machine(gpus=2, nics=4)
    apart = structs.replace(
        apart, devices=tuple(each for each in apart.devices if each.pcie != "pci0" or each.kind == "gpu")
    )
    bench = a_bench(apart)
    assert refused(bench, "a", gpu(), nic(), joint_devices=SIBLING) == (
        Reason.DEVICE_LAYOUT,
        True,
        "1 gpu on one PCIe root with nic short in n1 (0 of 1)",
    )
    assert refused(
        bench, "b", gpu(2), nic(2), joint_devices=structs.replace(IN_ZONE), numa_policy=NumaPolicy.SINGLE_NUMA_NODE
    )[:2] == (
        Reason.DEVICE_LAYOUT,
        True,
    )
    assert refused(bench, "c", gpu(4, scope=DeviceScope.PCIE))[1]
    assert refused(bench, "d", gpu(1, labels=(("model", "H200"),))) == (
        Reason.DEVICE_UNKNOWN,
        True,
        "1 gpu with model=H200 short in n1 (0 of 1)",
    )
    # Another machine comes that could.
    bench.say(a_node("n2", a_machine(), is_online=True))
    effects = bench.say(an_allocatable("n2", [(16_000, 64 * GIB)] * 2))
    effects += bench.wake()
    placed = [
        p
        for e in effects
        if isinstance(e, Publish) and isinstance(e.fact, PlacementsDecided)
        for p in e.fact.placements
    ]
    assert {placement.node for placement in placed} == {"n2"}


def test_a_node_that_could_is_chosen_among_many_that_could_not() -> None:
    bench = a_bench(a_machine(nics=0), a_machine(gpus=0), structs.replace(a_topology(cpus=16)), a_machine())
    placement = asked(bench, "a", gpu(2), nic(), joint_devices=SIBLING)
    assert isinstance(placement, Placement)
    assert placement.node == "n4"


@pytest.mark.parametrize("policy", list(NumaPolicy))
def test_joint_devices_and_zones_are_decided_together(policy: NumaPolicy) -> None:
    bench = a_bench()
    for number in range(2):
        placement = asked(bench, f"j{number}", gpu(4), nic(), joint_devices=IN_ZONE, numa_policy=policy)
        assert isinstance(placement, Placement)
        zones = {share.zone for share in placement.devices}
        assert len(zones) == 1
        assert {share.zone for share in placement.zones} == zones
    assert isinstance(asked(bench, "more", gpu(1), nic(), joint_devices=IN_ZONE, numa_policy=policy), PlacementRejected)


# ---- exclusive, labels, groups, packing


def test_who_keeps_a_root_to_itself_has_no_company_of_its_kind_there() -> None:
    bench = a_bench()
    assert got(bench, "alone", gpu(1, exclusive=DeviceExclusive.PCIE_LEVEL)) == ([0], [])
    assert got(bench, "many", gpu(6)) == ([2, 3, 4, 5, 6, 7], [])
    assert refused(bench, "one", gpu())[0] is Reason.DEVICE_SHORT
    # Another kind may use the root.
    assert got(bench, "nic", nic(4)) == ([], [0, 1, 2, 3])


def test_the_wish_for_a_root_outlives_a_restart() -> None:
    before = a_bench()
    got(before, "alone", gpu(1, exclusive=DeviceExclusive.PCIE_LEVEL))
    after = Bench(ledger=before.ledger)
    machine = a_machine()
    after.say(a_node("n1", machine, is_online=True))
    after.say(an_allocatable("n1", [(16_000, 64 * GIB)] * 2))
    assert got(after, "many", gpu(6))[0] == [2, 3, 4, 5, 6, 7]
    assert isinstance(asked(after, "one", gpu()), PlacementRejected)


def test_a_group_of_the_operators_table_is_kept_to_as_the_job_and_the_node_say() -> None:
    table = (
        DevicePartition(devices=(0, 2), bandwidth_bytes_per_s=200),
        DevicePartition(devices=(4, 6), score=2, bandwidth_bytes_per_s=400),
    )
    wish = {"partition": PartitionWish(bandwidth_bytes_per_s=300)}
    bench = a_bench(a_machine(gpu_partitions=table))
    assert got(bench, "fast", gpu(2, **wish)) == ([4, 6], [])
    assert refused(bench, "faster", gpu(2, **wish)) == (
        Reason.DEVICE_SHORT,
        False,
        "2 gpu in a group of 2 short in n1 (0 of 2)",
    )
    assert got(bench, "any", gpu(2)) == ([0, 2], [])
    assert got(bench, "rather", gpu(2, partition=PartitionWish(policy=PartitionPolicy.PREFER)))[0]
    assert refused(bench, "three", gpu(3, partition=PartitionWish()))[:2] == (Reason.DEVICE_LAYOUT, True)
    honors = a_bench(a_machine(gpu_partitions=table), rules=NodeRules(gpu_partition_policy="honor"))
    assert refused(honors, "three", gpu(3))[:2] == (Reason.DEVICE_LAYOUT, True)


def test_a_node_packs_devices_where_its_operator_wants_it() -> None:
    half = DeviceRequest(kind="nic", core_pct=30)
    for rule, expected in (("least-allocated", [[0], [1]]), ("most-allocated", [[0], [0]])):
        bench = a_bench(rules=NodeRules(device_allocate=rule))  # type: ignore[arg-type]
        assert [got(bench, name, half)[1] for name in "ab"] == expected


@pytest.mark.parametrize(
    ("scorer", "expected"), [("least", ["n1", "n2", "n1", "n2"]), ("most", ["n1", "n1", "n1", "n1"])]
)
def test_nodes_are_chosen_by_their_devices_where_the_weights_say_so(scorer: str, expected: list[str]) -> None:
    weights = ScorerWeights(**{"most_free": 0, f"devices_{scorer}_allocated": 100})
    bench = a_bench(a_machine(), a_machine(), policy=SchedulerPolicy(weights=weights))
    nodes = []
    for name in "abcd":
        placement = asked(bench, name, gpu())
        assert isinstance(placement, Placement)
        nodes.append(placement.node)
    assert nodes == expected
    bench.core.check()


@given(
    st.lists(st.tuples(st.sampled_from(["take", "leave", "ask"]), st.integers(0, 2), st.integers(0, 3)), max_size=30)
)
def test_kept_scores_of_devices_are_those_of_the_devices_now(steps: list[tuple[str, int, int]]) -> None:
    inventories = [DeviceInventory(a_machine(gpus=4, nics=2).devices) for _ in range(3)]
    kept = DeviceScores()
    forked = kept.fork()
    requests = (gpu(), DeviceRequest(kind="nic", core_pct=30))
    for what, row, number in steps:
        if what == "ask":
            for packs in (False, True):
                expected = [node_score(each, requests, packs=packs) for each in inventories]
                assert kept.of(requests, 3, inventories.__getitem__, packs=packs).tolist() == expected
                assert forked.of(requests, 3, inventories.__getitem__, packs=packs).tolist() == expected
            forked = kept.fork()
            continue
        attempt = (f"r/{number}", 1)
        if what == "take" and not inventories[row].held_by(attempt):
            inventories[row].hold(attempt, [DeviceShare(kind="gpu", device=number, zone=0)])
        elif what == "leave":
            inventories[row].release(attempt)
        for each in (kept, forked):
            each.note(row)


# ---- plans, reservations


def test_a_plan_shows_the_devices_that_a_submission_then_gets() -> None:
    bench = a_bench()
    place = Constraints(devices=(gpu(2), nic()), joint_devices=SIBLING)
    request = ResourceRequest(cpu_mcpu=1000, memory_bytes=GIB)
    task = TaskSpec(name="t", replicas=5, request=request, run=EITHER, constraints=place)
    spec = JobSpec(name="job", qos=QosClass.BE, band=PriorityBand.BATCH, tasks=(task,))
    (reply,) = [
        each for each in bench.say(RequestReceived(request="r", body=PlanJob(spec=spec))) if isinstance(each, Reply)
    ]
    plan = reply.body
    assert isinstance(plan, JobPlanned)
    assert (plan.placed, [count.reason for count in plan.tasks[0].counts]) == (4, [Reason.DEVICE_SHORT])
    assert sorted((numbers(each, "gpu"), numbers(each, "nic")) for each in plan.places) == [
        ([0, 1], [0]),
        ([2, 3], [1]),
        ([4, 5], [2]),
        ([6, 7], [3]),
    ]
    placement_requests = tuple(
        a_placement_request(f"job/t/{number}", mcpu=1000, constraints=place) for number in range(5)
    )
    facts = [
        effect.fact
        for effect in bench.say(PlacementsRequested(placement_requests=placement_requests))
        if isinstance(effect, Publish)
    ]
    done = {p.replica: p.devices for fact in facts if isinstance(fact, PlacementsDecided) for p in fact.placements}
    assert done == {f"job/{each.replica}": each.devices for each in plan.places}


@pytest.mark.parametrize("once", [True, False])
def test_what_a_reservation_holds_beside_each_other_its_owner_gets_so(once: bool) -> None:
    bench = ReservingBench()
    bench.say(a_node("n1", a_machine()))
    bench.say(an_allocatable("n1", [(16_000, 64 * GIB)] * 2))
    alone = gpu(1, exclusive=DeviceExclusive.PCIE_LEVEL)
    place = Constraints(devices=(alone, nic()), joint_devices=SIBLING)
    bench.ask(CreateReservation(spec=a_reservation(constraints=place, allocate_once=once)))
    held = bench.find("r1").place.devices
    assert [(share.kind, share.device, share.exclusive) for share in held] == [
        ("gpu", 0, DeviceExclusive.PCIE_LEVEL),
        ("nic", 0, DeviceExclusive.NONE),
    ]
    other = Constraints(devices=(gpu(7),))
    others = structs.replace(a_claim("batch/main/0"), constraints=other)
    assert not decided(bench, others)
    owner = structs.replace(a_claim("web/main/0"), constraints=place)
    (placed,) = decided(bench, owner)
    assert (placed.reservation, placed.devices) == ("r1", held)


def decided(bench: ReservingBench, placement_request: Any) -> list[Placement]:
    facts = [
        effect.fact
        for effect in bench.say(PlacementsRequested(placement_requests=(placement_request,)))
        if isinstance(effect, Publish)
    ]
    return [p for fact in facts if isinstance(fact, PlacementsDecided) for p in fact.placements]


# ---- facts


def test_layouts_that_no_node_has_any_more_are_forgotten() -> None:
    facts = NodeFacts(2, 1, 0)
    for size in range(200):
        machine = structs.replace(
            a_machine(gpus=1, nics=1), gpu_partitions=(DevicePartition(devices=(0,), score=size),)
        )
        facts.describe(size % 2, a_node("n1", machine))
    assert len(facts.layouts) < 100
    assert [facts.layouts[at].table[0].score for at in facts.layout.tolist()] == [198, 199]
    assert facts.layouts[0].devices == ()
