"""The event log: the newest facts in order of arrival, so that a reader can resume its stream."""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

from msgspec import Struct

from colo_common.events.fact import Fact
from colo_common.model.invalid import InvariantBroken

__all__ = ["EventLog", "EventLogEntry"]

_PIECE: Final = 5_000


class EventLogEntry(Struct, frozen=True, kw_only=True):
    """One fact of the stream. `position` counts the facts from 1 in the order in which the gateway received them."""

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
        """Add the fact with the next position; a full ring drops its oldest fact."""
        self.position += 1
        entry = EventLogEntry(position=self.position, type=type_, subject=subject, fact=fact)
        self._entries.append(entry)
        return entry

    def after(self, position: int) -> list[EventLogEntry]:
        """Kept facts with a higher position, oldest first."""
        return [entry for entry in self._entries if entry.position > position]

    def of_node(self, node: str, most: int) -> list[EventLogEntry]:
        """The newest kept facts about the node, oldest first."""
        found = islice((entry for entry in reversed(self._entries) if getattr(entry.fact, "node", "") == node), most)
        return list(found)[::-1]

    def first_position(self) -> int:
        """The position of the oldest kept fact, or 0 when the log is empty. Facts with lower positions were dropped."""
        return self._entries[0].position if self._entries else 0

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
