"""The event event_log: the newest facts in order, so that a stream can be resumed after a break."""

from collections import deque
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from colo_common.events.fact import Fact
from colo_common.model.invalid import InvariantBroken

__all__ = ["EventLog", "EventLogEntry"]

_PIECE: Final = 5_000


class EventLogEntry(Struct, frozen=True, kw_only=True):
    """One fact as the stream shows it. `position` counts from 1 in the order in which the gateway heard them."""

    position: int
    type: str
    subject: str
    fact: Fact


class EventLog:
    """A ring of the newest `size` facts."""

    def __init__(self, size: int) -> None:
        self._entries: deque[EventLogEntry] = deque(maxlen=size)
        self.position = 0

    def __len__(self) -> int:
        """How many facts are kept."""
        return len(self._entries)

    def append(self, type_: str, subject: str, fact: Fact) -> EventLogEntry:
        """Keep the fact; the oldest one leaves when the ring is full."""
        self.position += 1
        entry = EventLogEntry(position=self.position, type=type_, subject=subject, fact=fact)
        self._entries.append(entry)
        return entry

    def after(self, position: int) -> list[EventLogEntry]:
        """Kept facts with a higher position, oldest first."""
        return [entry for entry in self._entries if entry.position > position]

    def first_position(self) -> int:
        """Position of the oldest kept fact, or 0 when there is none: what lies before it is gone."""
        return self._entries[0].position if self._entries else 0

    def pieces(self) -> Iterator[int]:
        """Raise InvariantBroken unless positions ascend by one up to the newest; a piece each time, and how long it was."""
        entries = list(self._entries)
        at = self.position - len(entries)
        for start in range(0, len(entries), _PIECE):
            piece = entries[start : start + _PIECE]
            if [entry.position for entry in piece] != list(range(at + start + 1, at + start + len(piece) + 1)):
                raise InvariantBroken("the event_log is out of order", position=at + start)
            yield len(piece)
