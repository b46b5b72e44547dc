"""The CPU time of the groups whose CPUs batch work never gets: LSE work, which therefore competes with none of it."""

import contextlib
import os
from collections.abc import Collection

__all__ = ["ExclusiveUse"]


class ExclusiveUse:
    """A counter of the CPU time of some groups in ns. `unit_ns` is the unit of their files: "cpuacct.usage" or "cpu.stat"."""

    def __init__(self, unit_ns: int) -> None:
        self._unit_ns = unit_ns
        self._fds: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._used = 0

    def watch(self, paths: Collection[str]) -> None:
        """Count these files from now on. What a new group used before is not counted: it would appear as a spike."""
        for path in self._fds.keys() - set(paths):
            self._drop(path)
        for path in sorted(set(paths) - self._fds.keys()):
            with contextlib.suppress(OSError):
                self._fds[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def used_ns(self) -> int:
        """The CPU time since the first `watch`, that of groups that are gone included."""
        for path, fd in list(self._fds.items()):
            try:
                now = int(os.pread(fd, 64, 0).removeprefix(b"usage_usec ").split(b"\n", 1)[0])
            except (OSError, ValueError):
                self._drop(path)
                continue
            self._used += max(0, now - self._last.get(path, now))
            self._last[path] = now
        return self._used * self._unit_ns

    def close(self) -> None:
        """Close the open files; the counted time stays."""
        for path in list(self._fds):
            self._drop(path)

    def _drop(self, path: str) -> None:
        self._last.pop(path, None)
        with contextlib.suppress(OSError):
            os.close(self._fds.pop(path))
