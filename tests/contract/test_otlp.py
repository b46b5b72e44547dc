"""Spans as an OTLP/HTTP collector receives them."""

from __future__ import annotations

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from colo_common.events.trace import placement_trace, span_of, trace_of
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.otlp import OtlpExporter
from colo_common.runtime.telemetry import Telemetry
from tests.support.bus_memory import MemoryBus
from tests.support.manual_clock import ManualClock
from tests.support.ports import free_ports


async def test_a_collector_receives_the_spans_of_a_placement() -> None:
    bodies: list[bytes] = []

    async def traces(request: web.Request) -> web.Response:
        bodies.append(await request.read())
        return web.Response()

    app = web.Application()
    app.add_routes([web.post("/v1/traces", traces)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    exporter = OtlpExporter(f"http://127.0.0.1:{runner.addresses[0][1]}", "scheduler", "1.2.3")
    telemetry = Telemetry("scheduler", exporter=exporter, span_ids=lambda: "00000000000000aa")
    root = placement_trace("job/main/0", 1)
    telemetry.root("submit", traceparent=root, start_us=1_000_000, end_us=2_000_000)
    telemetry.span(
        "decide", parent=root, start_us=1_500_000, end_us=1_600_000, attributes={"node": "n1"}, error="no node"
    )
    await telemetry.flush(MemoryBus(), ManualClock())
    telemetry.close()
    await runner.cleanup()

    (body,) = bodies
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    named = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert (named["service.name"], named["service.version"]) == ("colo-scheduler", "1.2.3")
    spans = [span for scope in resource.scope_spans for span in scope.spans]
    assert [
        (
            span.name,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            span.status.message,
        )
        for span in spans
    ] == [
        ("submit", trace_of(root), span_of(root), "", 1_000_000_000, 2_000_000_000, ""),
        ("decide", trace_of(root), "00000000000000aa", span_of(root), 1_500_000_000, 1_600_000_000, "no node"),
    ]
    assert {each.key: each.value.string_value for each in spans[1].attributes} == {
        "node": "n1",
        "colo.service": "scheduler",
    }


async def test_a_collector_that_is_not_there_costs_the_export_and_is_counted() -> None:
    metrics = Metrics()
    exporter = OtlpExporter(f"http://127.0.0.1:{free_ports(1)[0]}", "scheduler", "1.2.3")
    telemetry = Telemetry("scheduler", metrics=metrics, exporter=exporter)
    telemetry.root("submit", traceparent=placement_trace("job/main/0", 1), start_us=1, end_us=2)
    await telemetry.flush(MemoryBus(), ManualClock())
    telemetry.close()
    assert b"colo_scheduler_spans_dropped_total 1.0" in metrics.text()
