"""The memory twin of the store: the same versions, conflicts and limits, lost with the process."""

from collections.abc import Mapping, Sequence

from colo_common.adapters.leases_memory import MemoryLeases
from colo_common.adapters.store_limits import check_batch
from colo_common.events.effects import Write
from colo_common.model.partition import Fence
from colo_common.ports import Fenced, PortError, Row, StoreConflict

__all__ = ["MemoryStore"]


class MemoryStore:
    """Rows in dictionaries. While `fault` is set, every call raises it and `ready` returns it: tests make the store fail so."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, Row]] = {}
        self.fault: PortError | None = None
        #: The leases of services, by which `write_fenced` judges; a service that has none holds nothing.
        self.leases: dict[str, MemoryLeases] = {}
        self._lives = 1

    def rows(self) -> dict[str, dict[str, Row]]:
        """A copy of everything."""
        return {kind: dict(rows) for kind, rows in self._kinds.items()}

    def lose_since(self, rows: Mapping[str, Mapping[str, Row]]) -> None:
        """Start again with these rows: the later ones are lost."""
        self._kinds = {kind: dict(found) for kind, found in rows.items()}
        self._lives += 1

    async def identity(self) -> str:
        """The number of its lives."""
        self._check_fault()
        return str(self._lives)

    async def get(self, kind: str, id_: str) -> Row | None:
        """The row, or None."""
        self._check_fault()
        return self._kinds.get(kind, {}).get(id_)

    async def load(self, kind: str) -> tuple[Row, ...]:
        """All rows of the kind in ascending id."""
        self._check_fault()
        rows = self._kinds.get(kind, {})
        return tuple(rows[id_] for id_ in sorted(rows))

    async def write(self, writes: Sequence[Write]) -> None:
        """Write all or nothing, in order; a row that is written twice in one call must expect its own first write."""
        self._check_fault()
        check_batch(writes)
        changed: dict[tuple[str, str], Row | None] = {}
        for write in writes:
            key = (write.kind, write.id)
            before = changed[key] if key in changed else self._kinds.get(write.kind, {}).get(write.id)
            found = before.version if before is not None else 0
            if write.puts_back:
                if found < write.expect and write.value is not None:
                    changed[key] = Row(id=write.id, value=write.value, version=write.expect)
                continue
            if found > write.expect:
                raise StoreConflict(write.kind, write.id, write.expect, found)
            after = None if write.value is None else Row(id=write.id, value=write.value, version=write.expect + 1)
            changed[key] = after
        self._apply(changed)

    async def write_fenced(self, writes: Sequence[Write], service: str, fences: Sequence[Fence]) -> None:
        """As `write`, once the fences are the newest."""
        self._check_fault()
        fenced = self.leases.get(service, MemoryLeases()).fenced(fences)
        if fenced is not None:
            raise Fenced(f"partition {fenced} is held by another instance")
        await self.write(writes)

    async def ready(self) -> str:
        """Empty, or the text of the fault."""
        return str(self.fault) if self.fault is not None else ""

    async def close(self) -> None:
        """There is nothing to close."""

    def _apply(self, changed: Mapping[tuple[str, str], Row | None]) -> None:
        for (kind, id_), row in changed.items():
            rows = self._kinds.setdefault(kind, {})
            if row is None:
                rows.pop(id_, None)
            else:
                rows[id_] = row

    def _check_fault(self) -> None:
        if self.fault is not None:
            raise self.fault
