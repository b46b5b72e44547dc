"""After a crash, messages that the bus delivers again are tried one at a time, so that the one that caused it is found alone.

The row of a running service in its store says which message is being tried, and which one an error came from: nobody else counts
how often the last message of a subject, or a live one, comes again. A row that is there at the start was left by a process that did
not end by itself, or belongs to another instance of the service; both only make this one more careful.
"""

from collections import OrderedDict
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Struct

from colo_common.events.effects import Write
from colo_common.ports import Delivery, Store, StoreConflict

__all__ = ["TRIES_MOST", "Trials", "trials_kind"]

#: A message that ended the process this many times, while it was handled alone or by an error that came from it, is given up.
TRIES_MOST: Final = 3
_KEPT_MOST: Final = 100
#: The stream, the sequence in it, and when the message was stored: in a stream that was made again another one has its sequence.
_Place = tuple[str, int, int]


def trials_kind(service: str) -> str:
    """The kind of the rows that a service's running processes note their trials in."""
    return f"running-{service}"


class Tried(Struct, frozen=True, kw_only=True):
    """How often a message of a stream, or a live one of a subject (then `stream_seq` is 0), was begun and not finished."""

    stream: str
    stream_seq: int
    tries: int
    stored_us: int = 0


class Trials:
    """The trials of one start of a service. Every method but `is_suspect` and `tries_of` raises as the store does."""

    def __init__(self, store: Store, service: str, boot_id: str) -> None:
        self._store = store
        self._kind = trials_kind(service)
        self._id = boot_id
        self._version = 0
        self._tries: OrderedDict[_Place, int] = OrderedDict()
        self._is_after_crash = False
        self._current: _Place | None = None

    async def begin(self) -> None:
        """Read what earlier starts left, and note that this one runs. May be called again after an error."""
        rows = await self._store.load(self._kind)
        left = [row for row in rows if row.id != self._id]
        for row in left:
            self._is_after_crash = True
            # A row of another version only says that somebody did not end by itself.
            with suppress(msgspec.DecodeError):
                for tried in msgspec.json.decode(row.value, type=tuple[Tried, ...]):
                    place = (tried.stream, tried.stream_seq, tried.stored_us)
                    self._tries[place] = max(self._tries.get(place, 0), tried.tries)
        self._version = next((row.version for row in rows if row.id == self._id), 0)
        await self._save()
        for row in left:
            with suppress(StoreConflict):
                await self._store.write((Write(kind=self._kind, id=row.id, value=None, expect=row.version),))

    def is_suspect(self, delivery: Delivery) -> bool:
        """Whether the message must be handled alone: it ended a process, or was delivered before one did not end by itself."""
        if not self._is_after_crash:
            return False
        return (delivery.deliveries > 1 and delivery.stream_seq > 0) or self.tries_of(delivery) > 0

    def tries_of(self, delivery: Delivery) -> int:
        """How often the message was begun and the process ended before it was handled."""
        return self._tries.get(_place_of(delivery), 0) if self._tries else 0

    async def start(self, delivery: Delivery) -> None:
        """Note, before the message is handled, that it is tried; the message tried before was handled."""
        place = _place_of(delivery)
        if self._current is not None:
            self._tries.pop(self._current, None)
        self._current = place
        await self._count(place)

    async def blame(self, delivery: Delivery) -> None:
        """Note that the process ends by an error that came from this message."""
        place = _place_of(delivery)
        if place != self._current:
            await self._count(place)

    async def passed(self) -> None:
        """Note that the last message that was tried is handled."""
        if self._current is not None:
            self._tries.pop(self._current, None)
            self._current = None
            await self._save()

    async def end(self) -> None:
        """Note that this start ends by itself."""
        if self._version:
            await self._store.write((Write(kind=self._kind, id=self._id, value=None, expect=self._version),))
            self._version = 0

    async def _count(self, place: _Place) -> None:
        self._tries[place] = self._tries.get(place, 0) + 1
        while len(self._tries) > _KEPT_MOST:
            self._tries.popitem(last=False)
        await self._save()

    async def _save(self) -> None:
        tried = [
            Tried(stream=stream, stream_seq=seq, stored_us=stored_us, tries=tries)
            for (stream, seq, stored_us), tries in self._tries.items()
        ]
        write = Write(kind=self._kind, id=self._id, value=msgspec.json.encode(tried), expect=self._version)
        try:
            await self._store.write((write,))
        except StoreConflict as conflict:
            # The answer to an earlier call was lost, or another instance that started meanwhile took the row for a left one.
            self._version = conflict.found
            await self._store.write((msgspec.structs.replace(write, expect=conflict.found),))
        self._version += 1


def _place_of(delivery: Delivery) -> _Place:
    """Where the message is stored; its subject for one that is stored nowhere."""
    if not delivery.stream_seq:
        return delivery.subject, 0, 0
    return delivery.stream, delivery.stream_seq, delivery.stored_us
