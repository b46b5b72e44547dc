"""What a directory takes of the disk, counted a slice at a time, whatever a job made in it and does to it meanwhile."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["DEPTH_MOST", "Counted", "count"]

#: The deepest directory that is counted; two files are open for each level.
DEPTH_MOST: Final = 128
_SLICE: Final = 200
_BLOCK_BYTES: Final = 512
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Counted(NamedTuple):
    """`taken_bytes` of the disk so far, `entries` since the last slice. Directories: `refused` to this process, too `deep`."""

    taken_bytes: int
    entries: int
    refused: int
    deep: int


def count(directory: Path) -> Iterator[Counted]:
    """Count the blocks of everything in the directory. After the last slice nothing comes any more.

    No link is followed, and no other file system entered. Each of several links of a file counts its part. What is removed
    meanwhile is left out. Raises OSError where the directory, or no further file, can be opened.
    """
    with contextlib.ExitStack() as stack:
        yield from _Walk(stack).slices(os.open(directory, _FLAGS))


class _Walk:
    def __init__(self, closing: contextlib.ExitStack) -> None:
        self._levels: list[tuple[int, Iterator[os.DirEntry[str]]]] = []
        closing.callback(self._close)
        self._device = 0
        self._taken_bytes = self._entries = self._refused = self._deep = 0

    def _close(self) -> None:
        while self._levels:
            self._leave()

    def slices(self, top: int) -> Iterator[Counted]:
        self._device = os.fstat(top).st_dev
        self._enter(top)
        while self._levels:
            fd, entries = self._levels[-1]
            entry = next(entries, None)
            if entry is None:
                self._leave()
                continue
            self._count(fd, entry)
            self._entries += 1
            if self._entries >= _SLICE:
                yield self._so_far()
        yield self._so_far()

    def _so_far(self) -> Counted:
        counted = Counted(self._taken_bytes, self._entries, self._refused, self._deep)
        self._entries = 0
        return counted

    def _enter(self, fd: int) -> None:
        try:
            self._levels.append((fd, os.scandir(fd)))
        except BaseException:
            os.close(fd)
            raise

    def _leave(self) -> None:
        fd, entries = self._levels.pop()
        entries.close()  # type: ignore[attr-defined]
        os.close(fd)

    def _count(self, above: int, entry: os.DirEntry[str]) -> None:
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            return
        if found.st_dev != self._device:
            return
        is_directory = entry.is_dir(follow_symlinks=False)
        self._taken_bytes += found.st_blocks * _BLOCK_BYTES // (1 if is_directory else max(1, found.st_nlink))
        if not is_directory:
            return
        if len(self._levels) >= DEPTH_MOST:
            self._deep += 1
            return
        try:
            fd = os.open(entry.name, _FLAGS, dir_fd=above)
        except PermissionError:
            self._refused += 1
            return
        except (FileNotFoundError, NotADirectoryError):
            return
        if os.fstat(fd).st_dev != self._device:
            os.close(fd)
            return
        self._enter(fd)
