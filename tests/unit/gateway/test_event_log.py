"""The event log keeps the newest facts in order."""

from colo_common.events.effects import Wake
from colo_common.events.job import JobStateChanged, PlacementsRequested
from colo_common.events.service import SpanData, SpansFinished
from colo_gateway.core import GatewayCore, Shown
from colo_gateway.streams import EventFilter, Streams
from tests.support.builders import a_placement, a_sample, decided
from tests.support.scheduler_story import a_placement_request


def a_change(job: str = "j1") -> JobStateChanged:
    return JobStateChanged(job=job, queue="default", state="Running", previous="Inqueue", transition="J04", version=2)


def a_core(event_log_size: int = 3) -> GatewayCore:
    return GatewayCore(event_log_size=event_log_size, trace_size=2)


def test_positions_ascend_and_the_oldest_leaves() -> None:
    core = a_core()
    for number in range(5):
        (effect,) = core.handle(a_change(f"j{number}"), 0)
        assert isinstance(effect, Shown)
        assert effect.entry.position == number + 1
    assert [entry.position for entry in core.event_log.after(0)] == [3, 4, 5]
    assert [entry.position for entry in core.event_log.after(4)] == [5]
    assert core.event_log.first_position() == 3
    core.check()
    assert core.handle(Wake(), 0) == []
    assert core.received == {"JobStateChanged": 5}


def test_spans_go_to_the_traces_and_not_to_the_event_log() -> None:
    core = a_core()
    span = SpanData(trace_id="t", span_id="s", parent_id="", name="submit", service="jobs", start_us=1, end_us=2)
    assert core.handle(SpansFinished(service="jobs", spans=(span, span)), 0) == []
    assert core.traces.spans("t") == (span,)
    assert core.event_log.position == 0


def test_the_least_recent_trace_leaves() -> None:
    core = a_core()
    for trace in ("a", "b", "a", "c"):
        span = SpanData(trace_id=trace, span_id=trace, parent_id="", name="x", service="s", start_us=0, end_us=0)
        core.handle(SpansFinished(service="s", spans=(span,)), 0)
    assert (len(core.traces.spans("a")), len(core.traces.spans("b")), len(core.traces.spans("c"))) == (1, 0, 1)


def test_a_filter_looks_at_type_node_and_job() -> None:
    core = a_core(10)
    shown = []
    requested = PlacementsRequested(placement_requests=(a_placement_request("j1/main/0"),))
    for fact in (a_change("j1"), a_change("j2"), decided(a_placement("j1/main/0")), a_sample("n7"), requested):
        (effect,) = core.handle(fact, 0)
        assert isinstance(effect, Shown)
        shown.append(effect.entry)
    assert [entry.position for entry in shown if EventFilter(job="j1").accepts(entry)] == [1, 3, 5]
    assert [entry.position for entry in shown if EventFilter(node="n7").accepts(entry)] == [4]
    assert [entry.position for entry in shown if EventFilter(types=("JobStateChanged",)).accepts(entry)] == [1, 2]
    assert [entry.position for entry in shown if EventFilter().accepts(entry)] == [1, 2, 3, 4, 5]


def test_a_slow_reader_is_overrun_alone() -> None:
    streams = Streams(limit=2, queue_size=2)
    slow = streams.open(EventFilter())
    picky = streams.open(EventFilter(job="other"))
    assert slow is not None
    assert picky is not None
    assert streams.open(EventFilter()) is None
    core = a_core(10)
    for _ in range(3):
        (effect,) = core.handle(a_change(), 0)
        assert isinstance(effect, Shown)
        streams.show(effect.entry)
    assert slow.overrun
    assert not picky.overrun
    streams.close(slow)
    assert len(streams) == 1
