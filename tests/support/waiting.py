"""Waiting in real time, for tests that watch real processes: for a condition, never for a span, and never for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

__all__ = ["LIMIT_S", "NeverHappened", "eventually", "eventually_blocking"]

T = TypeVar("T")
POLL_S = 0.01
LIMIT_S = 60.0
"""When a condition is taken for one that never comes, unless the test says otherwise: it keeps no condition from coming late."""


class NeverHappened(AssertionError):
    """The condition did not hold within the limit."""


async def eventually(look: Callable[[], Awaitable[T]], what: str, *, limit_s: float = LIMIT_S) -> T:
    """Call `look` until it returns something true and return that; raise NeverHappened, naming `what`, at the limit.

    The last look begins after the limit: a machine that stood still meanwhile has not looked in vain.
    """
    deadline_s = time.monotonic() + limit_s
    while True:
        is_last = time.monotonic() > deadline_s
        seen = await look()
        if seen:
            return seen
        if is_last:
            raise NeverHappened(f"{what}: not within {limit_s:g} s, last seen {seen!r}")
        await asyncio.sleep(POLL_S)


def eventually_blocking(look: Callable[[], T], what: str, *, limit_s: float = LIMIT_S) -> T:
    """Do as eventually(), for a test without an event loop."""
    deadline_s = time.monotonic() + limit_s
    while True:
        is_last = time.monotonic() > deadline_s
        seen = look()
        if seen:
            return seen
        if is_last:
            raise NeverHappened(f"{what}: not within {limit_s:g} s, last seen {seen!r}")
        time.sleep(POLL_S)
