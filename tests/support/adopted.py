"""A process runtime on this machine's kernel, adopted, and restored whatever a test did."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy


@asynccontextmanager
async def adopted(policy: ProcessPolicy) -> AsyncIterator[ProcessRuntime]:
    """An adopted runtime that is restored and closed at the end."""
    made = ProcessRuntime(policy)
    try:
        await made.adopt(1)
        yield made
    finally:
        await made.restore()
        await made.close()
