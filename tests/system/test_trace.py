"""One trace for each placement, from submission to the running replica, compared literally."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from colo_common.events.trace import placement_trace, trace_of
from tests.support.running import RunningColo, running_colo
from tests.support.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]

PLACEMENT = [
    (0, "submit", "jobs"),
    (1, "queue.wait", "scheduler"),
    (1, "decide", "scheduler"),
    (2, "filter", "scheduler"),
    (2, "score", "scheduler"),
    (1, "commit", "scheduler"),
    (1, "command", "sim"),
    (1, "apply", "sim"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def colo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningColo]:
    directory: Path = tmp_path_factory.mktemp("colo")
    async with running_colo(directory, nodes=1) as running:
        yield running


async def whole_trace(colo: RunningColo, path: str) -> dict[str, Any]:
    async def complete() -> dict[str, Any] | None:
        answer = await colo.call("GET", path)
        return answer.body if answer.status == 200 and len(answer.body["spans"]) >= len(PLACEMENT) else None

    found: dict[str, Any] = await eventually(complete, "every span of the placement was said", limit_s=20)
    return found


async def test_a_placement_is_one_trace_from_submission_to_the_running_replica(colo: RunningColo) -> None:
    job = await colo.submit({"name": "traced", "cpu": "500m", "memory": "64Mi", "work": "5 cpu-min"})
    trace = await whole_trace(colo, f"/v1/jobs/{job}/trace")
    replica = f"{job}/main/0"
    assert (trace["replica"], trace["attempt"]) == (replica, 1)
    assert trace["trace_id"] == trace_of(placement_trace(replica, 1))
    assert [(span["depth"], span["name"], span["service"]) for span in trace["spans"]] == PLACEMENT
    by_name = {span["name"]: span for span in trace["spans"]}
    assert by_name["decide"]["attributes"]["node"] == "node-01"
    assert not [span["error"] for span in trace["spans"] if span["error"]]
    starts = [by_name[name]["offset_us"] for name in ("queue.wait", "decide", "commit", "command", "apply")]
    assert starts == sorted(starts), "the stages follow one another"


async def test_two_replicas_of_a_job_have_a_trace_each(colo: RunningColo) -> None:
    job = await colo.submit({"name": "pair", "replicas": 2, "cpu": "250m", "memory": "64Mi", "work": "5 cpu-min"})
    traces = [await whole_trace(colo, f"/v1/jobs/{job}/trace?replica={job}/main/{index}") for index in (0, 1)]
    assert traces[0]["trace_id"] != traces[1]["trace_id"]
    for trace in traces:
        assert [(span["depth"], span["name"], span["service"]) for span in trace["spans"]] == PLACEMENT


async def test_a_placement_that_never_was_has_no_trace(colo: RunningColo) -> None:
    job = await colo.submit({"name": "huge", "cpu": "900", "memory": "64Mi", "work": "5 cpu-min"})
    answer = await colo.call("GET", f"/v1/jobs/{job}/trace?replica={job}/main/7")
    assert (answer.status, answer.body["field"]) == (404, "replica")
