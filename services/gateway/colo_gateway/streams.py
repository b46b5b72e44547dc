"""Open event streams. Each has its own bounded queue and filter, so a slow reader only loses its own stream."""

import asyncio
from typing import Final

from colo_gateway.event_filter import EventFilter
from colo_gateway.event_log import EventLogEntry

__all__ = ["OpenStream", "Streams"]

_WRITE_S: Final = 30.0


class OpenStream:
    """The stream of one reader. A full queue makes it `overrun`: the reader must reconnect and resume from its last position."""

    def __init__(self, filter_: EventFilter, size: int) -> None:
        self.filter = filter_
        self.queue: asyncio.Queue[EventLogEntry] = asyncio.Queue(size)
        self.overrun = False

    def enqueue(self, entry: EventLogEntry) -> None:
        """Queue the entry if it passes the filter."""
        passed = None if self.overrun else self.filter.passed(entry)
        if passed is None:
            return
        try:
            self.queue.put_nowait(passed)
        except asyncio.QueueFull:
            self.overrun = True


class Streams:
    """All open streams, at most `limit`."""

    def __init__(self, *, limit: int, queue_size: int, write_s: float = _WRITE_S) -> None:
        """`write_s`: how long the connection of a reader may take nothing before it is closed."""
        self.write_s = write_s
        self._limit = limit
        self._queue_size = queue_size
        self._open: list[OpenStream] = []

    def open(self, filter_: EventFilter) -> OpenStream | None:
        """Open a new stream; None when the limit is reached."""
        if len(self._open) >= self._limit:
            return None
        stream = OpenStream(filter_, self._queue_size)
        self._open.append(stream)
        return stream

    def close(self, stream: OpenStream) -> None:
        """Remove the stream of a reader that disconnected."""
        self._open.remove(stream)

    def show(self, entry: EventLogEntry) -> None:
        """Queue the entry in every stream whose filter accepts it."""
        for stream in self._open:
            stream.enqueue(entry)

    def __len__(self) -> int:
        return len(self._open)
