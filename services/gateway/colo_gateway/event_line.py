"""One fact as a reader of the stream or of the history gets it: position, time, words, and the fact itself."""

import msgspec
from msgspec import Struct

from colo_common.events.fact_text import fact_text
from colo_gateway.concern import kind_of
from colo_gateway.event_log import EventLogEntry

__all__ = ["EventLine", "line_of"]


class EventLine(Struct, frozen=True, kw_only=True):
    """`position` is where a reader resumes; `at_ms` is when it happened (Unix ms, simulated in a lab); `text` says it in words."""

    position: int
    at_ms: int
    kind: str
    type: str
    text: str
    fact: msgspec.Raw


def line_of(entry: EventLogEntry) -> EventLine:
    """The line of an entry."""
    return EventLine(
        position=entry.position,
        at_ms=entry.fact.at_ms,
        kind=kind_of(entry.type),
        type=entry.type,
        text=fact_text(entry.fact),
        fact=msgspec.Raw(msgspec.json.encode(entry.fact)),
    )
