"""How a job waits, as people read it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from colo_common.events.requests import DecisionRecord, JobDetail, JobSummary
from colo_common.events.waiting import JobWait
from colo_common.model.restriction import Restriction, RestrictionKind, Restrictions, RestrictionScope
from colo_gateway.wait import wait_of, wait_sentence
from tests.support.jobs_world import a_spec, a_task

WAIT = JobWait(
    job="j",
    replica="j/main/2",
    waiting=3,
    waited_ms=750_000,
    queue="q",
    qos="BE",
    ahead=5,
    ahead_in_queue=2,
    rest_ms=45_000,
    placed=64,
    error_ms=8_000,
)
BEGIN = "j/main/2 and 2 more replicas waited 12m30s so far, 5 ahead of it in the order (2 of its queue); "
JOB = JobDetail(
    summary=JobSummary(
        job="j", name="j", queue="q", state="Inqueue", replicas=3, waiting=3, running=0, succeeded=0, failed=0, stopped=0,
        submitted_at_ms=0,
    ),
    spec=a_spec(a_task()),
    version=1,
    replicas=(),
    story=(),
)  # fmt: skip
LATEST = DecisionRecord(replica="j/main/2", attempt=1, at_ms=0, nodes=3)


@pytest.mark.parametrize(
    ("wait", "text"),
    [
        (
            WAIT,
            BEGIN + "about 45s more, by the last 64 placements of class BE in queue q; "
            "past estimates were off by 8.0s at the median",
        ),
        (
            replace(WAIT, waiting=1, ahead=0, ahead_in_queue=0, error_ms=None),
            "j/main/2 waited 12m30s so far, first in the order; about 45s more, by the last 64 placements of class BE in "
            "queue q; no past estimate was measured yet",
        ),
        (
            replace(WAIT, rest_ms=None, why_none="nothing was placed", error_ms=None, avoid=(("n1", 120_000),)),
            BEGIN
            + "no estimate, because nothing was placed; not on n1 for another 2m00s, which refused, evicted or could "
            "not start it",
        ),
        (JobWait(job="j", waiting=2, retry_in_ms=3_000), "2 replicas of it failed and are tried again in 3.0s"),
        (JobWait(job="j"), ""),
    ],
    ids=["estimate", "first", "none", "backoff", "nothing waits"],
)
def test_a_wait_is_one_sentence(wait: JobWait, text: str) -> None:
    assert wait_sentence(wait) == text


def test_what_past_waits_do_not_show_takes_the_estimate_away() -> None:
    nothing = Restrictions()
    assert wait_of(WAIT, JOB, {"j/main/2": LATEST}, nothing) == WAIT
    never = wait_of(WAIT, JOB, {"j/main/2": replace(LATEST, never=True)}, nothing)
    assert (never.rest_ms, never.why_none) == (None, "no node could hold it even when empty")
    paused = Restrictions()
    pause = Restriction(
        kind=RestrictionKind.PAUSE, scope=RestrictionScope.QUEUE, target="q", by="ana", reason="wrong input"
    )
    paused.take(1, (pause,), 0)
    held = wait_of(WAIT, JOB, {}, paused)
    assert (held.rest_ms, held.why_none) == (None, "its queue is paused by ana: wrong input")
