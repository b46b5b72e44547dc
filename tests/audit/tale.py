"""A short recording in which every promise holds: one node, one job, an eviction, a second attempt, and the end."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from colo_common.events.enforcement import ReplicaEnded, ReplicaStarted
from colo_common.events.eviction import EvictionFinished, EvictionRequested
from colo_common.events.fact import Fact
from colo_common.events.job import (
    JobStateChanged,
    JobSubmitted,
    PlacementRequest,
    PlacementsRequested,
    ReplicaChange,
    ReplicasChanged,
)
from colo_common.events.node import AllocatableChanged, Explanation, Term, ZoneAllocatable
from colo_common.events.placement import PlacementsDecided
from colo_common.events.registry import event_of, subject_of
from colo_common.events.wire import encode
from colo_common.model.freshness import Freshness
from colo_common.model.placement import Placement, ZoneShare
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import EndCause
from colo_common.model.workload import JobSpec, ResourceRequest, RunSpec, TaskSpec
from tests.audit.recording import Accepted, LedgerRow, Received, Record, StoredAtEnd
from tests.support.builders import an_eviction

__all__ = ["JOB", "NODE", "REPLICA", "a_hold", "a_placement", "a_row", "facts", "received", "tale"]

NODE, JOB, REPLICA = "n1", "job", "job/main/0"
_GIB = 1 << 30
_STEP_US = 10_000_000


def a_placement(attempt: int = 1, *, node: str = NODE, cpu_mcpu: int = 4_000, replica: str = REPLICA) -> Placement:
    """A placement of the job's replica."""
    return Placement(
        replica=replica,
        job=JOB,
        attempt=attempt,
        node=node,
        zones=(ZoneShare(zone=0, cpu_mcpu=cpu_mcpu, memory_bytes=_GIB),),
        cpu_mcpu=cpu_mcpu,
        memory_bytes=_GIB,
        qos=QosClass.BE,
        band=PriorityBand.BATCH,
        run=RunSpec(work_mcpu_ms=1_000),
        sample_seq=1,
    )


def a_hold(placement: Placement, generation: int) -> str:
    """The value of a hold in a row."""
    return msgspec.json.encode({"placement": placement, "generation": generation}).decode()


def a_row(*placements: Placement, rev: int = 1) -> LedgerRow:
    """A row in which these are held, each committed after the one before it."""
    fields = {
        f"h:{placement.replica}#{placement.attempt}": a_hold(placement, generation)
        for generation, placement in enumerate(placements, start=1)
    }
    return LedgerRow(at_us=_STEP_US, node=NODE, fields={"rev": str(rev), **fields})


def received(at: int, fact: Fact) -> Received:
    """The fact as the bus kept it."""
    row = event_of(type(fact))
    return Received(
        at_us=at * _STEP_US,
        subject=subject_of(fact),
        text=encode(replace(fact, at_ms=at * _STEP_US // 1_000, boot_id="b1", seq=at)).decode(),
        stream=row.stream or "",
        seq=at,
        id=str(at),
    )


def _moved(state: str, previous: str, transition: str, attempt: int = 1) -> ReplicasChanged:
    change = ReplicaChange(replica=REPLICA, attempt=attempt, state=state, previous=previous, transition=transition)
    return ReplicasChanged(job=JOB, changes=(change,))


def _job(state: str, previous: str, transition: str) -> JobStateChanged:
    return JobStateChanged(job=JOB, queue="default", state=state, previous=previous, transition=transition, version=1)


def _requested(attempt: int) -> PlacementsRequested:
    request = PlacementRequest(
        replica=REPLICA,
        job=JOB,
        queue="default",
        attempt=attempt,
        request=ResourceRequest(cpu_mcpu=4_000, memory_bytes=_GIB),
        run=RunSpec(work_mcpu_ms=1_000),
        qos=QosClass.BE,
        band=PriorityBand.BATCH,
    )
    return PlacementsRequested(placement_requests=(request,))


def _started(attempt: int) -> ReplicaStarted:
    return ReplicaStarted(node=NODE, replica=REPLICA, job=JOB, attempt=attempt)


def _ended(attempt: int, cause: EndCause) -> ReplicaEnded:
    return ReplicaEnded(node=NODE, replica=REPLICA, job=JOB, attempt=attempt, cause=cause, exit_code=0)


def _evicted(number: int) -> EvictionRequested:
    return an_eviction(REPLICA, node=NODE, eviction=f"ev-{number}", value_pct=95, cool_ms=4_000, evictions_allowed=1)


def _allocatable() -> AllocatableChanged:
    values = {
        "capacity": 16_000,
        "reclaim_pct": 75,
        "system_used": 500,
        "reserved": 1_000,
        "online_used": 2_500,
        "held": 0,
    }
    terms = tuple(
        Term(name=f"{resource}_{name}", value=value, unit="count", source="", zone=0)
        for resource in ("cpu", "memory")
        for name, value in {**values, **({"capacity": 8 * _GIB} if resource == "memory" else {})}.items()
    )
    memory_bytes = 8 * _GIB - 2 * _GIB - 1_000 - 2_500
    zone = ZoneAllocatable(
        zone=0,
        batch_cpu_mcpu=8_500,
        batch_memory_bytes=memory_bytes,
        headroom_cpu_mcpu=8_500,
        headroom_memory_bytes=memory_bytes,
    )
    return AllocatableChanged(
        node=NODE,
        sample_seq=1,
        sampled_at_ms=0,
        freshness=Freshness.FRESH,
        batch_cpu_mcpu=8_500,
        batch_memory_bytes=memory_bytes,
        headroom_cpu_mcpu=8_500,
        headroom_memory_bytes=memory_bytes,
        zones=(zone,),
        explanation=Explanation(formula="", terms=terms),
    )


def facts() -> list[Fact]:
    """The messages of the tale, in order."""
    request = ResourceRequest(cpu_mcpu=4_000, memory_bytes=_GIB)
    spec = JobSpec(
        name="job", tasks=(TaskSpec(name="main", replicas=1, request=request, run=RunSpec(work_mcpu_ms=1_000)),)
    )
    return [
        _allocatable(),
        JobSubmitted(job=JOB, spec=spec),
        _job("Inqueue", "Pending", "J01"),
        _requested(1),
        PlacementsDecided(placements=(a_placement(1),)),
        _started(1),
        _moved("Assigned", "Pending", "R01"),
        _job("Running", "Inqueue", "J04"),
        _moved("Starting", "Assigned", "R03"),
        _moved("Running", "Starting", "R04"),
        _evicted(1),
        _ended(1, EndCause.EVICTED),
        EvictionFinished(eviction="ev-1", node=NODE, replica=REPLICA, attempt=1, cause=EndCause.EVICTED, took_ms=1),
        _moved("Backoff", "Running", "R06"),
        _moved("Pending", "Backoff", "R17", attempt=2),
        _requested(2),
        PlacementsDecided(placements=(a_placement(2),)),
        _started(2),
        _evicted(2),
        EvictionFinished(eviction="ev-2", node=NODE, replica=REPLICA, attempt=2, cause=EndCause.EXITED, took_ms=1),
        _moved("Assigned", "Pending", "R01", attempt=2),
        _ended(2, EndCause.EXITED),
        _moved("Succeeded", "Assigned", "R05", attempt=2),
        _job("Completed", "Running", "J14"),
    ]


def tale(published: Sequence[Fact]) -> list[Record]:
    """The recording of these messages, with two rows of the ledger, what a client was published, and an empty end."""
    own = [
        replace(a_placement(1, replica=f"own/main/{number}"), qos=QosClass.LSR, band=PriorityBand.PROD, cpus=cpus)
        for number, cpus in enumerate(("0-1", "2"))
    ]
    return [
        *[received(at, fact) for at, fact in enumerate(published, start=1)],
        a_row(a_placement(1), a_placement(1, replica="job/main/1"), *own, rev=4),
        Accepted(at_us=1, job=JOB),
        StoredAtEnd(at_us=99 * _STEP_US, jobs={JOB: "Completed"}, held={}, rows={NODE: {"rev": "4"}}),
    ]
