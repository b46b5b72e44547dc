"""What the gateway answers about a job: `GET /v1/jobs/{job}/explain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from colo_common.events.placement import NodeScore
from colo_common.events.requests import DecisionRecord, JobDetail, JobSummary, ReplicaDetail, StoryLine
from colo_common.model.placement import Placement
from colo_common.model.workload import JobSpec, TaskSpec
from colo_gateway.eviction_account import EvictionAccount
from colo_gateway.replies import JobExplained, ReplicaExplained

__all__ = ["a_decision", "an_explanation"]


def a_decision(
    replica: str, scores: Sequence[NodeScore] = (), *, fitting: int | None = None, placement: Placement | None = None
) -> DecisionRecord:
    """The newest decision about a replica's first attempt."""
    return DecisionRecord(
        replica=replica, attempt=1, at_ms=0, nodes=5, scores=tuple(scores), fitting=fitting, placement=placement
    )


def an_explanation(
    replicas: Sequence[ReplicaExplained] = (),
    *,
    story: Sequence[StoryLine] = (),
    evicted: int = 0,
    evictions: Sequence[EvictionAccount] = (),
    partial: str = "",
    tasks: Sequence[TaskSpec] = (),
) -> dict[str, Any]:
    """The answer as JSON about the job "job", one of whose replicas was `evicted` so many times."""
    count = max(len(replicas), 1)
    summary = JobSummary(
        job="job",
        name="job",
        queue="q",
        state="Running",
        replicas=count,
        waiting=0,
        running=count,
        succeeded=0,
        failed=0,
        stopped=0,
        submitted_at_ms=0,
    )
    detail = JobDetail(
        summary=summary,
        spec=JobSpec(name="job", tasks=tuple(tasks)),
        version=1,
        replicas=(ReplicaDetail(replica="job/main/0", attempt=1, state="Running", evictions=evicted),),
        story=tuple(story),
    )
    answer = JobExplained(
        job=detail, replicas=tuple(replicas), evictions=tuple(evictions), partial=partial, clock_speed=60.0
    )
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(answer))
    return found
