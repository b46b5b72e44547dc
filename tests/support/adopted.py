"""A process runtime on this machine's kernel, adopted, and restored whatever a test did."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy

__all__ = ["AS_ROOT", "adopted"]

#: The rule of users for tests whose jobs read this environment, which may be the developer's alone, and write where the test looks.
AS_ROOT: Final = {"default": "root"}


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
