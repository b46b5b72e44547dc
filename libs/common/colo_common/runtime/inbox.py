"""The queue before a core: bounded and taken in batches, with items that may wait behind all others."""

import asyncio
from collections import deque
from dataclasses import dataclass
from math import inf

from msgspec import Struct

from colo_common.ports import Delivery

__all__ = ["Inbox", "Item", "Local", "Request"]


@dataclass(frozen=True, slots=True)
class Request:
    """A request with its decoded body; `request` is the key of its reply."""

    request: str
    body: Struct
    traceparent: str


@dataclass(frozen=True, slots=True)
class Local:
    """An event of the service's own."""

    event: Struct


Item = Delivery | Request | Local


class Inbox:
    """At most `limit` items; `put` waits while it is full. Items are taken in order of arrival, delayed items last.

    Delayed items (put with `may_wait_s` above 0) are taken once their time is up, or as soon as `enough` of them wait or their room
    is full, and even then only when no other item waits: a request never waits behind a row of reports. Once they are overdue by
    that time again they are taken along with other items, so that they get through at any load. A quarter of the room is kept free
    of them.
    """

    def __init__(self, limit: int, enough: int = 200) -> None:
        self._limit = limit
        self._delayed_limit = max(1, limit - limit // 4)
        self._enough = min(enough, self._delayed_limit)
        self._items: deque[Item] = deque()
        self._delayed: deque[Item] = deque()
        # When the first delayed item is due, and when it is taken along with others.
        self._due_s = inf
        self._overdue_s = inf
        self._may_delay = True
        self._is_interrupted = False
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._items) + len(self._delayed)

    @property
    def full(self) -> bool:
        """Whether `put` would wait now, for an item that is not delayed."""
        return len(self) >= self._limit

    async def put(self, item: Item, may_wait_s: float = 0.0) -> None:
        """Add an item, as soon as there is room. `may_wait_s`: how long it may be delayed."""
        while self.full or (may_wait_s > 0 and len(self._delayed) >= self._delayed_limit):
            self._room.clear()
            await self._room.wait()
        if may_wait_s <= 0 or not self._may_delay:
            self._items.append(item)
            self._filled.set()
            return
        due_s = asyncio.get_running_loop().time() + may_wait_s
        self._delayed.append(item)
        if due_s < self._due_s:
            self._due_s, self._overdue_s = due_s, due_s + may_wait_s
            self._filled.set()
        elif len(self._delayed) == self._enough:
            self._filled.set()

    def interrupt(self) -> None:
        """Let the waiting `take`, or else the next one, return at once, even without items."""
        self._is_interrupted = True
        self._filled.set()

    def stop_delaying(self) -> None:
        """Delay no item from now on, and none that waits already."""
        self._may_delay = False
        self._items.extend(self._delayed)
        self._delayed.clear()
        self._due_s = self._overdue_s = inf
        self._filled.set()

    async def take(self, limit: int, timeout_s: float | None) -> list[Item]:
        """Up to `limit` items as soon as there are any, and up to `limit` overdue delayed items with them.

        Empty after the timeout or an interrupt. Delayed items count once they are due.
        """
        if timeout_s is not None and timeout_s <= 0:
            if not self._items:
                await asyncio.sleep(0)
        elif not self._is_ripe():
            await self._wait_ripe(timeout_s)
        self._is_interrupted = False
        taken = [self._items.popleft() for _ in range(min(limit, len(self._items)))]
        if self._delayed and (self._is_ripe() if not taken else asyncio.get_running_loop().time() >= self._overdue_s):
            taken += self._take_delayed(limit)
        self._room.set()
        return taken

    def _take_delayed(self, limit: int) -> list[Item]:
        taken = [self._delayed.popleft() for _ in range(min(limit, len(self._delayed)))]
        # What is left arrived at nearly the same time, so the due times stay.
        if not self._delayed:
            self._due_s = self._overdue_s = inf
        return taken

    def _is_ripe(self) -> bool:
        """Whether there is an item to take."""
        if self._items or len(self._delayed) >= self._enough:
            return True
        return bool(self._delayed) and asyncio.get_running_loop().time() >= self._due_s

    async def _wait_ripe(self, timeout_s: float | None) -> None:
        """Wait until there is an item to take, for the timeout or until an interrupt."""
        end_s = inf if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
        while not (self._is_interrupted or self._is_ripe()):
            until_s = min(end_s, self._due_s)
            self._filled.clear()
            try:
                async with asyncio.timeout_at(None if until_s == inf else until_s):
                    await self._filled.wait()
            except TimeoutError:
                if until_s == end_s:
                    return
