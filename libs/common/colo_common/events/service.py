"""Facts that every service may publish: dead letters and finished spans."""

from msgspec import Struct

from colo_common.events.fact import Fact
from colo_common.model.units import Bytes, Number, Us

__all__ = ["DeadLettered", "SpanData", "SpansFinished"]


class DeadLettered(Fact, frozen=True, kw_only=True):
    """A message could not be decoded or handled. `payload` is its text, or hex when it is not UTF-8, cut to 2048 characters.

    `data` and `headers` are the whole message, as it must be published again; without `data` it is too large and stays where
    `stream` and `stream_seq` say. `stream` is empty for a part of a message, which has no `data`, and for one of the service's own
    that no stream took: without `data` these cannot be published again. `stored_us` is when the stream stored the message, by which
    it is told from another one that has its place in a stream that was made again; 0: not known.
    """

    service: str
    subject: str
    reason: str
    payload: str = ""
    size_bytes: Bytes = 0
    stream: str = ""
    stream_seq: Number = 0
    stored_us: Us = 0
    data: bytes = b""
    headers: dict[str, str] = {}


class SpanData(Struct, frozen=True, kw_only=True):
    """One finished span; ids are lower-case hex as in W3C trace context, times are Unix microseconds of the wall clock."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    service: str
    start_us: Us
    end_us: Us
    attributes: dict[str, str] = {}
    error: str = ""


class SpansFinished(Fact, frozen=True, kw_only=True):
    """Finished spans of one service, at most 200 in one message. Lossy."""

    service: str
    spans: tuple[SpanData, ...]
