"""Bad input, row by row: each has its clear reason, and what else is asked for is placed as if it had not been there."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec import structs

from colo_common.events.effects import Effect, Publish
from colo_common.events.job import PlacementRequest, PlacementsRequested
from colo_common.events.placement import PlacementRejected, PlacementsDecided
from colo_common.events.service import DeadLettered
from colo_common.model.constraints import (
    Constraints,
    CpuBind,
    CpuExclusive,
    CpuPolicy,
    DeviceRequest,
    HugePages,
    NumaExclusive,
    NumaPolicy,
)
from colo_common.model.invalid import InvalidInput
from colo_common.model.job_file import job_from_mapping
from colo_common.model.node_rules import NodeRules
from colo_common.model.placement import Placement
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import Reason
from colo_common.model.workload import ResourceRequest
from colo_scheduler.ledger.port import Hold, LedgerRows, NodeCommit
from tests.support.builders import GIB, a_node, a_placement, a_topology
from tests.support.scheduler_story import Bench, a_placement_request, an_allocatable, gpus, now
from tests.unit.scheduler.test_places import BAD as BAD_NODES

PROD = PriorityBand.PROD
SINGLE = NumaPolicy.SINGLE_NUMA_NODE


def a_cluster() -> Bench:
    """n1 and n2, each of two zones of four CPUs and 8 GiB with one GPU a zone; n2 aligns all to one zone."""
    bench = Bench()
    machine = structs.replace(a_topology(cpus=4, memory_gib=8), devices=gpus(2, 2))
    for name, rules in (("n1", NodeRules()), ("n2", NodeRules(numa_policy=SINGLE))):
        bench.say(a_node(name, machine, is_online=True, rules=rules))
        bench.say(an_allocatable(name, [(4000, 8 * GIB)] * 2))
    return bench


def placements(effects: list[Effect]) -> list[Placement]:
    facts = [each.fact for each in effects if isinstance(each, Publish)]
    return [placement for fact in facts if isinstance(fact, PlacementsDecided) for placement in fact.placements]


def good(number: int) -> PlacementRequest:
    qos = QosClass.LSR if number % 2 else QosClass.BE
    band = PROD if number % 2 else PriorityBand.BATCH
    return a_placement_request(f"good/t/{number}", mcpu=2000, qos=qos, band=band, queued_at_ms=number)


def places_of(bench: Bench) -> list[tuple[object, ...]]:
    """Where four good replicas go from now on."""
    placement_requests = tuple(good(number) for number in range(4))
    found = placements(bench.say(PlacementsRequested(placement_requests=placement_requests)))
    bench.core.check()
    return [(each.replica, each.node, each.zones, each.cpus) for each in found]


UNDISTURBED = places_of(a_cluster())


def lsr(mcpu: int = 2000, gib: int = 1, qos: QosClass = QosClass.LSR, **place: Any) -> PlacementRequest:
    constraints = Constraints(**place)
    return a_placement_request(
        "bad/t/0", mcpu=mcpu, memory_bytes=gib * GIB, qos=qos, band=PROD, constraints=constraints
    )


def batch(mcpu: int = 1000, gib: int = 1, **place: Any) -> PlacementRequest:
    return a_placement_request("bad/t/0", mcpu=mcpu, memory_bytes=gib * GIB, constraints=Constraints(**place))


# ---- wants that no scheduler may take: a dead letter names the field

BROKEN = {
    "no CPU": (batch(0), "request.cpu_mcpu"),
    "less than no CPU": (batch(-1000), "request.cpu_mcpu"),
    "less than no memory": (
        structs.replace(batch(), request=ResourceRequest(cpu_mcpu=1000, memory_bytes=-1)),
        "request.memory_bytes",
    ),
    "CPUs of one's own in parts": (lsr(1500), "cpu"),
    "exclusive CPUs for batch work in parts": (batch(1500, cpu_policy=CpuPolicy.EXCLUSIVE), "place.cpu_policy"),
    "CPUs of one's own in the shared pool": (lsr(cpu_policy=CpuPolicy.NONE), "place.cpu_policy"),
    "fixed CPUs in parts": (lsr(1500, qos=QosClass.LS, cpu_policy=CpuPolicy.IMMOVABLE), "place.cpu_policy"),
    "an order of CPUs for who binds none": (batch(cpu_bind=CpuBind.FULL_PCPUS), "place.cpu_bind"),
    "keeping away for who binds none": (batch(cpu_exclusive=CpuExclusive.PCPU_LEVEL), "place.cpu_exclusive"),
    "a required order that is not named": (lsr(cpu_bind_required=True), "place.cpu_bind_required"),
    "exclusive zones without a policy": (lsr(numa_exclusive=NumaExclusive.REQUIRED), "place.numa_exclusive"),
    "no device at all": (batch(devices=(DeviceRequest(kind="gpu"),)), "place.devices.gpu.count"),
    "more than a whole device": (
        batch(devices=(DeviceRequest(kind="gpu", core_pct=101),)),
        "place.devices.gpu.core_pct",
    ),
    "memory of a device said twice": (
        batch(devices=(DeviceRequest(kind="gpu", memory_bytes=1, memory_pct=1),)),
        "place.devices.gpu.memory_pct",
    ),
    "huge pages in parts": (batch(huge_pages=(HugePages(page_bytes=2 << 20, total_bytes=1),)), "place.huge_pages"),
}


@pytest.mark.parametrize(("placement_request", "field"), BROKEN.values(), ids=BROKEN.keys())
def test_what_breaks_a_rule_is_named_by_its_field_and_the_others_are_placed(
    placement_request: PlacementRequest, field: str
) -> None:
    bench = a_cluster()
    effects = bench.say(
        PlacementsRequested(placement_requests=(placement_request, *(good(number) for number in range(4))))
    )
    dead_letters = [each.fact for each in effects if isinstance(each, Publish) and isinstance(each.fact, DeadLettered)]
    assert [bool(re.search(re.escape(field), dead_letter.reason)) for dead_letter in dead_letters] == [True]
    delivered = [(each.replica, each.node, each.zones, each.cpus) for each in placements(effects)]
    assert delivered == UNDISTURBED
    bench.core.check()


# ---- wants that are in order and fit nowhere: said at once, with the reason

HOPELESS = {
    "more CPU than any node": (lsr(9000, qos=QosClass.LS), Reason.CPU_SHORT),
    "more batch CPU than any node": (batch(9000), Reason.BATCH_CPU_SHORT),
    "more memory than any node": (lsr(gib=17, qos=QosClass.LS), Reason.MEMORY_SHORT),
    "more batch memory than any node": (batch(gib=17), Reason.BATCH_MEMORY_SHORT),
    "more CPUs by number than any node": (lsr(9000), Reason.CPU_SHORT),
    "every CPU for one alone": (lsr(8000, qos=QosClass.LSE), Reason.CPUS_SHORT),
    "a device that nobody has": (batch(devices=(DeviceRequest(kind="fpga", count=1),)), Reason.DEVICE_UNKNOWN),
    "more devices than any node": (batch(devices=(DeviceRequest(kind="gpu", count=3),)), Reason.DEVICE_SHORT),
    "huge pages that nobody has": (
        batch(huge_pages=(HugePages(page_bytes=1 << 30, total_bytes=1 << 30),)),
        Reason.HUGE_PAGES_SHORT,
    ),
}


@pytest.mark.parametrize(("placement_request", "reason"), HOPELESS.values(), ids=HOPELESS.keys())
def test_what_no_node_could_hold_is_said_at_once_and_the_others_are_placed(
    placement_request: PlacementRequest, reason: Reason
) -> None:
    bench = a_cluster()
    effects = bench.say(PlacementsRequested(placement_requests=(placement_request,)))
    (delivered,) = [
        each.fact for each in effects if isinstance(each, Publish) and isinstance(each.fact, PlacementRejected)
    ]
    assert delivered.never
    assert delivered.nearest is not None
    assert delivered.nearest.reason is reason
    assert delivered.nearest.have < delivered.nearest.need
    assert places_of(bench) == UNDISTURBED


CONTRADICTING = {
    # n2 aligns to one zone, n1 leaves it open; nobody can promise these on a node of the other rule.
    "another NUMA policy than the node's": (
        NodeRules(numa_policy=SINGLE),
        lsr(numa_policy=NumaPolicy.RESTRICTED),
        Reason.NUMA_POLICY_CONFLICT,
    ),
    "another order of CPUs than the node's": (
        NodeRules(cpu_bind=CpuBind.FULL_PCPUS),
        lsr(cpu_bind=CpuBind.SPREAD_BY_PCPUS, cpu_bind_required=True),
        Reason.CPU_BIND_CONFLICT,
    ),
    "parts of a CPU where all are bound": (
        NodeRules(cpu_bind=CpuBind.FULL_PCPUS),
        lsr(1500, qos=QosClass.LS),
        Reason.CPU_BIND_CONFLICT,
    ),
    "work of the node itself": (NodeRules(), lsr(qos=QosClass.SYSTEM), Reason.QOS_NOT_ADMITTED),
    "a part of a core where whole ones are required": (
        NodeRules(),
        lsr(3000, cpu_bind=CpuBind.FULL_PCPUS, cpu_bind_required=True),
        Reason.CPUS_NOT_WHOLE_CORES,
    ),
    "fixed CPUs where a kubelet numbers them": (
        NodeRules(numa_rule="kubelet"),
        lsr(qos=QosClass.LS, cpu_policy=CpuPolicy.IMMOVABLE),
        Reason.CPU_BIND_CONFLICT,
    ),
}


@pytest.mark.parametrize(("rules", "placement_request", "reason"), CONTRADICTING.values(), ids=CONTRADICTING.keys())
def test_what_contradicts_a_nodes_rules_is_a_conflict_there(
    rules: NodeRules, placement_request: PlacementRequest, reason: Reason
) -> None:
    bench = Bench()
    bench.say(a_node("n1", a_topology(cpus=4, memory_gib=8), is_online=True, rules=rules))
    bench.say(an_allocatable("n1", [(4000, 8 * GIB)] * 2))
    effects = bench.say(PlacementsRequested(placement_requests=(placement_request,)))
    (delivered,) = [
        each.fact for each in effects if isinstance(each, Publish) and isinstance(each.fact, PlacementRejected)
    ]
    assert {count.reason for count in delivered.counts} == {reason}
    assert len(placements(bench.say(PlacementsRequested(placement_requests=(good(1),))))) == 1
    bench.core.check()


# ---- nodes and ledger


@pytest.mark.parametrize(("fact", "field"), BAD_NODES.values(), ids=BAD_NODES.keys())
def test_a_node_that_says_nonsense_changes_nothing_for_anybody(fact: Any, field: str) -> None:
    bench = a_cluster()
    with pytest.raises(InvalidInput, match=f"^{field}"):
        bench.core.handle(structs.replace(fact, at_ms=9), 0)
    assert places_of(bench) == UNDISTURBED


def test_a_row_that_disagrees_with_its_node_leaves_the_other_node_as_it_was() -> None:
    bench = a_cluster()
    (row,) = now(bench.ledger.rows(["n1"]))
    nonsense = structs.replace(a_placement("x/t/0"), qos=QosClass.LSE, band=PROD, cpus="80", node="n1")
    held = Hold(placement=nonsense, generation=row.revision + 1)
    now(bench.ledger.commit([NodeCommit(node="n1", expect=row.revision, holds=(held,))]))
    bench.tell(LedgerRows(rows=now(bench.ledger.rows(["n1"]))))
    assert list(bench.core.cluster.disagreeing) == ["n1"]
    (own,) = placements(bench.say(PlacementsRequested(placement_requests=(good(1),))))
    assert own.node == "n2"
    assert len(placements(bench.say(PlacementsRequested(placement_requests=(good(0), good(2)))))) == 2
    bench.core.check()


# ---- at the door


def a_file(**task: Any) -> dict[str, Any]:
    top = {key: task.pop(key) for key in ("qos", "band") if key in task}
    return {"name": "bad", **top, "tasks": [{"name": "t", "cpu": "2", "memory": "1Gi", "work": "1 cpu-s", **task}]}


FILES = {
    "negative": (a_file(cpu="-1"), "cpu", "must not be negative"),
    "zero": (a_file(cpu="0"), "cpu", "must be"),
    "a part of a milli-CPU": (a_file(cpu="0.0001"), "cpu", ""),
    "memory below the least": (a_file(memory="1"), "memory", "must be from"),
    "CPUs of one's own in parts": (a_file(cpu="1500m", qos="LSR", band="prod"), "cpu", "must be whole CPUs"),
    "the same by another name": (a_file(cpu="1500m", qos="HLS", band="prod"), "cpu", "must be whole CPUs"),
    "a class that does not exist": (a_file(qos="GOLD"), "qos", "must be one of SYSTEM LSE LSR LS BE HLS"),
    "a class without its band": (a_file(qos="LSE", band="batch"), "band", "QoS class LSE may only have"),
    "half a device": (a_file(place={"devices": {"gpu": 0.5}}), "place.devices.gpu", "must be a whole number"),
    "no device": (a_file(place={"devices": {"gpu": 0}}), "place.devices.gpu.count", "must be at least 1"),
    "a policy that does not exist": (
        a_file(place={"numa_policy": "tight"}),
        "place.numa_policy",
        "must be one of none",
    ),
    "exclusive batch work in parts": (
        a_file(cpu="1500m", place={"cpu_policy": "exclusive"}),
        "place.cpu_policy",
        "needs a request of whole CPUs",
    ),
    "a required order that is not named": (
        a_file(qos="LSR", band="prod", place={"cpu_bind_required": True}),
        "place.cpu_bind_required",
        "needs a `cpu_bind`",
    ),
}


@pytest.mark.parametrize(("job", "field", "rule"), FILES.values(), ids=FILES.keys())
def test_a_job_file_is_refused_before_it_is_anybodys_work(job: dict[str, Any], field: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        job_from_mapping(job)
    assert caught.value.field.endswith(field)
    assert caught.value.rule.startswith(rule)
