"""The event log: the newest facts in order of arrival, so that a reader can resume its stream."""

from collections import deque
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from colo_common.events.fact import Fact
from colo_common.model.invalid import InvariantBroken

__all__ = ["EventLog", "EventLogEntry"]

_PIECE: Final = 5_000


class EventLogEntry(Struct, frozen=True, kw_only=True):
    """One fact of the stream. `position` counts the facts on from the log's `start`, in the order of arrival.

    `received_ms` is when it did so, or when it happened where it was read again from its stream.
    """

    position: int
    type: str
    subject: str
    fact: Fact
    received_ms: int = 0


class EventLog:
    """A ring of the newest `size` facts."""

    def __init__(self, size: int, start: int = 0) -> None:
        """`start`: the position before the first fact. A start that grows with time keeps the positions of two starts apart."""
        self._entries: deque[EventLogEntry] = deque(maxlen=size)
        self._start = start
        self._begins_ms: dict[str, int] = {}
        self.position = start

    def __len__(self) -> int:
        """How many facts are kept."""
        return len(self._entries)

    def append(self, type_: str, subject: str, fact: Fact, now_ms: int) -> EventLogEntry:
        """Add the fact with the next position; a full ring drops its oldest fact."""
        self.position += 1
        entry = EventLogEntry(position=self.position, type=type_, subject=subject, fact=fact, received_ms=now_ms)
        self._entries.append(entry)
        return entry

    def after(self, position: int) -> list[EventLogEntry]:
        """Kept facts with a higher position, oldest first."""
        return [entry for entry in self._entries if entry.position > position]

    def has_gap_after(self, position: int) -> bool:
        """Whether facts after the position may be missing here: they were dropped, or the position is another process's."""
        if not position:
            return self.first_position() > self._start + 1
        return position < (self.first_position() or self.position + 1) - 1 or position > self.position

    def first_position(self) -> int:
        """The position of the oldest kept fact, or 0 when the log is empty. Facts with lower positions were dropped."""
        return self._entries[0].position if self._entries else 0

    def position_at(self, at_ms: int) -> int:
        """The position before the first kept fact that happened at or after that time; the newest position when there is none."""
        return next((entry.position - 1 for entry in self._entries if entry.fact.at_ms >= at_ms), self.position)

    def begins(self, stream: str, at_ms: int) -> None:
        """From then on the facts of the stream are received."""
        self._begins_ms[stream] = at_ms

    def known_since_ms(self) -> int | None:
        """Since when every fact is kept (ms): of every stream, and still now that the oldest ones left; None for an empty log."""
        if not self._entries:
            return None
        has_dropped = self.position - self._start > len(self._entries)
        first_ms = self._entries[0].received_ms
        return (
            max(self._begins_ms.values(), default=first_ms)
            if not has_dropped
            else max(first_ms, *self._begins_ms.values())
        )

    def pieces(self) -> Iterator[int]:
        """Check in pieces that positions ascend by one up to the newest, and yield the length of each checked piece.

        Raises InvariantBroken when they do not.
        """
        entries = list(self._entries)
        at = self.position - len(entries)
        for start in range(0, len(entries), _PIECE):
            piece = entries[start : start + _PIECE]
            if [entry.position for entry in piece] != list(range(at + start + 1, at + start + len(piece) + 1)):
                raise InvariantBroken("the event log is out of order", position=at + start)
            yield len(piece)
