"""What measures in control groups of its own removes them also when it is asked to end before it is done."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, Final

__all__ = ["TERMINATED", "run"]

#: The exit code of a process that SIGTERM ended.
TERMINATED: Final = 128 + signal.SIGTERM


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run it in a loop of its own. SIGTERM cancels it, and when it has cleaned up the process ends with TERMINATED."""

    async def cancelled_by_sigterm() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await main

    try:
        asyncio.run(cancelled_by_sigterm())
    except asyncio.CancelledError:
        raise SystemExit(TERMINATED) from None
