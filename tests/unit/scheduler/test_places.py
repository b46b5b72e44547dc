"""Places that are more than amounts: CPUs by number, zones, huge pages, devices, and what a node's operator rules."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from colo_common.events.effects import Publish, Reply, RequestReceived
from colo_common.events.job import PlacementsRequested
from colo_common.events.node import UnmanagedUse
from colo_common.events.placement import PlacementRejected, PlacementsDecided
from colo_common.events.requests import JobPlanned, PlanJob
from colo_common.model.constraints import (
    Constraints,
    CpuBind,
    CpuExclusive,
    CpuPolicy,
    DeviceRequest,
    HugePages,
    NumaPolicy,
    Taint,
)
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_rules import NodeRules
from colo_common.model.placement import UNKNOWN_CPUS, DeviceShare, Placement
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import Reason
from colo_common.model.topology import Cpu, NodeTopology, Zone
from colo_common.model.workload import JobSpec, ResourceRequest, TaskSpec
from colo_scheduler.cluster.pool import PoolName
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger.port import Hold, Ledger, LedgerRows, NodeCommit, NodeRow
from colo_scheduler.placement.fit import fit_node_exactly
from colo_scheduler.placement.report import Report
from tests.support.builders import GIB, a_node, a_placement, a_topology
from tests.support.scheduler_explained import sentence
from tests.support.scheduler_story import EITHER, Bench, a_placement_request, an_allocatable, answer_in, gpus, now

LSE, LSR, LS, BE = QosClass.LSE, QosClass.LSR, QosClass.LS, QosClass.BE
PAGE = 2 << 20


def a_bench(
    topology: NodeTopology | None = None, rules: NodeRules | None = None, ledger: Ledger | None = None, **about: Any
) -> Bench:
    """One machine, n1, that runs online work: two zones of four CPUs and 8 GiB each unless said otherwise."""
    bench = Bench(ledger=ledger)
    machine = topology or a_topology(cpus=4, memory_gib=8)
    bench.say(a_node("n1", machine, is_online=True, rules=rules or NodeRules(), **about))
    bench.say(an_allocatable("n1", [(zone.cpu_capacity_mcpu, zone.memory_bytes) for zone in machine.zones]))
    return bench


def asked(bench: Bench, name: str, qos: QosClass = LSR, cpus: int = 2, **about: Any) -> Placement | PlacementRejected:
    """What becomes of one want."""
    band = PriorityBand.BATCH if qos is BE else PriorityBand.PROD
    place = Constraints(**about)
    placement_request = a_placement_request(
        f"{name}/t/0", mcpu=cpus * 1000, qos=qos, band=band, constraints=place, queued_at_ms=bench.now_ms
    )
    return answer_in(bench.say(PlacementsRequested(placement_requests=(placement_request,))))


def placed(bench: Bench, name: str, qos: QosClass = LSR, cpus: int = 2, **about: Any) -> Placement:
    answer = asked(bench, name, qos, cpus, **about)
    assert isinstance(answer, Placement), answer
    return answer


def refused(bench: Bench, name: str, qos: QosClass = LSR, cpus: int = 2, **about: Any) -> PlacementRejected:
    answer = asked(bench, name, qos, cpus, **about)
    assert isinstance(answer, PlacementRejected), answer
    return answer


def reasons(fact: PlacementRejected) -> dict[Reason, int]:
    return {count.reason: count.nodes for count in fact.counts}


def words(fact: PlacementRejected) -> str:
    return sentence(Report(fact.nodes, fact.counts, fact.nearest))


# ---- the documented example


def threaded(cores: int) -> NodeTopology:
    """One zone; CPU i and i + cores are threads of one core, as Linux numbers them."""
    cpus = tuple(Cpu(cpu=cpu, core=cpu % cores, socket=0, zone=0) for cpu in range(2 * cores))
    zone = Zone(zone=0, socket=0, cpus=f"0-{2 * cores - 1}", memory_bytes=64 * GIB)
    return NodeTopology(zones=(zone,), cpus=cpus)


def test_the_documented_machine_of_16_cpus_is_shared_as_documented() -> None:
    bench = a_bench(threaded(8))
    spread = CpuBind.SPREAD_BY_PCPUS
    assert placed(bench, "nginx-lse", LSE, cpu_bind=spread).cpus == "0-1"
    assert placed(bench, "nginx-lsr", LSR, cpu_bind=spread).cpus == "2-3"
    assert placed(bench, "nginx-ls", LS).cpus == ""
    assert placed(bench, "nginx-be", BE).cpus == ""
    cluster = bench.core.cluster
    view = cluster.view(0)
    # Batch work may have all but the CPUs of LSE; LS has what neither LSE nor LSR holds.
    assert cluster.view(0).pool(PoolName.BATCH).allocatable_cpu[0] == 14_000
    assert int(view.pool(PoolName.PROD).node_free_cpu[0]) == (16 - 2 - 2 - 2) * 1000
    assert reasons(refused(bench, "large-ls", LS, 11)) == {Reason.CPU_SHORT: 1}
    assert placed(bench, "rest-ls", LS, 10).cpus == ""


# ---- CPUs by number


def test_lsr_takes_no_cpu_of_another_and_the_shortage_is_told_in_cpus() -> None:
    bench = a_bench()
    assert {placed(bench, name, qos, 4).cpus for name, qos in (("a", LSE), ("b", LSR))} == {"0-3", "4-7"}
    fact = refused(bench, "c")
    assert reasons(fact) == {Reason.CPU_SHORT: 1}
    assert placed(bench, "be", BE, 1).zones[0].cpu_mcpu == 1000


def test_reserved_and_system_cpus_are_given_to_nobody() -> None:
    bench = a_bench(rules=NodeRules(reserved_cpus="0", kubelet_reserved_cpus="1", system_cpus="7"))
    placements = [placed(bench, name, LSR, 2) for name in ("a", "b")]
    assert sorted(p.cpus for p in placements) == ["2-3", "4,6"]
    assert placed(bench, "c", LSR, 1).cpus == "5"


def test_an_amount_that_is_reserved_becomes_whole_cpus() -> None:
    bench = a_bench(rules=NodeRules(reserved_mcpu=2_500))
    fact = refused(bench, "all", LSE, 6)
    assert fact.nearest is not None
    assert (fact.nearest.need, fact.nearest.have, fact.retry_at_ms) == (6000, 5000, 0)


def test_whole_cores_that_are_required_are_whole_cores() -> None:
    bench = a_bench()
    assert placed(bench, "a", LSR, 1).cpus == "0"
    assert placed(bench, "b", LSR, 2, cpu_bind=CpuBind.FULL_PCPUS, cpu_bind_required=True).cpus in ("2-3", "4-5")
    odd = refused(bench, "c", LSR, 3, cpu_bind=CpuBind.FULL_PCPUS, cpu_bind_required=True)
    assert reasons(odd) == {Reason.CPUS_NOT_WHOLE_CORES: 1}


def test_spreading_that_is_required_takes_one_cpu_of_a_core() -> None:
    bench = a_bench()
    assert placed(bench, "a", LSR, 2, cpu_bind=CpuBind.SPREAD_BY_PCPUS, cpu_bind_required=True).cpus == "0,2"


def test_a_node_that_binds_binds_the_shared_pool_too_and_refuses_parts_of_a_cpu() -> None:
    bench = a_bench(rules=NodeRules(cpu_bind=CpuBind.FULL_PCPUS))
    assert placed(bench, "a", LS, 2).cpus == "0-1"
    spread = refused(bench, "b", LSR, 2, cpu_bind=CpuBind.SPREAD_BY_PCPUS, cpu_bind_required=True)
    assert reasons(spread) == {Reason.CPU_BIND_CONFLICT: 1}
    placement_request = a_placement_request("part/t/0", mcpu=1500, qos=LS, band=PriorityBand.PROD)
    (fact,) = [
        effect.fact
        for effect in bench.say(PlacementsRequested(placement_requests=(placement_request,)))
        if isinstance(effect, Publish)
    ]
    assert isinstance(fact, PlacementRejected)
    assert reasons(fact) == {Reason.CPU_BIND_CONFLICT: 1}


def test_immovable_work_has_fixed_cpus_apart_and_others_may_use_them() -> None:
    bench = a_bench()
    assert placed(bench, "a", LS, 2, cpu_policy=CpuPolicy.IMMOVABLE).cpus == "0,2"
    # CPUs that nobody else may use are others.
    assert placed(bench, "b", LSE, 2).cpus == "4,6"
    assert placed(bench, "c", LS, 4).cpus == ""
    # The shared pool has what LSE left of it.
    assert reasons(refused(bench, "d", LS, 1)) == {Reason.CPU_SHORT: 1}


def test_work_that_wants_cores_of_its_own_keeps_apart_from_its_like() -> None:
    bench = a_bench(a_topology(zones_per_socket=1, cpus=8, memory_gib=8))
    about: dict[str, Any] = {"cpu_exclusive": CpuExclusive.PCPU_LEVEL, "cpu_bind": CpuBind.SPREAD_BY_PCPUS}
    assert [placed(bench, name, LSR, 1, **about).cpus for name in "abc"] == ["0", "2", "4"]


def test_the_wish_to_keep_apart_outlives_a_restart() -> None:
    topology = a_topology(zones_per_socket=1, cpus=8, memory_gib=8)
    before = a_bench(topology)
    about: dict[str, Any] = {"cpu_exclusive": CpuExclusive.PCPU_LEVEL, "cpu_bind": CpuBind.SPREAD_BY_PCPUS}
    cpus = [placed(before, name, LSR, 1, **about).cpus for name in "ab"]
    after = a_bench(topology, ledger=before.ledger)
    assert [*cpus, placed(after, "c", LSR, 1, **about).cpus] == ["0", "2", "4"]


def test_cpus_of_ones_own_cost_what_the_node_claims_them_to_be() -> None:
    bench = a_bench(rules=NodeRules(amplification_pct=150))
    pool = bench.core.cluster.view(0).pool(PoolName.PROD)
    assert int(pool.node_free_cpu[0]) == 12_000
    assert [share.cpu_mcpu for share in placed(bench, "a", LSR, 2).zones] == [2000]
    assert int(bench.core.cluster.view(0).pool(PoolName.PROD).node_free_cpu[0]) == 9_000
    placed(bench, "b", LS, 2)
    assert int(bench.core.cluster.view(0).pool(PoolName.PROD).node_free_cpu[0]) == 7_000


# ---- zones


def test_one_zone_is_one_zone_and_the_nearest_miss_names_it() -> None:
    bench = a_bench()
    placed(bench, "a", LSR, 3)
    placed(bench, "b", LSR, 2)
    fact = refused(bench, "c", LSR, 3, numa_policy=NumaPolicy.SINGLE_NUMA_NODE)
    assert reasons(fact) == {Reason.ZONE_FIT_SHORT: 1}
    assert "nearest: 1 CPU short in zone 1 of n1 (2 of 3)" in words(fact)
    assert len(placed(bench, "d", LSR, 3).zones) == 2


def test_the_shared_pool_of_one_zone() -> None:
    bench = a_bench()
    assert [placed(bench, name, LS, cpus).zones[0].zone for name, cpus in (("a", 3), ("b", 2))] == [0, 1]
    assert reasons(refused(bench, "c", LS, 3, cpu_policy=CpuPolicy.NUMA)) == {Reason.ZONE_FIT_SHORT: 1}
    assert len(placed(bench, "d", LS, 3).zones) == 2


def test_a_node_of_another_policy_is_a_conflict_and_its_own_binds_everybody_online() -> None:
    bench = a_bench(rules=NodeRules(numa_policy=NumaPolicy.SINGLE_NUMA_NODE))
    conflict = refused(bench, "a", LSR, 2, numa_policy=NumaPolicy.RESTRICTED)
    assert reasons(conflict) == {Reason.NUMA_POLICY_CONFLICT: 1}
    assert reasons(refused(bench, "b", LS, 5)) == {Reason.ZONE_FIT_SHORT: 1}
    assert len(placed(bench, "c", LS, 4).zones) == 1


def test_most_allocated_fills_a_zone_before_it_begins_another() -> None:
    bench = a_bench(rules=NodeRules(numa_policy=NumaPolicy.BEST_EFFORT, numa_allocate="most-allocated"))
    assert [placed(bench, name, LSR, 2).cpus for name in "abc"] == ["0,2", "1,3", "4,6"]


def test_own_cpus_are_of_different_cores_where_there_is_room_and_packed_on_request() -> None:
    bench = a_bench()
    assert placed(bench, "a", LSE, 2).cpus == "0,2"
    assert placed(bench, "b", LSR, 2, cpu_bind=CpuBind.FULL_PCPUS).cpus == "4-5"
    assert placed(bench, "c", LSR, 2).cpus == "1,3"
    # All the room there is.
    assert placed(bench, "d", LSR, 2).cpus == "6-7"


def test_batch_work_has_cpus_by_number_only_on_a_node_that_is_its_own_virtual_machine() -> None:
    for policy in (CpuPolicy.EXCLUSIVE, CpuPolicy.IMMOVABLE):
        assert reasons(refused(a_bench(), "a", BE, 2, cpu_policy=policy)) == {Reason.CPU_BIND_CONFLICT: 1}
        bench = a_bench(rules=NodeRules(colocation_mode="vm"))
        first = placed(bench, "a", BE, 2, cpu_policy=policy)
        assert (first.cpus, first.cpu_policy) == ("0,2", policy)
        assert placed(bench, "b", BE, 1).cpus == ""
        others = CpuSet.parse(placed(bench, "c", BE, 2, cpu_policy=policy).cpus)
        assert not others & CpuSet.parse(first.cpus)
    for mode in ("container", "vm"):
        near = placed(a_bench(rules=NodeRules(colocation_mode=mode)), "d", BE, 2, cpu_policy=CpuPolicy.NUMA)
        assert (len(near.zones), near.cpus) == (1, "")


def test_huge_pages_are_of_a_zone_and_given_out_once() -> None:
    machine = a_topology(cpus=4, memory_gib=8)
    pages = (HugePages(page_bytes=PAGE, total_bytes=4 * PAGE),)
    first, second = machine.zones
    bench = a_bench(structs.replace(machine, zones=(first, structs.replace(second, huge_pages=pages))))
    asks = (HugePages(page_bytes=PAGE, total_bytes=3 * PAGE),)
    held = placed(bench, "a", LS, 1, huge_pages=asks)
    assert [(p.zone, p.total_bytes) for p in held.huge_pages] == [(1, 3 * PAGE)]
    fact = refused(bench, "b", LS, 1, huge_pages=asks)
    assert reasons(fact) == {Reason.HUGE_PAGES_SHORT: 1}
    assert fact.nearest is not None
    assert (fact.nearest.have, fact.nearest.need) == (PAGE, 3 * PAGE)
    assert refused(bench, "c", LS, 1, huge_pages=(HugePages(page_bytes=1 << 30, total_bytes=1 << 30),)).retry_at_ms == 0


# ---- devices


def test_a_device_and_its_cpus_are_of_one_zone() -> None:
    bench = a_bench(structs.replace(a_topology(cpus=4, memory_gib=8), devices=gpus(2, 2)))
    first, second = (placed(bench, name, LSR, 2, devices=(DeviceRequest(kind="gpu", count=1),)) for name in "ab")
    for placement in (first, second):
        assert {share.zone for share in placement.zones} == {share.zone for share in placement.devices}
    fact = refused(bench, "c", LSR, 2, devices=(DeviceRequest(kind="gpu", count=1),))
    assert reasons(fact) == {Reason.DEVICE_SHORT: 1}


def test_a_kind_that_no_node_has_is_said_at_once_and_not_tried_again() -> None:
    fact = refused(a_bench(), "a", BE, 1, devices=(DeviceRequest(kind="fpga", count=1),))
    assert (reasons(fact), fact.retry_at_ms) == ({Reason.DEVICE_UNKNOWN: 1}, 0)


# ---- operators


def test_a_limit_of_batch_replicas_holds_inside_one_turn_and_in_a_plan() -> None:
    bench = a_bench(rules=NodeRules(batch_replicas_most=2))
    spec = JobSpec(
        name="many",
        tasks=(TaskSpec(name="t", replicas=3, request=ResourceRequest(cpu_mcpu=1000, memory_bytes=GIB), run=EITHER),),
    )
    plan = planned(bench, spec)
    assert (plan.placed, [count.reason for count in plan.tasks[0].counts]) == (2, [Reason.BATCH_REPLICAS_MOST])
    placement_requests = tuple(a_placement_request(f"many/t/{number}") for number in range(3))
    facts = [
        effect.fact
        for effect in bench.say(PlacementsRequested(placement_requests=placement_requests))
        if isinstance(effect, Publish)
    ]
    assert sum(len(fact.placements) for fact in facts if isinstance(fact, PlacementsDecided)) == 2
    assert [reasons(fact) for fact in facts if isinstance(fact, PlacementRejected)] == [{Reason.BATCH_REPLICAS_MOST: 1}]
    assert placed(bench, "online", LS, 1).node == "n1"


def planned(bench: Bench, spec: JobSpec) -> JobPlanned:
    (reply,) = [
        each for each in bench.say(RequestReceived(request="r", body=PlanJob(spec=spec))) if isinstance(each, Reply)
    ]
    assert isinstance(reply.body, JobPlanned), reply.body
    return reply.body


def test_a_plan_names_the_cpus_and_devices_that_a_submission_then_gets() -> None:
    bench = a_bench(structs.replace(a_topology(cpus=4, memory_gib=8), devices=gpus(2, 2)))
    placed(bench, "before", LSE, 1)
    place = Constraints(devices=(DeviceRequest(kind="gpu", count=1),), numa_policy=NumaPolicy.SINGLE_NUMA_NODE)
    task = TaskSpec(
        name="t",
        replicas=3,
        request=ResourceRequest(cpu_mcpu=2000, memory_bytes=GIB),
        run=EITHER,
        constraints=place,
    )
    spec = JobSpec(name="job", qos=LSR, band=PriorityBand.PROD, tasks=(task,))
    plan = planned(bench, spec)
    placement_requests = tuple(
        a_placement_request(f"job/t/{number}", mcpu=2000, qos=LSR, band=PriorityBand.PROD, constraints=place)
        for number in range(3)
    )
    effects = bench.say(PlacementsRequested(placement_requests=placement_requests))
    facts = [effect.fact for effect in effects if isinstance(effect, Publish)]
    done = {p.replica: p for fact in facts if isinstance(fact, PlacementsDecided) for p in fact.placements}
    assert {f"job/{p.replica}": (p.zones, p.cpus, p.devices) for p in plan.places} == {
        name: (p.zones, p.cpus, p.devices) for name, p in done.items()
    }
    (rejected,) = [fact for fact in facts if isinstance(fact, PlacementRejected)]
    assert (plan.tasks[0].counts, plan.tasks[0].nearest) == (rejected.counts, rejected.nearest)


@pytest.mark.parametrize(("bind", "victims"), [(CpuBind.SPREAD_BY_PCPUS, ["lesser/t/0"]), (CpuBind.FULL_PCPUS, [])])
def test_nobody_has_to_leave_whose_place_would_not_do(bind: CpuBind, victims: list[str]) -> None:
    bench = a_bench(a_topology(zones_per_socket=1, cpus=4, memory_gib=8))
    # The important one holds one CPU of each core: whoever leaves beside it, no whole core comes free.
    spread = Constraints(cpu_bind=CpuBind.SPREAD_BY_PCPUS, cpu_bind_required=True)
    for name, priority in (("fixed", 9), ("lesser", 0)):
        placement_request = a_placement_request(
            f"{name}/t/0", mcpu=2000, qos=LSR, band=PriorityBand.PROD, priority=priority, constraints=spread
        )
        bench.say(PlacementsRequested(placement_requests=(placement_request,)))
    task = TaskSpec(
        name="t",
        replicas=1,
        request=ResourceRequest(cpu_mcpu=2000, memory_bytes=GIB),
        run=EITHER,
        constraints=structs.replace(spread, cpu_bind=bind),
    )
    plan = planned(bench, JobSpec(name="job", qos=LSR, band=PriorityBand.PROD, priority=5, tasks=(task,)))
    assert (plan.fits, plan.by_preempting) == (False, len(victims))
    assert [victim.replica for victim in plan.victims] == victims


BAD = {
    "an unknown reserved CPU": (a_node("n1", rules=NodeRules(reserved_cpus="90")), "rules.reserved_cpus"),
    "no amplification": (a_node("n1", rules=NodeRules(amplification_pct=50)), "rules.amplification_pct"),
    "too many taints": (a_node("n1", taints=tuple(Taint(key=f"k{n}") for n in range(65))), "taints"),
    "too many labels": (a_node("n1", labels={f"k{n}": "" for n in range(1_025)}), "labels"),
    "a missing zone": (
        a_node("n1", structs.replace(a_topology(), zones=a_topology().zones[:1])),
        r"topology.cpus\[16\].zone",
    ),
    "CPUs of two zones": (
        a_node(
            "n1",
            structs.replace(
                a_topology(),
                zones=tuple(structs.replace(zone, cpus="0-31") for zone in a_topology().zones),
            ),
        ),
        r"topology.zones\[0\].cpus",
    ),
    "a core in two zones": (
        a_node(
            "n1",
            NodeTopology(
                zones=tuple(Zone(zone=z, socket=0, cpus=str(z), memory_bytes=GIB) for z in (0, 1)),
                cpus=tuple(Cpu(cpu=cpu, core=0, socket=0, zone=cpu) for cpu in (0, 1)),
            ),
        ),
        r"topology.cpus\[1\].zone",
    ),
}


@pytest.mark.parametrize(("fact", "field"), BAD.values(), ids=BAD.keys())
def test_a_node_that_says_nonsense_stays_what_it_was(fact: Any, field: str) -> None:
    bench = a_bench()
    placed(bench, "a", LSR, 2)
    with pytest.raises(InvalidInput, match=field):
        bench.core.handle(structs.replace(fact, at_ms=5), 0)
    bench.core.check()
    assert placed(bench, "b", LSR, 2).node == "n1"


# ---- the ledger


def disagreeing() -> dict[str, Placement]:
    own = structs.replace(a_placement("x/t/0", mcpu=1000), qos=LSE, band=PriorityBand.PROD)
    device = DeviceShare(kind="gpu", device=7, zone=0)
    return {
        "CPUs that the node lacks: 80": structs.replace(own, cpus="80"),
        "has alone: 0": structs.replace(own, cpus="0", replica="y/t/0"),
        "must be a device of the node": structs.replace(own, devices=(device,)),
        "cpus: must be a list": structs.replace(own, cpus="nonsense"),
        "known to its node alone": structs.replace(own, cpus=UNKNOWN_CPUS),
    }


@pytest.mark.parametrize("problem", disagreeing())
def test_a_row_that_disagrees_with_its_node_leaves_it_out_of_close_decisions_only(problem: str) -> None:
    bench = a_bench()
    held = placed(bench, "a", LSR, 2)
    assert held.cpus == "0,2"
    placement = disagreeing()[problem]
    (row,) = now(bench.ledger.rows(["n1"]))
    reserve = NodeCommit(
        node="n1",
        expect=row.revision,
        holds=(Hold(placement=placement, generation=row.revision + 1),),
    )
    now(bench.ledger.commit([reserve]))
    bench.tell(LedgerRows(rows=now(bench.ledger.rows(["n1"]))))
    (delivered,) = bench.core.cluster.disagreeing["n1"]
    assert problem in delivered
    assert reasons(refused(bench, "b", LSR, 2)) == {Reason.LEDGER_DISAGREES: 1}
    assert placed(bench, "c", BE, 1).node == "n1"
    assert placed(bench, "d", LS, 1).node == "n1"
    (row,) = now(bench.ledger.rows(["n1"]))
    rest = tuple(each for each in row.holds if each.placement.replica != placement.replica)
    bench.tell(LedgerRows(rows=(NodeRow(node="n1", revision=row.revision, changes=9, holds=rest),)))
    assert bench.core.cluster.disagreeing == {}


def test_a_restart_knows_every_cpu_device_and_page_from_the_ledger() -> None:
    machine = structs.replace(a_topology(cpus=4, memory_gib=8), devices=gpus(2, 2))
    bench = a_bench(machine)
    placed(bench, "a", LSE, 3)
    placed(bench, "b", LSR, 2, devices=(DeviceRequest(kind="gpu", core_pct=30, memory_pct=30),))
    before = bench.core.cluster.node("n1").holdings
    bench.core = SchedulerCore()
    bench.load()
    bench.say(a_node("n1", machine, is_online=True))
    bench.say(an_allocatable("n1", [(4000, 8 * GIB)] * 2))
    assert bench.core.cluster.node("n1").holdings == before
    pool = bench.core.cluster.view(0).pool(PoolName.BATCH)
    assert sorted(pool.rows[0].allocatable_cpu) == [1000, 4000]


def test_a_node_that_refused_is_looked_at_again_only_when_something_left_it(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def watched(view: Any, row: int, request: Any) -> Any:
        looked.append(row)
        return fit_node_exactly(view, row, request)

    monkeypatch.setattr("colo_scheduler.placement.decide.fit_node_exactly", watched)
    bench = a_bench()
    bench.say(a_node("n2", a_topology(cpus=4, memory_gib=8), is_online=True))
    bench.say(an_allocatable("n2", [(4000, 8 * GIB)] * 2))
    for name in "abcd":
        placed(bench, name, LSR, 3)
    looked.clear()
    fact = refused(bench, "wide", LSR, 2, numa_policy=NumaPolicy.SINGLE_NUMA_NODE)
    assert (reasons(fact), sorted(looked)) == ({Reason.ZONE_FIT_SHORT: 2}, [0, 1])
    looked.clear()
    use = (UnmanagedUse(zone=0, cpu_mcpu=100, memory_bytes=0),)
    for at_ms, unmanaged in ((1, ()), (2, use)):
        bench.say(an_allocatable("n2", [(4000, 8 * GIB)] * 2, at_ms=at_ms, unmanaged=unmanaged))
        assert looked == [], "the same again, and less room, are no reason"
    bench.say(an_allocatable("n2", [(4000, 8 * GIB)] * 2, at_ms=3))
    assert looked == [1]
