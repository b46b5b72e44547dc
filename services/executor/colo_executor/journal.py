"""The journal on disk: appended and flushed before the kernel is changed, rewritten in whole when it has grown."""

import contextlib
import fcntl
import os
import threading
from pathlib import Path
from typing import Final

from colo_executor.journal_lines import Entry, JournalState, compacted, decode, encode

__all__ = ["JournalBusy", "JournalFile"]

_COMPACT_BYTES: Final = 4 << 20
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class JournalBusy(Exception):
    """Another executor uses the same state directory."""


class JournalFile:
    """One executor's journal in `directory`. `state` is the fold of its entries; `torn_bytes` were left out at the start.

    Several threads may append. Raises OSError when the disk refuses; the caller must not make the change then.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._path = directory / "journal"
        self._mutex = threading.Lock()
        self._lock_fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock_fd)
            raise JournalBusy(f"another executor uses {directory}") from error
        data = self._path.read_bytes() if self._path.exists() else b""
        entries, self.torn_bytes = decode(data)
        self.state = JournalState(entries)
        self._fd = -1
        self._rewrite()

    def append(self, *entries: Entry) -> None:
        """Write the entries and wait until the disk has them."""
        with self._mutex:
            os.write(self._fd, b"".join(encode(entry) for entry in entries))
            os.fdatasync(self._fd)
            for entry in entries:
                self.state.add(entry)
            if os.fstat(self._fd).st_size > max(_COMPACT_BYTES, 4 * self._compacted_bytes):
                self._rewrite()

    def forget(self) -> None:
        """Empty the journal, after everything in it was put back."""
        with self._mutex:
            self.state = JournalState()
            self._rewrite()

    def close(self) -> None:
        """Close the journal and release its lock to another executor."""
        with contextlib.suppress(OSError):
            os.close(self._fd)
        with contextlib.suppress(OSError):
            os.close(self._lock_fd)

    def _rewrite(self) -> None:
        temporary = self._directory / "journal.new"
        data = b"".join(encode(entry) for entry in compacted(self.state))
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        temporary.rename(self._path)
        directory_fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory_fd)
        finally:
            os.close(directory_fd)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = os.open(self._path, _FLAGS, 0o600)
        self._compacted_bytes = len(data)
