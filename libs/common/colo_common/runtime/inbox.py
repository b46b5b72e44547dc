"""The queue before a core: bounded, taken in batches, what somebody waits for before what may wait."""

import asyncio
from collections import deque
from dataclasses import dataclass
from math import inf

from msgspec import Struct

from colo_common.ports import Delivery

__all__ = ["Inbox", "Item", "Local", "Request"]


@dataclass(frozen=True, slots=True)
class Request:
    """A request with its decoded body; `request` is the key under which the answer is waited for."""

    request: str
    body: Struct
    traceparent: str


@dataclass(frozen=True, slots=True)
class Local:
    """An event of the service's own."""

    event: Struct


Item = Delivery | Request | Local


class Inbox:
    """At most `limit` items; who brings more waits. It gives them in order of arrival, and last what may wait.

    What may wait is given once its time is up, or as soon as `enough` of it is there or nothing more has room, and even then only
    when nothing else is there: a decision that somebody waits for never stands behind a row of reports. A part of it that is
    overdue by as long again goes along with the others, so that it comes through at any load. A quarter of the room is not for it.
    """

    def __init__(self, limit: int, enough: int = 200) -> None:
        self._limit = limit
        self._later_limit = max(1, limit - limit // 4)
        self._enough = min(enough, self._later_limit)
        self._items: deque[Item] = deque()
        self._later: deque[Item] = deque()
        # When the first of `_later` is due, and when it goes along with others.
        self._due_s = inf
        self._overdue_s = inf
        self._is_hurried = False
        self._is_interrupted = False
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._items) + len(self._later)

    @property
    def full(self) -> bool:
        """Whether the next `put` of what may not wait would wait."""
        return len(self) >= self._limit

    async def put(self, item: Item, may_wait_s: float = 0.0) -> None:
        """Add at the end, as soon as there is room. `may_wait_s`: it may lie so long."""
        while self.full or (may_wait_s > 0 and len(self._later) >= self._later_limit):
            self._room.clear()
            await self._room.wait()
        if may_wait_s <= 0 or self._is_hurried:
            self._items.append(item)
            self._filled.set()
            return
        due_s = asyncio.get_running_loop().time() + may_wait_s
        self._later.append(item)
        if due_s < self._due_s:
            self._due_s, self._overdue_s = due_s, due_s + may_wait_s
            self._filled.set()
        elif len(self._later) == self._enough:
            self._filled.set()

    def interrupt(self) -> None:
        """Let the `take` that waits, or the next one, return at once, empty-handed if need be."""
        self._is_interrupted = True
        self._filled.set()

    def hurry(self) -> None:
        """From now on nothing may wait."""
        self._is_hurried = True
        self._items.extend(self._later)
        self._later.clear()
        self._due_s = self._overdue_s = inf
        self._filled.set()

    async def take(self, limit: int, timeout_s: float | None) -> list[Item]:
        """Up to `limit` items, as soon as there are any that may not wait; none after the timeout or an interrupt.

        As many again of what is overdue go along with them.
        """
        if timeout_s is not None and timeout_s <= 0:
            if not self._items:
                await asyncio.sleep(0)
        elif not self._is_ripe():
            await self._ripens(timeout_s)
        self._is_interrupted = False
        taken = [self._items.popleft() for _ in range(min(limit, len(self._items)))]
        if self._later and (self._is_ripe() if not taken else asyncio.get_running_loop().time() >= self._overdue_s):
            taken += self._take_later(limit)
        self._room.set()
        return taken

    def _take_later(self, limit: int) -> list[Item]:
        taken = [self._later.popleft() for _ in range(min(limit, len(self._later)))]
        # What is left lay there as long, nearly.
        if not self._later:
            self._due_s = self._overdue_s = inf
        return taken

    def _is_ripe(self) -> bool:
        """Whether there is something to take."""
        if self._items or len(self._later) >= self._enough:
            return True
        return bool(self._later) and asyncio.get_running_loop().time() >= self._due_s

    async def _ripens(self, timeout_s: float | None) -> None:
        """Wait until there is something to take, for the timeout or until an interrupt."""
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
