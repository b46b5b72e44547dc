"""Server-sent events: first the kept facts after the reader's position, then live facts, with a comment line as heartbeat."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import msgspec
from aiohttp import web

from colo_common.model.plain_values import name_among
from colo_gateway.clock_headers import CLOCK_SPEED_HEADER
from colo_gateway.event_line import line_of
from colo_gateway.event_log import EventLog, EventLogEntry
from colo_gateway.event_query import filter_of
from colo_gateway.since import Since
from colo_gateway.streams import Streams

__all__ = ["stream_events"]

_HEARTBEAT_S: Final = 15.0
_LOOK_S: Final = 1.0
_FORMS: Final = ("fact", "line")


class _Disconnected(Exception):
    """The reader went away, or its connection takes nothing any more."""


async def stream_events(
    request: web.Request,
    event_log: EventLog,
    streams: Streams,
    since: Since | None,
    *,
    now_ms: int,
    speed: float,
    why_ended: Callable[[], Awaitable[str]],
) -> web.StreamResponse | None:
    """Serve one reader until it disconnects. Returns None when `streams` is at its limit. Raises InvalidInput for a bad filter.

    With `since` None the stream begins with the next fact. When facts after `since` are no longer kept, the first event is `gap`
    with the first kept position. A reader that is too slow gets the event `overrun` and is disconnected; one whose connection takes
    nothing for a while is cut off, and takes no place among the open streams any more. `why_ended` is asked once a second: one
    whose token was revoked or has expired gets the event `ended` with its answer and is disconnected. With the query
    `form=line` the data of an event is an EventLine instead of the fact.
    """
    filter_ = filter_of(request)
    is_line = name_among(request.query.get("form", "fact"), _FORMS, "form") == "line"
    stream = streams.open(filter_)
    if stream is None:
        return None
    try:
        position, has_gap = (None, False) if since is None else _start(event_log, since, now_ms)
        kept = [] if position is None else event_log.after(position)
        shown = event_log.position
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
                CLOCK_SPEED_HEADER: f"{speed:g}",
            }
        )
        await response.prepare(request)
        with suppress(_Disconnected):
            write = _writer(request, response, streams.write_s)
            if has_gap:
                await write(f"event: gap\ndata: {event_log.first_position() or shown + 1}\n\n".encode())
            for entry in kept:
                passed = filter_.passed(entry)
                if passed is not None:
                    await write(_event(passed, is_line))
            clock = asyncio.get_running_loop()
            beats_s, looks_s = clock.time() + _HEARTBEAT_S, clock.time() + _LOOK_S
            while not stream.overrun:
                if clock.time() >= looks_s:
                    why = await why_ended()
                    if why:
                        await write(f"event: ended\ndata: the token {why}\n\n".encode())
                        return response
                    looks_s = clock.time() + _LOOK_S
                if clock.time() >= beats_s:
                    await write(b": alive\n\n")
                    beats_s = clock.time() + _HEARTBEAT_S
                try:
                    async with asyncio.timeout_at(min(beats_s, looks_s)):
                        entry = await stream.queue.get()
                except TimeoutError:
                    continue
                # Entries up to `shown` were in the event log when it was replayed.
                if position is None or entry.position > shown:
                    await write(_event(entry, is_line))
                    beats_s = clock.time() + _HEARTBEAT_S
            await write(b"event: overrun\ndata: resume from your last id\n\n")
        return response
    finally:
        streams.close(stream)


def _writer(request: web.Request, response: web.StreamResponse, write_s: float) -> Callable[[bytes], Awaitable[None]]:
    """Writes to a reader. Raises _Disconnected when it went away or takes nothing for `write_s`: its connection is then closed."""

    async def write(data: bytes) -> None:
        try:
            async with asyncio.timeout(write_s):
                await response.write(data)
        except ConnectionResetError as error:
            raise _Disconnected from error
        except TimeoutError as error:
            if request.transport is not None:
                request.transport.abort()
            raise _Disconnected from error

    return write


def _start(event_log: EventLog, since: Since, now_ms: int) -> tuple[int, bool]:
    """The position after which the reader begins, and whether facts between the wanted beginning and it are no longer kept."""
    if since.ago_ms is None:
        position = since.position or 0
        # After a gap everything that is kept is shown: of a position of another process nothing here is known to be older.
        has_gap = event_log.has_gap_after(position)
        return (0 if has_gap else position), has_gap
    from_ms = now_ms - since.ago_ms
    known_ms = event_log.known_since_ms()
    return event_log.position_at(from_ms), known_ms is not None and known_ms > from_ms


def _event(entry: EventLogEntry, is_line: bool) -> bytes:
    body = msgspec.json.encode(line_of(entry) if is_line else entry.fact)
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (entry.position, entry.type.encode(), body)
