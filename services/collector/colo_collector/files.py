"""Reads kernel files under a root, a batch at a time.

Descriptors stay open between batches, because opening a file costs more than reading it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final

from msgspec import Struct

from colo_common.model.invalid import InvalidInput

__all__ = ["FileReader", "Gathered"]

_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
# ENODEV is what a descriptor of a removed control group answers.
_MISSING: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ESRCH})
_OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
_ONE_PIECE: Final = 1_024
_MOST_OF_A_PAGE: Final = 3_072
_PAGE: Final = 4_096
"""Asked for first: room for the longest text would have to be cleared for every counter of three digits."""
_DESCRIPTORS_SPARED: Final = 128
"""Descriptors that this reader leaves for the sockets and logs of its process."""


class Gathered(Struct, frozen=True, kw_only=True):
    """The texts of one batch.

    `texts` has every path asked for, None for a file that is missing or refused. `inodes` distinguishes a file from a later one of
    the same name. `cut` lists files larger than the limit; their text ends with the last whole line below it. `refused` has the
    error number of files that exist but could not be read. Times are of the monotonic clock.
    """

    texts: dict[str, str | None]
    inodes: dict[str, int]
    cut: tuple[str, ...]
    refused: dict[str, int]
    started_ns: int
    finished_ns: int

    @property
    def spread_ns(self) -> int:
        """The time between the first and the last reading, by which the sample may be incoherent."""
        return self.finished_ns - self.started_ns


class _Kept(Struct, kw_only=True):
    """A file that stays open. `inode` is None where every reading must ask for it; `asked_bytes` is what one answer fits into.

    `is_whole`: one answer was all of it, as that of every counter is, so that one answer is enough from then on.
    `batch` is the number of the last batch that read it.
    """

    descriptor: int
    inode: int | None
    asked_bytes: int
    is_whole: bool
    batch: int


class FileReader:
    """Reads text files below `root`, which stands for "/". Not for use by two threads at once.

    At most `descriptors_max` files stay open; the default is the soft limit of the process less 128, and at most 4096. A file above
    `limit_bytes` is cut, so memory is bounded by the number of paths asked for.
    """

    def __init__(self, root: str = "/", *, limit_bytes: int = 65_536, descriptors_max: int | None = None) -> None:
        if limit_bytes < 1:
            raise InvalidInput("limit_bytes", "must be at least 1", limit_bytes)
        if descriptors_max is None:
            descriptors_max = min(max(_descriptor_limit() - _DESCRIPTORS_SPARED, 0), 4096)
        if descriptors_max < 0:
            raise InvalidInput("descriptors_max", "must not be negative", descriptors_max)
        self._root = root.rstrip("/")
        self._limit_bytes = limit_bytes
        self._descriptors_max = descriptors_max
        self._held: OrderedDict[str, _Kept] = OrderedDict()
        self._batch = 0
        self._at: tuple[str, int] | None = None
        self._is_abandoned = False

    def __enter__(self) -> FileReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # As a file object does: nobody closes files that only a forgotten reader knew.
        for kept in getattr(self, "_held", {}).values():
            os.close(kept.descriptor)

    @property
    def reading(self) -> tuple[str, int] | None:
        """The path that is being read and since when (monotonic, ns); None between two batches. Any thread may ask."""
        return self._at

    def abandon(self) -> None:
        """Give the reader up while another thread hangs in it: closes what that thread is not reading and ends its batch.

        The thread closes the rest when its read returns.
        """
        self._is_abandoned = True
        hung = self._at
        for path in list(self._held):
            if hung is None or path != hung[0]:
                self._drop(path)

    @property
    def held(self) -> int:
        """How many files are open now."""
        return len(self._held)

    def read(self, path: str) -> str | None:
        """The text of one file, None if the file is missing or refused. The file does not stay open."""
        return self.read_all((path,), keep=False).texts[path]

    def read_all(self, paths: Sequence[str], *, keep: bool = True) -> Gathered:
        """Read every path once, in the order given; no failure of one file stops the batch.

        With `keep` the files stay open for the next batch, which pays for files that are read every period.
        Raises InvalidInput for a path that is not absolute or has a part "..".
        """
        texts: dict[str, str | None] = {}
        inodes: dict[str, int] = {}
        cut: list[str] = []
        refused: dict[str, int] = {}
        self._batch += keep
        started_ns = time.monotonic_ns()
        for path in paths:
            if self._is_abandoned:
                break
            self._at = (path, time.monotonic_ns())
            try:
                content, inodes[path] = self._content(path, keep)
            except OSError as error:
                texts[path] = None
                if error.errno not in _MISSING:
                    refused[path] = error.errno or errno.EIO
                continue
            if len(content) > self._limit_bytes:
                cut.append(path)
                content = content[: content.rfind(b"\n", 0, self._limit_bytes) + 1]
            texts[path] = content.decode("utf-8", "replace")
        self._at = None
        finished_ns = time.monotonic_ns()
        return Gathered(
            texts=texts,
            inodes=inodes,
            cut=tuple(cut),
            refused=refused,
            started_ns=started_ns,
            finished_ns=finished_ns,
        )

    def list_directories(self, path: str, limit: int = 10_000) -> tuple[str, ...]:
        """The names of the directories in a directory, sorted; empty if the directory is missing or refused.

        Raises InvalidInput when there are more than `limit`.
        """
        found: list[str] = []
        try:
            with os.scandir(self._real(path) or "/") as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        found.append(entry.name)
                    if len(found) > limit:
                        raise InvalidInput(path, f"may have at most {limit} directories", len(found))
        except OSError:
            return ()
        return tuple(sorted(found))

    def list_each(self, paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """The directories in each of these directories, as `list_directories` tells them."""
        found = {}
        try:
            for path in paths:
                if self._is_abandoned:
                    break
                self._at = (path, time.monotonic_ns())
                found[path] = self.list_directories(path)
        finally:
            self._at = None
        return found

    def list_trees(self, paths: Sequence[str], *, depth: int, most: int) -> dict[str, tuple[str, ...]]:
        """Each directory with those below it, as paths, the nearest first, down to `depth` levels and at most `most`."""
        found: dict[str, tuple[str, ...]] = {}
        for path in paths:
            listed, level = [path], [path]
            for _ in range(depth):
                level = [f"{parent}/{name}" for parent in level for name in self.list_directories(parent)]
                listed += level
                if not level or len(listed) >= most:
                    break
            found[path] = tuple(listed[:most])
        return found

    def list_names(self, path: str, limit: int = 10_000) -> tuple[str, ...]:
        """The names of all entries of a directory, links too, sorted; empty if the directory is missing or refused.

        Raises InvalidInput when there are more than `limit`.
        """
        found: list[str] = []
        try:
            with os.scandir(self._real(path)) as entries:
                for entry in entries:
                    found.append(entry.name)
                    if len(found) > limit:
                        raise InvalidInput(path, f"may have at most {limit} entries", len(found))
        except OSError:
            return ()
        return tuple(sorted(found))

    def link(self, path: str) -> str:
        """The target of a symbolic link; "" if there is none."""
        try:
            return os.readlink(self._real(path))
        except OSError:
            return ""

    def is_writable(self, path: str) -> bool:
        """Whether mount and permissions let this process write the file or directory. Opens nothing."""
        try:
            return os.access(self._real(path), os.W_OK)
        except OSError:
            return False

    def forget(self, paths: Iterable[str]) -> None:
        """Close the descriptors of paths that will not be read again."""
        for path in paths:
            self._drop(path)

    def close(self) -> None:
        """Close every file. The reader may be used again."""
        self.forget(tuple(self._held))

    def _content(self, path: str, keep: bool) -> tuple[bytes, int]:
        """The content up to one byte more than the limit, and the inode. Raises OSError as the kernel gives it."""
        kept = self._held.get(path)
        if kept is not None:
            try:
                inode = kept.inode if kept.inode is not None else _linked_inode(kept.descriptor)
                if inode is not None:
                    self._held.move_to_end(path)
                    kept.batch = self._batch
                    return self._bytes_of(kept), inode
            except OSError:
                pass
            # The file behind the descriptor was deleted; another file may have its name now.
            self._drop(path)
        descriptor = self._open(path)
        try:
            content, is_whole = self._bytes(descriptor)
            status = os.fstat(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        if keep and not self._is_abandoned and self._has_place():
            # Content without a size is a control group's or the kernel's: once removed, its read fails (ENODEV) by itself.
            is_kernels = bool(content) and not status.st_size
            self._held[path] = _Kept(
                descriptor=descriptor,
                inode=status.st_ino if is_kernels else None,
                asked_bytes=min(_PAGE, self._limit_bytes + 1),
                is_whole=is_whole,
                batch=self._batch,
            )
        else:
            os.close(descriptor)
        return content, status.st_ino

    def _has_place(self) -> bool:
        """Whether one more file may stay open. At the limit, closes the least recently read file unless the last batch read it.

        Batches read the same paths in the same order: closing a file of the last batch would close it just before its next reading,
        and with one file too many every file would be opened every time.
        """
        if len(self._held) < self._descriptors_max:
            return True
        oldest = next(iter(self._held), None)
        if oldest is None or self._held[oldest].batch >= self._batch - 1:
            return False
        self._drop(oldest)
        return True

    def _open(self, path: str) -> int:
        real = self._real(path)
        try:
            return os.open(real, _FLAGS)
        except OSError as error:
            if error.errno not in _OUT_OF_DESCRIPTORS or not self._held:
                raise
        # The rest of the process needs descriptors more than this cache does.
        self.close()
        return os.open(real, _FLAGS)

    def _bytes_of(self, kept: _Kept) -> bytes:
        """The content of a file that stays open. Reading on to an empty answer would have the kernel make the whole text again.

        A file that has grown to most of a page is looked at again: a list would come in pieces from there on.
        """
        if not kept.is_whole:
            return self._bytes(kept.descriptor)[0]
        content = os.pread(kept.descriptor, kept.asked_bytes, 0)
        if len(content) > _MOST_OF_A_PAGE and kept.asked_bytes == _PAGE:
            content, kept.is_whole = self._bytes(kept.descriptor)
            kept.asked_bytes = self._limit_bytes + 1
        return content

    def _bytes(self, descriptor: int) -> tuple[bytes, bool]:
        """The content from its start, at most one byte more than the limit, and whether it came in one answer.

        The kernel may answer in pieces (seq_file returns whole records that fit its page), so only an empty answer is the end; but
        a quarter of a page that ends with a line is whole, because no file read here has a record of three quarters.
        """
        content = os.pread(descriptor, self._limit_bytes + 1, 0)
        if not content or (len(content) <= _ONE_PIECE and content.endswith(b"\n")):
            return content, True
        pieces = [content]
        size = len(content)
        while size <= self._limit_bytes:
            piece = os.pread(descriptor, self._limit_bytes + 1 - size, size)
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
        return (content, True) if len(pieces) == 1 else (b"".join(pieces), False)

    def _real(self, path: str) -> str:
        if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
            raise InvalidInput("path", 'must be absolute and have no part ".."', path)
        return self._root + path

    def _drop(self, path: str) -> None:
        kept = self._held.pop(path, None)
        if kept is not None:
            with contextlib.suppress(OSError):
                os.close(kept.descriptor)


def _linked_inode(descriptor: int) -> int | None:
    """The inode of an open file, None once it was deleted."""
    status = os.fstat(descriptor)
    return status.st_ino if status.st_nlink else None


def _descriptor_limit() -> int:
    """How many files this process may have open (soft limit)."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
