"""Open event streams. Each has its own bounded queue and filter, so a slow reader only loses its own stream."""

import asyncio

from msgspec import Struct

from colo_gateway.event_log import EventLogEntry

__all__ = ["EventFilter", "OpenStream", "Streams"]


class EventFilter(Struct, frozen=True, kw_only=True):
    """Which facts a reader gets: of these types, of this node and of this job. An empty field accepts every value."""

    types: tuple[str, ...] = ()
    node: str = ""
    job: str = ""

    def accepts(self, entry: EventLogEntry) -> bool:
        """Whether the entry passes the filter."""
        if self.types and entry.type not in self.types:
            return False
        if self.node and getattr(entry.fact, "node", "") != self.node:
            return False
        if not self.job:
            return True
        fact = entry.fact
        named = [getattr(fact, "job", "")]
        for field in ("placements", "placement_requests"):
            named.extend(item.job for item in getattr(fact, field, ()))
        named.append(getattr(fact, "replica", "").split("/", 1)[0])
        return self.job in named


class OpenStream:
    """The stream of one reader. A full queue makes it `overrun`: the reader must reconnect and resume from its last position."""

    def __init__(self, filter_: EventFilter, size: int) -> None:
        self.filter = filter_
        self.queue: asyncio.Queue[EventLogEntry] = asyncio.Queue(size)
        self.overrun = False

    def enqueue(self, entry: EventLogEntry) -> None:
        """Queue the entry if it passes the filter."""
        if self.overrun or not self.filter.accepts(entry):
            return
        try:
            self.queue.put_nowait(entry)
        except asyncio.QueueFull:
            self.overrun = True


class Streams:
    """All open streams, at most `limit`."""

    def __init__(self, *, limit: int, queue_size: int) -> None:
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
