"""Where the executor notes which message ends it: a few rows in one small file of its state directory, beside the journal.

The file has its whole size from the beginning. A disk that is full takes no new file then, and still takes the rows in place of the
old ones; one that takes nothing leaves them in memory, and what they say is forgotten with the process.
"""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import structlog
from msgspec import Struct

from colo_common.adapters.store_memory import MemoryStore
from colo_common.events.effects import Write
from colo_common.ports import Row

__all__ = ["TrialsFile"]

_BYTES: Final = 65_536
_FLAGS: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Kept(Struct, frozen=True, kw_only=True):
    """A row as the file has it."""

    kind: str
    id: str
    value: bytes
    version: int


class TrialsFile:
    """A Store for the trials of one executor. `refusal` says why the disk does not have the newest rows, "" when it has them.

    A file that cannot be read, or is no list of rows, counts as an empty one. Only one process may use a path at a time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = structlog.get_logger("executor")
        self._rows = MemoryStore()
        self._rows.lose_since(self._read())
        self.refusal = ""

    async def get(self, kind: str, id_: str) -> Row | None:
        """See Store.get."""
        return await self._rows.get(kind, id_)

    async def load(self, kind: str) -> tuple[Row, ...]:
        """See Store.load."""
        return await self._rows.load(kind)

    async def write(self, writes: Sequence[Write]) -> None:
        """See Store.write. A disk that refuses the rows is logged once, and tried again with the next ones."""
        await self._rows.write(writes)
        refusal = await asyncio.to_thread(self._save)
        if refusal and not self.refusal:
            self._log.warning("trials-in-memory-only", path=str(self._path), why=refusal)
        self.refusal = refusal

    async def identity(self) -> str:
        """See Store.identity."""
        return await self._rows.identity()

    async def ready(self) -> str:
        """See Store.ready."""
        return await self._rows.ready()

    async def close(self) -> None:
        """There is nothing to close."""

    def _read(self) -> dict[str, dict[str, Row]]:
        found: dict[str, dict[str, Row]] = {}
        try:
            with self._path.open("rb") as file:
                rows = msgspec.json.decode(file.read(_BYTES), type=tuple[_Kept, ...])
        except FileNotFoundError:
            return found
        except (OSError, msgspec.DecodeError) as error:
            self._log.warning("trials-unreadable", path=str(self._path), why=str(error))
            return found
        for row in rows:
            found.setdefault(row.kind, {})[row.id] = Row(id=row.id, value=row.value, version=row.version)
        return found

    def _save(self) -> str:
        """Put the rows on the disk. Returns why it does not have them, or ""."""
        rows = [
            _Kept(kind=kind, id=row.id, value=row.value, version=row.version)
            for kind, found in sorted(self._rows.rows().items())
            for row in found.values()
        ]
        data = msgspec.json.encode(rows).ljust(_BYTES)
        if len(data) > _BYTES:
            return f"{len(data)} bytes are more than the {_BYTES} that are kept"
        try:
            self._replace(data)
        except OSError:
            try:
                _write(self._path, _FLAGS, data)
            except OSError as error:
                return str(error)
        return ""

    def _replace(self, data: bytes) -> None:
        temporary = self._path.with_name(f"{self._path.name}.new")
        try:
            _write(temporary, _FLAGS | os.O_CREAT | os.O_TRUNC, data)
            temporary.rename(self._path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise


def _write(path: Path, flags: int, data: bytes) -> None:
    """Write all bytes from the beginning of the file, and wait until the disk has them."""
    fd = os.open(path, flags, 0o600)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
    finally:
        os.close(fd)
