"""The journal on disk: appended and flushed before the kernel is changed, rewritten in whole when it has grown.

It is a cache: what runs is read from the kernel. A disk that takes nothing therefore stops no end and no stop, only new starts.
"""

import contextlib
import errno
import fcntl
import os
import re
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Final

import structlog

from colo_executor.journal_lines import Entry, JournalState, compacted, decode, encode

__all__ = ["JournalBusy", "JournalFile"]

_COMPACT_BYTES: Final = 4 << 20
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_DISK_REFUSES: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
_ASIDE: Final = re.compile(r"journal\.damaged-([0-9]{1,9})")
_ASIDE_MOST: Final = 3
_AT_RISK: Final = (
    "what happens meanwhile is in the executor's memory alone, and lost if that ends before the disk takes it again:"
    " ends, stops, restrictions and old values of kernel files; starts are refused"
)


class JournalBusy(Exception):
    """Another executor uses the same state directory."""


class JournalFile:
    """One executor's journal in `directory`. `state` is the fold of its entries.

    At the start `torn_bytes` of an unfinished last line were left out, and `damaged_lines` that nothing can be read from; the file
    they were found in is then kept as `put_aside`, the last three of them. Several threads may use a journal. When it falls behind,
    and when it has caught up, the log says so once.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        # Other users pass through to the directories of their attempts; the journal itself is its owner's.
        if directory.stat().st_mode & 0o011 != 0o011:
            directory.chmod(0o711)
        self._directory = directory
        self._path = directory / "journal"
        self._mutex = threading.Lock()
        self._log = structlog.get_logger("executor")
        self._lock_fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._fd = -1
        self._compacted_bytes = 0
        self.refusal = ""
        self.put_aside = ""
        try:
            self._lock()
            data = self._path.read_bytes() if self._path.exists() else b""
            entries, self.torn_bytes, self.damaged_lines = decode(data)
            self.state = JournalState(entries)
            if self.damaged_lines:
                self._put_aside()
                self._log.warning("journal-damaged", damaged_lines=self.damaged_lines, kept_as=self.put_aside)
            self._start()
        except BaseException:
            self.close()
            raise

    @property
    def is_behind(self) -> bool:
        """Whether entries are in memory only, because the disk takes nothing; `refusal` says why."""
        return bool(self.refusal)

    def trouble(self) -> str:
        """A sentence about a disk that takes nothing, or ""."""
        refusal = self.refusal
        return f"the journal cannot be written: {refusal} ({self._path}); {_AT_RISK}" if refusal else ""

    def remarks(self) -> list[str]:
        """What was not as it should be: damaged lines at the start, a disk that takes nothing."""
        found = []
        if self.damaged_lines:
            kept = f"; the damaged file is kept as {self.put_aside}" if self.put_aside else ""
            found.append(f"the journal had {self.damaged_lines} damaged lines{kept}")
        if trouble := self.trouble():
            found.append(trouble)
        return found

    def append(self, *entries: Entry) -> None:
        """Write the entries and wait until the disk has them. Raises OSError, and keeps nothing of them, when it refuses."""
        with self._mutex:
            if self.refusal:
                self._rewrite()
            self._write(entries)

    def note(self, *entries: Entry) -> None:
        """Keep the entries, on the disk if it takes them. What it refuses is written by the next `catch_up` that succeeds."""
        with self._mutex:
            if self.refusal:
                self._fold(entries)
                return
            try:
                self._write(entries)
            except OSError as error:
                self._falls_behind(error)
                self._fold(entries)

    def catch_up(self) -> bool:
        """Write what the disk refused before. Returns whether the disk has everything."""
        with self._mutex:
            if not self.refusal:
                return True
            try:
                self._rewrite()
            except OSError as error:
                self._falls_behind(error)
            return not self.refusal

    def forget_old_values(self, paths: Collection[str]) -> None:
        """Forget what these files held before, once they hold it again. A disk that refuses it has it with the next `catch_up`."""
        with self._mutex:
            for path in paths:
                self.state.pre_images.pop(path, None)
            try:
                self._rewrite()
            except OSError as error:
                self._falls_behind(error)

    def forget(self) -> None:
        """Empty the journal, after everything in it was put back. Raises OSError."""
        with self._mutex:
            self.state = JournalState()
            self._rewrite()

    def close(self) -> None:
        """Close the journal and release its lock to another executor."""
        for fd in (self._fd, self._lock_fd):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self._fd = self._lock_fd = -1

    def _lock(self) -> None:
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise JournalBusy(f"another executor uses {self._directory}") from error

    def _start(self) -> None:
        try:
            self._rewrite()
        except OSError as error:
            # Another error is one of the directory, which a person must see.
            if error.errno not in _DISK_REFUSES:
                raise
            self._falls_behind(error)

    def _falls_behind(self, error: OSError) -> None:
        """Keep why the disk takes nothing. The names of files are left out, so that one full disk is one reason."""
        was_behind, self.refusal = self.is_behind, error.strerror or str(error)
        if not was_behind:
            self._log.warning("journal-behind", path=str(self._path), refusal=self.refusal, at_risk=_AT_RISK)

    def _fold(self, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            self.state.add(entry)

    def _write(self, entries: tuple[Entry, ...]) -> None:
        size_bytes = os.fstat(self._fd).st_size
        try:
            _write_all(self._fd, b"".join(encode(entry) for entry in entries))
            os.fdatasync(self._fd)
        except OSError as error:
            # Half a line must not stand before a whole one; where it stays, the whole file is written again first.
            try:
                os.ftruncate(self._fd, size_bytes)
            except OSError:
                self._falls_behind(error)
            raise
        self._fold(entries)
        if os.fstat(self._fd).st_size > max(_COMPACT_BYTES, 4 * self._compacted_bytes):
            # The entries are on the disk already, so one that has no room for a second file loses nothing.
            with contextlib.suppress(OSError):
                self._rewrite()

    def _rewrite(self) -> None:
        """Write the whole state beside the journal, and put it in its place when the disk has all of it."""
        temporary = self._directory / "journal.new"
        data = b"".join(encode(entry) for entry in compacted(self.state))
        fd = os.open(temporary, _FLAGS | os.O_TRUNC, 0o600)
        try:
            _write_all(fd, data)
            os.fsync(fd)
            temporary.rename(self._path)
        except BaseException:
            os.close(fd)
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        if self._fd >= 0:
            os.close(self._fd)
        was_behind = self.is_behind
        self._fd, self._compacted_bytes, self.refusal = fd, len(data), ""
        if was_behind:
            self._log.warning("journal-caught-up", path=str(self._path))
        with contextlib.suppress(OSError):
            self._sync_directory()

    def _sync_directory(self) -> None:
        fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _put_aside(self) -> None:
        """Keep the damaged file under another name. A link needs no room on the disk."""
        matches = [match for name in os.listdir(self._directory) if (match := _ASIDE.fullmatch(name))]
        numbers = sorted(int(match[1]) for match in matches)
        name = f"journal.damaged-{numbers[-1] + 1 if numbers else 1}"
        with contextlib.suppress(OSError):
            os.link(self._path, self._directory / name, follow_symlinks=False)
            self.put_aside = name
        for number in numbers[: max(0, len(numbers) + 1 - _ASIDE_MOST)]:
            with contextlib.suppress(OSError):
                (self._directory / f"journal.damaged-{number}").unlink()


def _write_all(fd: int, data: bytes) -> None:
    """Write all bytes. The kernel may take a part of them; on a full disk the next part is refused."""
    rest = memoryview(data)
    while rest:
        taken = os.write(fd, rest)
        if taken == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rest = rest[taken:]
