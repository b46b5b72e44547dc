"""Writes cpio archives as the kernel unpacks them at boot: "newc", owned by root, the same bytes for the same entries."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from msgspec import Struct

__all__ = ["Entry", "directory", "file", "link", "write_archive"]

_MAGIC: Final = "070701"
_LAST: Final = "TRAILER!!!"
_FILE_MODE: Final = 0o644
_PROGRAM_MODE: Final = 0o755


class Entry(Struct, frozen=True, kw_only=True):
    """One name in the image. `path` is absolute; the content is `content`, or that of the file `source` if there is one."""

    path: str
    mode: int
    content: bytes = b""
    source: Path | None = None

    def data(self) -> bytes:
        """The content. Raises OSError when the source cannot be read."""
        return self.content if self.source is None else self.source.read_bytes()


def file(path: str, source: Path | bytes, *, program: bool = False) -> Entry:
    """A regular file with the content of a file here, or these bytes."""
    mode = stat.S_IFREG | (_PROGRAM_MODE if program else _FILE_MODE)
    if isinstance(source, bytes):
        return Entry(path=path, mode=mode, content=source)
    return Entry(path=path, mode=mode, source=source)


def link(path: str, target: str) -> Entry:
    """A symbolic link."""
    return Entry(path=path, mode=stat.S_IFLNK | 0o777, content=target.encode())


def directory(path: str, mode: int = 0o755) -> Entry:
    """An empty directory."""
    return Entry(path=path, mode=stat.S_IFDIR | mode)


def write_archive(out: BinaryIO, entries: Iterable[Entry]) -> int:
    """Write the entries in order of path, each after the directories above it; the bytes written.

    Of two entries with one path the later one counts. The length is a multiple of 4, so archives can be joined end to end.
    """
    by_path = {entry.path: entry for entry in entries}
    written = 0
    for number, entry in enumerate(_with_parents(by_path), 1):
        written += out.write(_record(entry.path.lstrip("/"), entry.mode, number, entry.data()))
    return written + out.write(_record(_LAST, 0, 0, b""))


def _with_parents(by_path: dict[str, Entry]) -> list[Entry]:
    above = {str(parent) for path in by_path for parent in PurePosixPath(path).parents if str(parent) != "/"}
    missing = [directory(path) for path in above if path not in by_path]
    return sorted([*by_path.values(), *missing], key=lambda entry: entry.path)


def _record(name: str, mode: int, number: int, data: bytes) -> bytes:
    """Header, name and content, each padded to four bytes. Files with one number would be one file, so each has its own."""
    links = 2 if stat.S_ISDIR(mode) else 1
    name_bytes = name.encode() + b"\0"
    fields = (number, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(name_bytes), 0)
    header = _MAGIC + "".join(f"{field:08X}" for field in fields)
    return _padded(header.encode() + name_bytes) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
