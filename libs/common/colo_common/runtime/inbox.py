"""The one queue before a core: bounded, in order of arrival, taken in batches."""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import Struct

from colo_common.ports import Delivery

__all__ = ["Heard", "Inbox", "Item", "Local", "Question"]


class Heard(NamedTuple):
    """A message of the bus. There is one for every message, and a tuple is made in a third of the time."""

    delivery: Delivery
    max_deliver: int


@dataclass(frozen=True, slots=True)
class Question:
    """A request with its decoded body; `request` is the key under which the answer is waited for."""

    request: str
    body: Struct
    traceparent: str


@dataclass(frozen=True, slots=True)
class Local:
    """An event of the service's own."""

    event: Struct


Item = Heard | Question | Local


class Inbox:
    """At most `limit` items; who brings more waits."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: deque[Item] = deque()
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def full(self) -> bool:
        """Whether the next `put` would wait."""
        return len(self._items) >= self._limit

    async def put(self, item: Item) -> None:
        """Add at the end, as soon as there is room."""
        while len(self._items) >= self._limit:
            self._room.clear()
            await self._room.wait()
        self._items.append(item)
        self._filled.set()

    def interrupt(self) -> None:
        """Let a waiting `take` return at once, empty-handed if need be."""
        self._filled.set()

    async def take(self, limit: int, timeout_s: float | None) -> list[Item]:
        """Up to `limit` items, as soon as there is one; none after the timeout or an interrupt."""
        if not self._items and (timeout_s is None or timeout_s > 0):
            self._filled.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._filled.wait()
            except TimeoutError:
                return []
        elif not self._items:
            await asyncio.sleep(0)
        taken = [self._items.popleft() for _ in range(min(limit, len(self._items)))]
        self._room.set()
        return taken
