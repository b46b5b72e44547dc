"""Notices at once that a store lost rows: it was emptied, started again, or another server took over."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from colo_common.ports import PortError

__all__ = ["watch_identity"]

_EVERY_S: Final = 1.0


async def watch_identity(
    identity: Callable[[], Awaitable[str]], on_change: Callable[[], Awaitable[None]], known: str = ""
) -> None:
    """Ask every second who the store is, and call `on_change` when that is another than before, until cancelled.

    `known` is who it was before anything was read from it; "": nobody has asked.
    """
    log = structlog.get_logger(source="store")
    while True:
        try:
            found = await identity()
        except PortError:
            # Whoever calls the store says that it is away.
            found = known
        if known and found != known:
            log.error("store-lost", was=known, found=found, then="what this service knows is put back")
            await on_change()
        known = found
        await asyncio.sleep(_EVERY_S)
