"""The invariant checker finds every kind of break: a check that never fails proves nothing."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from colo_common.events.enforcement import ReplicaStarted
from colo_common.events.eviction import EvictionFinished, EvictionRequested
from colo_common.events.fact import Fact
from colo_common.events.job import (
    JobStateChanged,
    PlacementRequest,
    PlacementsRequested,
    ReplicaChange,
    ReplicasChanged,
)
from colo_common.events.node import AllocatableChanged, Explanation, ZoneAllocatable
from colo_common.events.service import DeadLettered
from colo_common.model.freshness import Freshness
from colo_common.model.invalid import InvariantBroken
from colo_common.model.placement import ZoneShare
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.workload import ResourceRequest, RunSpec
from colo_evictor.policy import EvictorPolicy
from colo_sim.invariants import InvariantChecker
from colo_sim.world import World, WorldSettings
from tests.support.builders import a_placement, an_eviction, decided

pytestmark = pytest.mark.sim


def judged(*facts: Fact) -> InvariantChecker:
    world = World(WorldSettings(seed=1, nodes=0, jobs=0))
    invariant_checker = InvariantChecker({}, world.ledger, EvictorPolicy())
    for number, fact in enumerate(facts):
        invariant_checker.stored(fact, f"id-{number}")
    return invariant_checker


def a_move(state: str, previous: str, attempt: int = 1) -> ReplicasChanged:
    change = ReplicaChange(replica="j/t/0", attempt=attempt, state=state, previous=previous, transition="R00")
    return ReplicasChanged(job="j", changes=(change,))


def a_job_move(state: str, previous: str) -> JobStateChanged:
    return JobStateChanged(job="j", queue="default", state=state, previous=previous, transition="J00", version=1)


def a_request(eviction: str, at_ms: int) -> EvictionRequested:
    return an_eviction(
        "j/t/0",
        at_ms=at_ms,
        eviction=eviction,
        reason=Reason.CPU_WATERMARK,
        value_pct=99,
        threshold_pct=97,
        held_ms=15_000,
    )


def a_finish(eviction: str) -> EvictionFinished:
    return EvictionFinished(eviction=eviction, node="n1", replica="j/t/0", attempt=1, cause=EndCause.EVICTED, took_ms=1)


def a_placement_request(attempt: int) -> PlacementsRequested:
    placement_request = PlacementRequest(
        replica="j/t/0",
        job="j",
        queue="default",
        attempt=attempt,
        request=ResourceRequest(cpu_mcpu=1, memory_bytes=1),
        run=RunSpec(),
        qos=QosClass.BE,
        band=PriorityBand.BATCH,
    )
    return PlacementsRequested(placement_requests=(placement_request,))


def a_promise(*zones_mcpu: int, node_mcpu: int) -> AllocatableChanged:
    return AllocatableChanged(
        node="n1",
        sample_seq=1,
        sampled_at_ms=1,
        freshness=Freshness.FRESH,
        batch_cpu_mcpu=node_mcpu,
        batch_memory_bytes=0,
        headroom_cpu_mcpu=0,
        headroom_memory_bytes=0,
        zones=tuple(
            ZoneAllocatable(
                zone=zone, batch_cpu_mcpu=mcpu, batch_memory_bytes=0, headroom_cpu_mcpu=0, headroom_memory_bytes=0
            )
            for zone, mcpu in enumerate(zones_mcpu)
        ),
        explanation=Explanation(formula="", terms=()),
    )


QUEUED_AGAIN = (a_move("Assigned", "Pending"), a_move("Pending", "Assigned", 2))
STARTED_ELSEWHERE = ReplicaStarted(node="n2", replica="job/main/0", job="job", attempt=1)

BREAKS: dict[str, tuple[str, tuple[Fact, ...]]] = {
    "one attempt on two nodes": ("placed twice", (decided(a_placement(node="n1")), decided(a_placement(node="n2")))),
    "a start where nothing was placed": ("elsewhere", (decided(a_placement(node="n1")), STARTED_ELSEWHERE)),
    "a state that was left before": ("not in", (a_move("Running", "Starting"),)),
    "an attempt that is left out": ("one by one", (a_move("Assigned", "Pending"), a_move("Pending", "Assigned", 3))),
    "an attempt queued twice": (
        "queued twice",
        (*QUEUED_AGAIN, a_move("Assigned", "Pending", 2), a_move("Pending", "Assigned", 2)),
    ),
    "a placement request of an attempt that is not queued": ("never queued", (a_placement_request(2),)),
    "an ended job that goes on": (
        "goes on",
        (a_job_move("Completed", "Pending"), a_job_move("Running", "Completed")),
    ),
    "two victims of one node": ("two victims", (a_request("e1", 1_000), a_request("e2", 100_000))),
    "a second victim too soon": ("cool-down", (a_request("e1", 1_000), a_finish("e1"), a_request("e2", 2_000))),
    "an eviction that ends twice": ("not in flight", (a_request("e1", 1_000), a_finish("e1"), a_finish("e1"))),
    "zones that do not sum to their node": ("sum", (a_promise(1, 2, node_mcpu=4),)),
    "a promise below nothing": ("negative", (a_promise(-1, 2, node_mcpu=1),)),
    "a message that nobody could take": ("dead-lettered", (DeadLettered(service="jobs", subject="s", reason="r"),)),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_invariant_is_found(name: str) -> None:
    message, facts = BREAKS[name]
    with pytest.raises(InvariantBroken, match=message):
        judged(*facts)


def test_less_promised_than_held_is_found() -> None:
    world = World(WorldSettings(seed=1, nodes=1, jobs=0))
    checker = world.invariant_checker
    (node,) = world.nodes
    there = world.nodes[node].machine.spec.topology().zones
    promised_mcpu = there[0].cpu_capacity_mcpu - 1
    promise = replace(a_promise(*[promised_mcpu] * len(there), node_mcpu=promised_mcpu), node=node)
    checker.promised(promise, {0: ZoneShare(zone=0, cpu_mcpu=promised_mcpu, memory_bytes=0)})
    with pytest.raises(InvariantBroken, match="less is promised"):
        checker.promised(promise, {0: ZoneShare(zone=0, cpu_mcpu=promised_mcpu + 1, memory_bytes=0)})
    # More is held than the zone has: the promise need not cover what cannot be.
    whole_mcpu = promised_mcpu + 1
    full = replace(a_promise(*[whole_mcpu] * len(there), node_mcpu=whole_mcpu), node=node)
    checker.promised(full, {0: ZoneShare(zone=0, cpu_mcpu=whole_mcpu + 1, memory_bytes=0)})


def test_a_copy_is_no_break() -> None:
    invariant_checker = judged(*QUEUED_AGAIN)
    invariant_checker.stored(QUEUED_AGAIN[1], "id-1")
    assert invariant_checker.counts["copies"] == 1


@pytest.mark.parametrize(("boot_id", "is_found"), [("b1", True), ("b2", False)])
def test_times_of_two_starts_do_not_compare_where_a_clock_was_set(boot_id: str, is_found: bool) -> None:
    checker = judged(replace(a_request("e1", 9_000), boot_id="b1"), a_finish("e1"))
    checker.has_set_clocks = True
    second = replace(a_request("e2", 1_000), boot_id=boot_id)
    if is_found:
        with pytest.raises(InvariantBroken, match="cool-down"):
            checker.stored(second, "id-9")
    else:
        checker.stored(second, "id-9")
        assert checker.counts["evicted cpu-watermark"] == 2
