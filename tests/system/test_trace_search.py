"""A placement's trace in Jaeger: it arrives by OTLP, is found by its id, and by a search of the service that dashboards link to.

Needs Jaeger's all-in-one as `jaeger` on the PATH, or named by JAEGER: any 1.35 or later, for instance built from its module by
`go build ./cmd/all-in-one`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from colo_common.events.trace import placement_trace, trace_of
from tests.support.ports import free_ports
from tests.support.running import RunningColo, running_colo
from tests.support.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]

JAEGER = os.environ.get("JAEGER") or shutil.which("jaeger")
#: Each span of a placement, the one above it, and the service that said it.
PLACEMENT = {
    ("submit", "", "colo-jobs"),
    ("queue.wait", "submit", "colo-scheduler"),
    ("decide", "submit", "colo-scheduler"),
    ("filter", "decide", "colo-scheduler"),
    ("score", "decide", "colo-scheduler"),
    ("commit", "submit", "colo-scheduler"),
    ("command", "submit", "colo-sim"),
    ("apply", "submit", "colo-sim"),
}


class Jaeger:
    """Its two addresses: where spans are sent, and where they are asked for."""

    def __init__(self, otlp: str, query: str) -> None:
        self.otlp = otlp
        self._query = query

    async def get(self, path: str, **query: str) -> Any:
        """What it answers under `data`; None while it does not, or knows nothing of it."""
        async with aiohttp.ClientSession() as http:
            with suppress(aiohttp.ClientConnectionError):
                async with http.get(self._query + path, params=query) as answer:
                    return (await answer.json())["data"] if answer.status == 200 else None
        return None


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def jaeger(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Jaeger]:
    if JAEGER is None:
        pytest.skip("NOT PROVED: there is no jaeger on the PATH, and JAEGER names none")
    names = (
        "collector.otlp.http.host-port",
        "query.http-server.host-port",
        "collector.otlp.grpc.host-port",
        "query.grpc-server.host-port",
        "collector.grpc-server.host-port",
        "collector.http-server.host-port",
        "admin.http.host-port",
    )
    addresses = [f"127.0.0.1:{port}" for port in free_ports(len(names))]
    words = [f"--{name}={address}" for name, address in zip(names, addresses, strict=True)]
    log: Path = tmp_path_factory.mktemp("jaeger") / "log"
    with log.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            JAEGER, *words, stdout=sink, stderr=sink, env={**os.environ, "SPAN_STORAGE_TYPE": "memory"}
        )
    try:
        found = Jaeger(*(f"http://{address}" for address in addresses[:2]))

        async def answers() -> bool:
            assert process.returncode is None, log.read_text()[-2000:]
            async with aiohttp.ClientSession() as http:
                with suppress(aiohttp.ClientConnectionError):
                    async with http.get(f"http://{addresses[-1]}/") as answer:
                        return answer.status == 200
            return False

        await eventually(answers, "Jaeger answers")
        yield found
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def colo(tmp_path_factory: pytest.TempPathFactory, jaeger: Jaeger) -> AsyncIterator[RunningColo]:
    directory: Path = tmp_path_factory.mktemp("colo")
    async with running_colo(directory, nodes=1, environment={"COLO_OTLP_ENDPOINT": jaeger.otlp}) as running:
        yield running


def spans_of(trace: Any) -> set[tuple[str, str, str]]:
    """Name, the name of the span above, and service."""
    names = {span["spanID"]: span["operationName"] for span in trace["spans"]}
    return {
        (
            span["operationName"],
            next((names[each["spanID"]] for each in span["references"] if each["refType"] == "CHILD_OF"), ""),
            trace["processes"][span["processID"]]["serviceName"],
        )
        for span in trace["spans"]
    }


async def test_a_placement_is_found_as_one_trace_of_all_who_had_a_part_in_it(colo: RunningColo, jaeger: Jaeger) -> None:
    job = await colo.submit({"name": "found", "cpu": "250m", "memory": "64Mi", "work": "5 cpu-min"})
    trace_id = trace_of(placement_trace(f"{job}/main/0", 1))

    async def whole() -> Any:
        traces = await jaeger.get(f"/api/traces/{trace_id}")
        return traces[0] if traces and len(traces[0]["spans"]) >= len(PLACEMENT) else None

    trace = await eventually(whole, "Jaeger has every span of the placement")
    assert trace["traceID"] == trace_id
    assert spans_of(trace) == PLACEMENT
    decide = next(span for span in trace["spans"] if span["operationName"] == "decide")
    assert {"key": "node", "type": "string", "value": "node-01"} in decide["tags"]

    # The request that submitted it has a trace of its own, which the first span names.
    submit = next(span for span in trace["spans"] if span["operationName"] == "submit")
    request_id = next(each["value"] for each in submit["tags"] if each["key"] == "submit_trace")

    async def asked() -> Any:
        traces = await jaeger.get(f"/api/traces/{request_id}")
        return traces and spans_of(traces[0])

    assert await eventually(asked, "Jaeger has the span of the request") == {("submit", "", "colo-gateway")}

    shown = (await colo.get(f"/v1/jobs/{job}/trace"))["trace_id"]
    assert shown == trace_id, "`colo trace` names the trace by which Jaeger knows it"
    # The link of the dashboards: the traces of the last hour that jobs had a part in.
    listed = await jaeger.get("/api/traces", service="colo-jobs", lookback="1h", limit="100")
    assert trace_id in {each["traceID"] for each in listed}
