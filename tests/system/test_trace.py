"""One trace for each placement, from submission to the running replica, compared literally: as the gateway shows it and as a
tracing back end receives it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

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


class BackEnd:
    """A tracing back end: keeps what is posted to /v1/traces at `url`."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/x-protobuf"
        self.bodies.append(await request.read())
        return web.Response()

    def tree(self, trace_id: str) -> list[tuple[int, str, str]]:
        """Depth, name and service of each span of the trace, as it arrived: children follow their parent by start."""
        spans: dict[str, tuple[str, int, str, str]] = {}
        for body in self.bodies:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                named = {each.key: each.value.string_value for each in resource.resource.attributes}
                for span in (span for scope in resource.scope_spans for span in scope.spans):
                    if span.trace_id.hex() == trace_id:
                        parent, start = span.parent_span_id.hex(), span.start_time_unix_nano
                        spans[span.span_id.hex()] = (parent, start, span.name, named["service.name"])
        return list(_below("", spans, 0))


def _below(parent: str, spans: dict[str, tuple[str, int, str, str]], depth: int) -> Iterator[tuple[int, str, str]]:
    children = sorted((span[1], span_id) for span_id, span in spans.items() if span[0] == parent)
    for _, span_id in children:
        yield depth, spans[span_id][2], spans[span_id][3]
        yield from _below(span_id, spans, depth + 1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def back_end() -> AsyncIterator[BackEnd]:
    found = BackEnd()
    app = web.Application()
    app.add_routes([web.post("/v1/traces", found.take)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def colo(tmp_path_factory: pytest.TempPathFactory, back_end: BackEnd) -> AsyncIterator[RunningColo]:
    directory: Path = tmp_path_factory.mktemp("colo")
    async with running_colo(directory, nodes=1, environment={"COLO_OTLP_ENDPOINT": back_end.url}) as running:
        yield running


async def whole_trace(colo: RunningColo, path: str) -> dict[str, Any]:
    async def complete() -> dict[str, Any] | None:
        answer = await colo.call("GET", path)
        return answer.body if answer.status == 200 and len(answer.body["spans"]) >= len(PLACEMENT) else None

    found: dict[str, Any] = await eventually(complete, "every span of the placement was said")
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


async def test_the_trace_of_a_placement_that_was_just_made_is_waited_for(colo: RunningColo) -> None:
    job = await colo.submit({"name": "hasty", "cpu": "250m", "memory": "64Mi", "work": "5 cpu-min"})

    async def has_place() -> str:
        detail = (await colo.call("GET", f"/v1/jobs/{job}")).body
        return str(detail["replicas"][0].get("node", ""))

    await eventually(has_place, "the replica has a place")
    # Asked once: nobody but the gateway knows that spans are on their way.
    answer = await colo.call("GET", f"/v1/jobs/{job}/trace")
    assert answer.status == 200
    assert [span["name"] for span in answer.body["spans"]] == [name for _, name, _ in PLACEMENT]


async def test_two_replicas_of_a_job_have_a_trace_each(colo: RunningColo) -> None:
    job = await colo.submit({"name": "pair", "replicas": 2, "cpu": "250m", "memory": "64Mi", "work": "5 cpu-min"})
    traces = [await whole_trace(colo, f"/v1/jobs/{job}/trace?replica={job}/main/{index}") for index in (0, 1)]
    assert traces[0]["trace_id"] != traces[1]["trace_id"]
    for trace in traces:
        assert [(span["depth"], span["name"], span["service"]) for span in trace["spans"]] == PLACEMENT


async def test_a_tracing_back_end_receives_the_same_tree(colo: RunningColo, back_end: BackEnd) -> None:
    job = await colo.submit({"name": "sent", "cpu": "250m", "memory": "64Mi", "work": "5 cpu-min"})
    trace_id = trace_of(placement_trace(f"{job}/main/0", 1))

    async def whole() -> list[tuple[int, str, str]]:
        tree = back_end.tree(trace_id)
        return tree if len(tree) >= len(PLACEMENT) else []

    tree = await eventually(whole, "every span of the placement was exported")
    assert tree == [(depth, name, f"colo-{service}") for depth, name, service in PLACEMENT]


async def test_a_placement_that_never_was_has_no_trace(colo: RunningColo) -> None:
    job = await colo.submit({"name": "huge", "cpu": "900", "memory": "64Mi", "work": "5 cpu-min"})
    answer = await colo.call("GET", f"/v1/jobs/{job}/trace?replica={job}/main/7")
    assert (answer.status, answer.body["field"]) == (404, "replica")
    waiting = await colo.call("GET", f"/v1/jobs/{job}/trace")
    assert [span["name"] for span in waiting.body["spans"]] == ["submit"], "it waits, and that is all"
