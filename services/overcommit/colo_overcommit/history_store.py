"""Reads the estimators' histories from the store at the start, and stores those that are due at a bounded rate."""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog
from msgspec import Struct

from colo_common.events.effects import Write
from colo_common.ports import Clock, PortError, Store, StoreConflict
from colo_overcommit.core import OvercommitCore
from colo_overcommit.histories import ROW_KIND, HistoriesLoaded

__all__ = ["keep_histories", "load_histories"]

_EVERY_S: Final = 1.0
_ROWS_MOST: Final = 100
"""About 10 ms of encoding, and 100 rows a second: 30,000 nodes in the five minutes of a step."""


async def load_histories(store: Store, partitions: tuple[int, ...] = ()) -> Sequence[Struct]:
    """The rows of all nodes as an event for the core, which takes those of the partitions. Raises the store's errors."""
    rows = await store.load(ROW_KIND)
    return [HistoriesLoaded(rows={row.id: row.value for row in rows}, partitions=partitions)]


async def keep_histories(core: OvercommitCore, store: Store, clock: Clock, every_ms: int) -> None:
    """Store each node's history when it has learned a step, at most every `every_ms`, until cancelled.

    A row that cannot be stored now is stored later: nothing waits for it.
    """
    log = structlog.get_logger("overcommit")
    is_away = False
    while True:
        await asyncio.sleep(_EVERY_S)
        now_ms = clock.now_ms()
        try:
            await _store(core, store, now_ms, every_ms)
        except PortError as error:
            if not is_away:
                log.warning("histories-not-stored", error=str(error))
            is_away = True
            continue
        is_away = False


async def _store(core: OvercommitCore, store: Store, now_ms: int, every_ms: int) -> None:
    rows = core.due_histories(now_ms, every_ms, _ROWS_MOST)
    # The version is the time: the newest row counts, whoever stored the one before it.
    writes = [Write(kind=ROW_KIND, id=node, value=value, expect=now_ms // 1_000) for node, value in rows.items()]
    if not writes:
        return
    try:
        await store.write(writes)
    except StoreConflict:
        # One of them belongs to another instance by now, or was stored under a later clock.
        for write in writes:
            try:
                await store.write([write])
            except StoreConflict:
                continue
    for node in rows:
        core.stored(node, now_ms)
