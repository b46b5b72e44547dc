"""A trace is printed depth first, whatever order its spans arrived in."""

from colo_common.events.service import SpanData
from colo_common.events.trace import placement_trace, trace_of
from colo_gateway.traces import Traces, newest_placement, span_tree


def a_span(span_id: str, parent_id: str, start_us: int, end_us: int = 0) -> SpanData:
    return SpanData(
        trace_id="t", span_id=span_id, parent_id=parent_id, name=span_id, service="s", start_us=start_us, end_us=end_us
    )


def test_children_follow_their_parent_by_start() -> None:
    spans = [
        a_span("score", "decide", 30),
        a_span("decide", "root", 20, 50),
        a_span("root", "", 10),
        a_span("filter", "decide", 21),
    ]
    assert [(line.depth, line.name) for line in span_tree(spans)] == [
        (0, "root"),
        (1, "decide"),
        (2, "filter"),
        (2, "score"),
    ]
    assert [line.offset_us for line in span_tree(spans)] == [0, 10, 11, 20]
    assert span_tree(spans)[1].duration_us == 30


def test_a_span_without_its_parent_stands_at_the_top() -> None:
    assert [(line.depth, line.name) for line in span_tree([a_span("apply", "gone", 5)])] == [(0, "apply")]


def test_a_long_chain_is_printed() -> None:
    spans = [a_span(f"s{n}", f"s{n - 1}" if n else "", n) for n in range(5000)]
    assert span_tree(spans)[-1].depth == 4999


def test_a_clock_that_went_back_gives_no_negative_duration() -> None:
    assert span_tree([a_span("x", "", 10, 5)])[0].duration_us == 0


def test_no_spans_no_lines() -> None:
    assert span_tree([]) == ()


def kept(*attempts: int) -> Traces:
    """Traces with a span of each of these attempts of job-1/main/0."""
    traces = Traces(10)
    for attempt in attempts:
        trace_id = trace_of(placement_trace("job-1/main/0", attempt))
        traces.keep(
            [
                SpanData(
                    trace_id=trace_id, span_id="s", parent_id="", name=f"#{attempt}", service="s", start_us=1, end_us=2
                )
            ]
        )
    return traces


def newest(traces: Traces, attempt: int, *, is_placed: bool) -> tuple[int, list[str]]:
    found, spans = newest_placement(traces, "job-1/main/0", attempt, is_placed=is_placed)
    return found, [span.name for span in spans]


def test_the_newest_placement_is_the_present_one_or_that_before_a_wait_for_the_next() -> None:
    assert newest(kept(1, 2), 2, is_placed=True) == (2, ["#2"])
    assert newest(kept(1, 2), 2, is_placed=False) == (1, ["#1"])
    # Its first submission is all that there is of it.
    assert newest(kept(1), 1, is_placed=False) == (1, ["#1"])
    # The newest is not kept: sampled away, or fallen out.
    assert newest(kept(1, 2), 4, is_placed=True) == (2, ["#2"])
    assert newest(kept(), 4, is_placed=True) == (0, [])
    assert newest(kept(1), 200, is_placed=True) == (0, [])
