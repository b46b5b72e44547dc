"""Keeps finished spans by trace, to print the span tree of a placement without a tracing back end."""

from collections import OrderedDict
from collections.abc import Iterable

from msgspec import Struct

from colo_common.events.service import SpanData
from colo_common.events.trace import placement_trace, trace_of

__all__ = ["SpanNode", "Traces", "newest_placement", "span_tree"]

#: How many placements of a replica are looked through.
_ATTEMPTS_MAX = 100
_SPANS_A_TRACE_MAX = 500


class SpanNode(Struct, frozen=True, kw_only=True):
    """One line of the printed tree. `offset_us` counts from the start of the trace."""

    depth: int
    name: str
    service: str
    offset_us: int
    duration_us: int
    attributes: dict[str, str]
    error: str = ""


class Traces:
    """Keeps the newest `size` traces. A trace that gets a span becomes the newest. A span that is delivered twice counts once."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._traces: OrderedDict[str, dict[str, SpanData]] = OrderedDict()

    def keep(self, spans: Iterable[SpanData]) -> None:
        """Add spans to their traces."""
        for span in spans:
            trace = self._traces.setdefault(span.trace_id, {})
            self._traces.move_to_end(span.trace_id)
            if len(trace) < _SPANS_A_TRACE_MAX:
                trace[span.span_id] = span
        while len(self._traces) > self._size:
            self._traces.popitem(last=False)

    def spans(self, trace_id: str) -> tuple[SpanData, ...]:
        """The spans of the trace by start, then id; () for an unknown trace."""
        return tuple(sorted(self._traces.get(trace_id, {}).values(), key=lambda s: (s.start_us, s.span_id)))


def newest_placement(
    traces: Traces, replica: str, attempt: int, *, is_placed: bool
) -> tuple[int, tuple[SpanData, ...]]:
    """The newest attempt with spans, and its spans; (0, ()) when there are none of the newest hundred.

    `attempt` is the replica's present one. While it waits for a place it has the span of its submission only: then the placement
    before it is the newest, and a replica that never had one shows the submission.
    """
    for each in range(attempt, max(attempt - _ATTEMPTS_MAX, 0), -1):
        spans = traces.spans(trace_of(placement_trace(replica, each)))
        if spans and (is_placed or each < max(attempt, 2)):
            return each, spans
    return 0, ()


def span_tree(spans: Iterable[SpanData]) -> tuple[SpanNode, ...]:
    """The span tree as lines, depth first, children by start. A span without a known parent is at the top."""
    ordered = sorted(spans, key=lambda s: (s.start_us, s.span_id))
    known = {span.span_id for span in ordered}
    children: dict[str, list[SpanData]] = {}
    for span in ordered:
        children.setdefault(span.parent_id if span.parent_id in known else "", []).append(span)
    zero_us = ordered[0].start_us if ordered else 0
    lines: list[SpanNode] = []
    # An explicit stack: a long chain of parents must not reach Python's recursion limit.
    stack = [(span, 0) for span in reversed(children.get("", []))]
    while stack:
        span, depth = stack.pop()
        lines.append(
            SpanNode(
                depth=depth,
                name=span.name,
                service=span.service,
                offset_us=span.start_us - zero_us,
                duration_us=max(span.end_us - span.start_us, 0),
                attributes=span.attributes,
                error=span.error,
            )
        )
        stack.extend((child, depth + 1) for child in reversed(children.get(span.span_id, [])))
    return tuple(lines)
