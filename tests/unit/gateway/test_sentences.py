"""What people read about a replica."""

import pytest
from msgspec import structs

from colo_common.events.placement import NearestMiss, NodeScore, ProposedPreemption, ProposedVictim, ReasonCount
from colo_common.events.requests import DecisionRecord, ReplicaDetail
from colo_common.model.qos import PriorityBand
from colo_common.model.reasons import Reason
from colo_gateway.explain import sentence
from tests.support.builders import a_placement


def a_replica(state: str, **fields: object) -> ReplicaDetail:
    return ReplicaDetail(replica="j/main/0", attempt=1, state=state, **fields)  # type: ignore[arg-type]


REJECTED = DecisionRecord(
    replica="j/main/0",
    attempt=1,
    at_ms=0,
    nodes=12,
    counts=(ReasonCount(reason=Reason.NODE_NOT_FRESH, nodes=7), ReasonCount(reason=Reason.BATCH_CPU_SHORT, nodes=5)),
    nearest=NearestMiss(node="node-07", reason=Reason.BATCH_CPU_SHORT, need=4000, have=2800, unit="mcpu", zone=1),
)
NEVER = structs.replace(
    REJECTED,
    never=True,
    nearest=NearestMiss(node="node-07", reason=Reason.BATCH_CPU_SHORT, need=60_000, have=16_000, unit="mcpu"),
)
VICTIMS = tuple(
    ProposedVictim(
        replica=f"low/main/{number}", attempt=1, band=PriorityBand.BATCH, priority=0, cpu_mcpu=1, memory_bytes=1
    )
    for number in range(7)
)
PREEMPTING = structs.replace(
    REJECTED, preemption=ProposedPreemption(node="node-07", victims=VICTIMS[:2], revision=3, at_ms=0)
)
NOT_PLACED = structs.replace(
    REJECTED, counts=(ReasonCount(reason=Reason.QOS_NOT_ADMITTED, nodes=12),), nearest=None, never=True
)
BROKEN = structs.replace(REJECTED, nodes=0, counts=(), nearest=None, never=True, broken_rule="cpu: must be whole CPUs")
PLACED = DecisionRecord(
    replica="j/main/0",
    attempt=1,
    at_ms=0,
    nodes=12,
    counts=REJECTED.counts[:1],
    placement=a_placement(node="n1"),
    scores=(NodeScore(node="n1", total=88, scores={"zones": 100, "free": 76}),),
    fitting=5,
    number=1,
    together=1,
)
OF_MANY = structs.replace(PLACED, fitting=1, number=3, together=8)
SEARCHED = structs.replace(PLACED, fitting=None, number=12, together=22)
OWNER = structs.replace(
    OF_MANY, placement=structs.replace(a_placement(node="n1"), reservation="night"), scores=(), fitting=None
)


@pytest.mark.parametrize(
    ("detail", "decision", "text"),
    [
        (a_replica("Pending"), None, "waits for its first decision"),
        (
            a_replica("Pending"),
            REJECTED,
            "0 of 12 nodes fit: 7 node-not-fresh, 5 batch-cpu-short; nearest miss: 1.2 CPU short in zone 1 of"
            " node-07 (2.8 of 4)",
        ),
        (
            a_replica("Pending"),
            NEVER,
            "no node could hold it even when empty: a machine has 16 CPU at most (node-07), it needs 60; now 0 of 12 nodes"
            " fit: 7 node-not-fresh, 5 batch-cpu-short",
        ),
        (a_replica("Pending"), NOT_PLACED, "0 of 12 nodes fit: 12 qos-not-admitted"),
        (
            a_replica("Pending"),
            PREEMPTING,
            "0 of 12 nodes fit: 7 node-not-fresh, 5 batch-cpu-short; nearest miss: 1.2 CPU short in zone 1 of"
            " node-07 (2.8 of 4); would fit on node-07 if low/main/0 and low/main/1 left (lower priority)",
        ),
        (
            a_replica("Pending"),
            BROKEN,
            "is not tried, the request breaks a rule, so no node was asked: cpu: must be whole CPUs; it waits until the"
            " job is cancelled",
        ),
        (
            a_replica("Running", node="n1", zones=(0,)),
            PLACED,
            "running on n1, zone 0: best of 5 fitting nodes with score 88 (free 76, zones 100)",
        ),
        (
            a_replica("Running", node="n1", zones=(0,)),
            OF_MANY,
            "running on n1, zone 0: the only fitting node, with score 88 (free 76, zones 100); 3rd of 8 decided together",
        ),
        (
            a_replica("Running", node="n1", zones=(0,)),
            SEARCHED,
            "running on n1, zone 0: the first that takes it of 5 nodes with room, in order of their scores, with score 88"
            " (free 76, zones 100); 12th of 22 decided together",
        ),
        (
            a_replica("Running", node="n1", zones=(0,)),
            OWNER,
            "running on n1, zone 0: took its place in reservation night; 3rd of 8 decided together",
        ),
        (
            a_replica("Running", node="n2", zones=(0, 1), evictions=2),
            None,
            "running on n2, zones 0, 1; attempt 1, evicted 2 times",
        ),
        (a_replica("Failed", exit_code=3, reason="exited"), None, "failed with exit code 3: exited"),
        (a_replica("Succeeded", exit_code=0), None, "succeeded with exit code 0"),
        # The sentence of an ended replica tells its end, not the decision.
        (
            a_replica("Failed", node="n1", zones=(0,), exit_code=3, reason="exited"),
            PLACED,
            "failed on n1, zone 0, with exit code 3: exited",
        ),
        (
            a_replica("Stopped", node="n1", zones=(0, 1), reason="cancelled"),
            PLACED,
            "stopped on n1, zones 0, 1: cancelled",
        ),
        (
            a_replica("Backoff", node="n1", zones=(0,), exit_code=1),
            PLACED,
            "failed, waits for its next try; was on n1, zone 0, with exit code 1",
        ),
        (
            a_replica("Running", node="n2", zones=(0,), evictions=1),
            None,
            "running on n2, zone 0; attempt 1, evicted once",
        ),
    ],
)
def test_a_replica_is_explained_in_one_sentence(
    detail: ReplicaDetail, decision: DecisionRecord | None, text: str
) -> None:
    assert sentence(detail, decision) == text


def test_of_many_victims_of_a_proposal_some_are_named() -> None:
    proposal = ProposedPreemption(node="n1", victims=VICTIMS, revision=3, at_ms=0)
    text = sentence(a_replica("Pending"), structs.replace(REJECTED, preemption=proposal))
    assert text.endswith("low/main/4 and 2 more left (lower priority)")
