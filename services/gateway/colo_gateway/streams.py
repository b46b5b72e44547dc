"""Open event streams: each has its own bounded queue and its own filter; a slow reader loses its place, nobody else's."""

import asyncio

from msgspec import Struct

from colo_gateway.event_log import EventLogEntry

__all__ = ["Filter", "OpenStream", "Streams"]


class Filter(Struct, frozen=True, kw_only=True):
    """What a reader wants; empty means everything.."""

    types: tuple[str, ...] = ()
    node: str = ""
    job: str = ""

    def placement_requests(self, entry: EventLogEntry) -> bool:
        """Whether the entry passes."""
        if self.types and entry.type not in self.types:
            return False
        if self.node and getattr(entry.fact, "node", "") != self.node:
            return False
        if not self.job:
            return True
        fact = entry.fact
        named = [getattr(fact, "job", "")]
        for field in ("placements", "wants"):
            named.extend(item.job for item in getattr(fact, field, ()))
        named.append(getattr(fact, "replica", "").split("/", 1)[0])
        return self.job in named


class OpenStream:
    """One reader. When its queue is full it is `overrun`: it must reconnect and resume from its last position."""

    def __init__(self, wanted: Filter, size: int) -> None:
        self.wanted = wanted
        self.queue: asyncio.Queue[EventLogEntry] = asyncio.Queue(size)
        self.overrun = False

    def offer(self, entry: EventLogEntry) -> None:
        """Queue the entry if the reader wants it."""
        if self.overrun or not self.wanted.placement_requests(entry):
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

    def open(self, wanted: Filter) -> OpenStream | None:
        """A new stream, or None when the limit is reached."""
        if len(self._open) >= self._limit:
            return None
        stream = OpenStream(wanted, self._queue_size)
        self._open.append(stream)
        return stream

    def close(self, stream: OpenStream) -> None:
        """The reader left."""
        self._open.remove(stream)

    def show(self, entry: EventLogEntry) -> None:
        """Offer the entry to every stream."""
        for stream in self._open:
            stream.offer(entry)

    def __len__(self) -> int:
        return len(self._open)
