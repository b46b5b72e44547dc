"""A trace is printed depth first, whatever order its spans arrived in."""

from colo_common.events.service import SpanData
from colo_gateway.traces import span_tree


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
