"""A start that may take long and can be cancelled by an event."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

__all__ = ["finished_before"]


async def finished_before(stop: asyncio.Event, work: Coroutine[Any, Any, object]) -> bool:
    """Do the work. Returns False when `stop` was set first; the work was cancelled then and has ended. Raises the work's errors."""
    doing = asyncio.create_task(work)
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((doing, stopped), return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            doing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await doing
            return False
        doing.result()
        return True
    finally:
        for task in (doing, stopped):
            task.cancel()
