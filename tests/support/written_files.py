"""Every file of a file system that a process writes, as the kernel tells it (fanotify): needs CAP_SYS_ADMIN."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable
from types import TracebackType
from typing import Final

__all__ = ["WrittenFiles"]

# Of linux/fanotify.h.
_CLASS_NOTIF, _CLOEXEC, _NONBLOCK, _UNLIMITED_QUEUE = 0x0, 0x1, 0x2, 0x10
_MARK_ADD, _MARK_MOUNT = 0x1, 0x10
_MODIFY, _OVERFLOW = 0x2, 0x4000
_HEAD: Final = struct.Struct("=IBBHQii")
_NOBODY: Final = -1


class WrittenFiles:
    """Listens from `__enter__` on; `by` then says which files a process of one of these ids has written, each once."""

    def __init__(self, mounts: Iterable[str]) -> None:
        self._mounts = sorted(set(mounts))
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = _NOBODY

    def __enter__(self) -> WrittenFiles:
        self._fd = self._call("fanotify_init", _CLASS_NOTIF | _CLOEXEC | _NONBLOCK | _UNLIMITED_QUEUE, os.O_RDONLY)
        for mount in self._mounts:
            mask, where = ctypes.c_uint64(_MODIFY), ctypes.c_char_p(os.fsencode(mount))
            self._call("fanotify_mark", self._fd, _MARK_ADD | _MARK_MOUNT, mask, _NOBODY, where)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def by(self, pid: int) -> set[str]:
        """The paths that the process has written since the last call, without those that are gone by now."""
        found: set[str] = set()
        while True:
            try:
                data = os.read(self._fd, 65_536)
            except BlockingIOError:
                return found
            except OSError as error:
                # The kernel names no file that was deleted, and goes on with the next.
                if error.errno != errno.ENODEV:
                    raise
                continue
            while data:
                length, _, _, _, mask, descriptor, writer = _HEAD.unpack_from(data)
                data = data[length:]
                assert not mask & _OVERFLOW
                try:
                    if writer == pid:
                        found.add(os.readlink(f"/proc/self/fd/{descriptor}"))
                finally:
                    os.close(descriptor)

    def _call(self, name: str, *arguments: object) -> int:
        result: int = getattr(self._libc, name)(*arguments)
        if result < 0:
            raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
        return result
