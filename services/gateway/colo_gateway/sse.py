"""Server-sent events: first the kept facts after the reader's position, then live facts, with a comment line as heartbeat."""

import asyncio
from typing import Final

import msgspec
from aiohttp import web

from colo_common.events.registry import EVENTS
from colo_common.model.plain_values import name_among
from colo_gateway.event_log import EventLog, EventLogEntry
from colo_gateway.responses import names_of
from colo_gateway.streams import EventFilter, Streams

__all__ = ["stream_events"]

_HEARTBEAT_S: Final = 15.0
_TYPES: Final = tuple(row.body.__name__ for row in EVENTS)


async def stream_events(
    request: web.Request, event_log: EventLog, streams: Streams, position: int | None
) -> web.StreamResponse | None:
    """Serve one reader until it disconnects. Returns None when `streams` is at its limit. Raises InvalidInput for an unknown type.

    With `position` None the stream begins with the next fact. When facts after `position` are no longer kept, the first event is
    `gap` with the first kept position. A reader that is too slow gets the event `overrun` and is disconnected.
    """
    filter_ = EventFilter(
        types=tuple(name_among(name, _TYPES, "types") for name in names_of(request.query, "types")),
        node=request.query.get("node", ""),
        job=request.query.get("job", ""),
    )
    stream = streams.open(filter_)
    if stream is None:
        return None
    try:
        kept = [] if position is None else event_log.after(position)
        shown = event_log.position
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        await response.prepare(request)
        first = event_log.first_position()
        if position is not None and first > position + 1:
            await response.write(f"event: gap\ndata: {first}\n\n".encode())
        for entry in kept:
            if filter_.accepts(entry):
                await response.write(_event(entry))
        while not stream.overrun:
            try:
                async with asyncio.timeout(_HEARTBEAT_S):
                    entry = await stream.queue.get()
            except TimeoutError:
                await response.write(b": alive\n\n")
                continue
            # Entries up to `shown` were in the event log when it was replayed.
            if position is None or entry.position > shown:
                await response.write(_event(entry))
        await response.write(b"event: overrun\ndata: resume from your last id\n\n")
        return response
    finally:
        streams.close(stream)


def _event(entry: EventLogEntry) -> bytes:
    body = msgspec.json.encode(entry.fact)
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (entry.position, entry.type.encode(), body)
