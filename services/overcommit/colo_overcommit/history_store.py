"""The rows of the estimators' histories in the store: read at the start, and those that are due stored at a bounded rate."""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog
from msgspec import Struct

from colo_common.events.effects import Write
from colo_common.ports import Clock, PortError, Store, StoreConflict
from colo_overcommit.core import OvercommitCore
from colo_overcommit.histories import ROW_KIND, HistoriesLoaded

__all__ = ["HistoryRows"]

_EVERY_S: Final = 1.0
_ROWS_MOST: Final = 100
"""About 10 ms of encoding, and 100 rows a second: 30,000 nodes in the five minutes of a step."""


class HistoryRows:
    """The rows of all nodes with their versions, which only count up: no clock of any machine has a say in what is stored.

    Whoever holds a node writes its row over that of the holder before it: the store refuses who does not hold it any more.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._versions: dict[str, int] = {}

    async def load(self, partitions: tuple[int, ...] = ()) -> Sequence[Struct]:
        """The rows as an event for the core, which takes those of the partitions. Raises the store's errors."""
        rows = await self.store.load(ROW_KIND)
        self._versions = {row.id: row.version for row in rows}
        return [HistoriesLoaded(rows={row.id: row.value for row in rows}, partitions=partitions)]

    async def keep(self, core: OvercommitCore, clock: Clock, every_ms: int) -> None:
        """Store each node's history when it has learned a step, at most every `every_ms`, until cancelled.

        A row that cannot be stored now is stored later: nothing waits for it.
        """
        log = structlog.get_logger("overcommit")
        is_away, unreadable = False, 0
        while True:
            await asyncio.sleep(_EVERY_S)
            if core.dropped.unreadable_histories > unreadable:
                log.warning(
                    "histories-unreadable",
                    rows=core.dropped.unreadable_histories - unreadable,
                    why="damaged, or written by another version",
                    then="their nodes learn anew, and write over them",
                )
                unreadable = core.dropped.unreadable_histories
            try:
                await self._store_due(core, clock.now_ms(), every_ms)
            except PortError as error:
                if not is_away:
                    log.warning("histories-not-stored", error=str(error))
                is_away = True
                continue
            is_away = False

    async def _store_due(self, core: OvercommitCore, now_ms: int, every_ms: int) -> None:
        rows = core.due_histories(now_ms, every_ms, _ROWS_MOST)
        for node in await self._write(rows):
            core.stored(node, now_ms)

    async def _write(self, rows: dict[str, bytes | None]) -> Sequence[str]:
        """Write these rows, and return the nodes whose row is stored."""
        if not rows:
            return ()
        try:
            await self.store.write([self._of(node, value) for node, value in rows.items()])
        except StoreConflict:
            return [node for node, value in rows.items() if await self._write_one(node, value)]
        for node, value in rows.items():
            self._has_written(node, value)
        return tuple(rows)

    async def _write_one(self, node: str, value: bytes | None) -> bool:
        """Write one row, over a newer one as well; False when the node belongs to another instance by now."""
        for _ in range(2):
            write = self._of(node, value)
            try:
                await self.store.write([write])
            except StoreConflict as conflict:
                # Fenced: it expected what is there.
                if conflict.found <= write.expect:
                    return False
                self._versions[node] = conflict.found
            else:
                self._has_written(node, value)
                return True
        return False

    def _of(self, node: str, value: bytes | None) -> Write:
        return Write(kind=ROW_KIND, id=node, value=value, expect=self._versions.get(node, 0))

    def _has_written(self, node: str, value: bytes | None) -> None:
        if value is None:
            self._versions.pop(node, None)
        else:
            self._versions[node] = self._versions.get(node, 0) + 1
