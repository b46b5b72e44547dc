"""Writes many Records in few calls of the store; the rows of one Record are written all or none."""

import time
from collections.abc import Sequence

from colo_common.events.effects import Write
from colo_common.ports import PortError, Store, StoreConflict
from colo_common.runtime.metrics import ServiceMetrics
from colo_common.runtime.retry import Retrier

__all__ = ["ROWS_A_CALL", "Recorder"]

#: Rows that a store takes in one call, as its port promises.
ROWS_A_CALL = 500


class Recorder:
    """Writes units of rows in order. While the store is unavailable it retries, until the service shuts down."""

    def __init__(self, store: Store, retrier: Retrier, metrics: ServiceMetrics) -> None:
        self._store = store
        self._retrier = retrier
        self._metrics = metrics

    async def record(self, units: Sequence[Sequence[Write]]) -> list[StoreConflict | None]:
        """Write every unit; returns for each None, or the conflict that kept it out.

        Raises ShuttingDown when the service shuts down before the store takes the rows.
        """
        found: list[StoreConflict | None] = []
        for chunk in _chunks(units):
            started_s = time.perf_counter()
            found += await self._write_chunk(chunk)
            self._metrics.record_seconds.observe(time.perf_counter() - started_s)
        return found

    async def _write_chunk(self, units: Sequence[Sequence[Write]]) -> list[StoreConflict | None]:
        """All units in one call; one by one when that meets a conflict, so that only the refused unit is kept out."""
        conflict = await self._write([write for unit in units for write in unit])
        if conflict is None:
            return [None] * len(units)
        if len(units) == 1:
            return [conflict]
        return [await self._write(unit) for unit in units]

    async def _write(self, writes: Sequence[Write]) -> StoreConflict | None:
        conflict: StoreConflict | None = None
        unsure = False

        async def attempt() -> None:
            nonlocal conflict, unsure
            try:
                await self._store.write(writes)
            except StoreConflict as error:
                # After a lost answer the version found may be this call's own write.
                if not (unsure and await self._is_written(writes)):
                    conflict = error
            except PortError:
                unsure = True
                raise

        await self._retrier.until_done(attempt)
        if conflict is not None:
            self._metrics.conflicts.inc()
        return conflict

    async def _is_written(self, writes: Sequence[Write]) -> bool:
        """Whether the rows are exactly as these writes leave them. Writes of one call are stored all or none."""
        wanted = {(write.kind, write.id): write for write in writes}
        for (kind, id_), write in wanted.items():
            row = await self._store.get(kind, id_)
            if write.value is None:
                if row is not None:
                    return False
            elif row is None or row.version != write.expect + 1 or row.value != write.value:
                return False
        return True


def _chunks(units: Sequence[Sequence[Write]]) -> list[list[Sequence[Write]]]:
    chunks: list[list[Sequence[Write]]] = []
    rows = ROWS_A_CALL
    for unit in units:
        if rows + len(unit) > ROWS_A_CALL:
            chunks.append([])
            rows = 0
        chunks[-1].append(unit)
        rows += len(unit)
    return chunks
