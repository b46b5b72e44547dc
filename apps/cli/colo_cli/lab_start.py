"""Starting something that may take long, unless somebody does not want it any more."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

__all__ = ["finished_before"]


async def finished_before(stop: asyncio.Event, work: Coroutine[Any, Any, object]) -> bool:
    """Do the work; False when `stop` was set first: then the work was cancelled, and has ended. Raises what the work raises."""
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
