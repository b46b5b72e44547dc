"""Spans: their ids and parents, and which are kept, published, exported and dropped."""

from __future__ import annotations

import asyncio
import hashlib
import itertools

import pytest

from colo_common.events.service import SpanData, SpansFinished
from colo_common.events.trace import child_traceparent, placement_trace, span_of, trace_is_sampled, trace_of
from colo_common.events.wire import decode
from colo_common.model.invalid import InvalidInput
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.otlp import OtlpExporter
from colo_common.runtime.telemetry import Telemetry
from tests.support.bus_memory import MemoryBus
from tests.support.manual_clock import ManualClock
from tests.support.vloop import run_virtual


class Exported:
    def __init__(self, error: Exception | None = None) -> None:
        self.spans: list[SpanData] = []
        self.error = error

    def export(self, spans: list[SpanData]) -> None:
        if self.error is not None:
            raise self.error
        self.spans += spans

    def close(self) -> None:
        """Nothing."""


def telemetry(**more: object) -> Telemetry:
    count = itertools.count(1)
    return Telemetry("scheduler", span_ids=lambda: f"{next(count):016x}", **more)  # type: ignore[arg-type]


async def published(found: Telemetry, bus: MemoryBus) -> list[SpanData]:
    await found.flush(bus, ManualClock(5_000))
    facts = [decode(message.subject, message.data) for message in bus.sent]
    return [span for fact in facts if isinstance(fact, SpansFinished) for span in fact.spans]


def test_a_placements_trace_follows_from_replica_and_attempt() -> None:
    digest = hashlib.sha256(b"job/main/0#2").hexdigest()
    assert placement_trace("job/main/0", 2) == f"00-{digest[:32]}-{digest[32:48]}-01"


@pytest.mark.parametrize(("ratio", "share"), [(0.0, 0), (0.25, 250), (1.0, 1000)])
def test_about_the_asked_share_of_placements_is_sampled(ratio: float, share: int) -> None:
    sampled = sum(trace_is_sampled(placement_trace(f"job/main/{index}", 1, ratio)) for index in range(1_000))
    assert abs(sampled - share) <= (0 if share in (0, 1000) else 50)


@pytest.mark.parametrize(
    "text", ["", "00-xyz", "01-" + "a" * 32 + "-" + "b" * 16 + "-01", "00-" + "A" * 32 + "-" + "b" * 16 + "-01"]
)
def test_what_is_no_traceparent_has_no_ids(text: str) -> None:
    assert (trace_of(text), span_of(text), trace_is_sampled(text), child_traceparent(text, "c" * 16)) == (
        "",
        "",
        False,
        "",
    )


async def test_spans_of_a_placement_are_published_as_a_tree() -> None:
    root = placement_trace("job/main/0", 1)
    found = telemetry()
    found.root("placement", traceparent=root, start_us=1, end_us=2, attributes={"job": "job"})
    decide = found.span("decide", parent=root, start_us=3, end_us=9)
    found.span("filter", parent=decide, start_us=3, end_us=5)
    found.span("score", parent=decide, start_us=5, end_us=9, error="no node")
    spans = await published(found, MemoryBus(keep_sent=True))
    assert [(span.name, span.span_id, span.parent_id, span.start_us, span.end_us, span.error) for span in spans] == [
        ("placement", span_of(root), "", 1, 2, ""),
        ("decide", "0000000000000001", span_of(root), 3, 9, ""),
        ("filter", "0000000000000002", "0000000000000001", 3, 5, ""),
        ("score", "0000000000000003", "0000000000000001", 5, 9, "no node"),
    ]
    assert {span.trace_id for span in spans} == {trace_of(root)}
    assert spans[0].attributes == {"job": "job"}


async def test_an_unsampled_trace_and_a_missing_parent_keep_nothing() -> None:
    found = telemetry()
    found.span("decide", parent=placement_trace("job/main/0", 1, 0.0), start_us=1, end_us=2)
    assert found.span("decide", parent="", start_us=1, end_us=2) == ""
    assert await published(found, MemoryBus(keep_sent=True)) == []


async def test_many_spans_are_published_200_a_message() -> None:
    bus = MemoryBus(keep_sent=True)
    found = telemetry()
    for _ in range(450):
        found.span("x", parent=placement_trace("r", 1), start_us=1, end_us=2)
    assert len(await published(found, bus)) == 450
    assert len(bus.sent) == 3
    assert {message.subject for message in bus.sent} == {"colo.v1.tlm.trace.scheduler"}


async def test_at_the_limit_the_oldest_spans_go_and_are_counted() -> None:
    metrics = Metrics()
    found = telemetry(metrics=metrics)
    for number in range(10_003):
        found.span("x", parent=placement_trace("r", 1), start_us=number, end_us=number)
    spans = await published(found, MemoryBus(keep_sent=True))
    assert (spans[0].start_us, spans[-1].start_us) == (3, 10_002)
    assert b"colo_scheduler_spans_dropped_total 3.0" in metrics.text()


async def test_a_bus_that_is_away_costs_the_spans_and_nothing_else() -> None:
    metrics = Metrics()
    bus = MemoryBus(keep_sent=True)
    exported = Exported()
    found = telemetry(metrics=metrics, exporter=exported)
    found.span("x", parent=placement_trace("r", 1), start_us=1, end_us=2)
    bus.go_away()
    await found.flush(bus, ManualClock())
    assert b"colo_scheduler_spans_dropped_total 1.0" in metrics.text()
    assert [span.name for span in exported.spans] == ["x"]


@pytest.mark.parametrize("error", [OSError("refused"), RuntimeError("not taken")])
async def test_an_endpoint_that_is_away_costs_nothing_but_the_export(error: Exception) -> None:
    bus = MemoryBus(keep_sent=True)
    found = telemetry(exporter=Exported(error))
    found.span("x", parent=placement_trace("r", 1), start_us=1, end_us=2)
    assert [span.name for span in await published(found, bus)] == ["x"]


def test_an_endpoint_must_be_an_http_address() -> None:
    with pytest.raises(InvalidInput, match="otlp_endpoint"):
        OtlpExporter("localhost:4318", "scheduler", "1")


def test_spans_that_come_after_a_rest_are_published_within_half_a_second() -> None:
    found, bus = telemetry(), MemoryBus(keep_sent=True)

    async def main() -> list[int]:
        counts: list[int] = []
        task = asyncio.create_task(found.run(bus, ManualClock(5_000)))
        for index in range(3):
            await asyncio.sleep(5)
            found.root("submit", traceparent=placement_trace(f"job/main/{index}", 1), start_us=1, end_us=2)
            await asyncio.sleep(0.6)
            counts.append(len(bus.sent))
        task.cancel()
        return counts

    assert run_virtual(main()) == [1, 2, 3]
