"""The CPU time of the sibling groups of the executor's own group, under cgroup v2."""

import contextlib
import os
from typing import Final

__all__ = ["SiblingCgroups"]

_GROUPS_MOST: Final = 64
_USED: Final = b"usage_usec "


class SiblingCgroups:
    """A counter of the CPU time of the other top-level groups, in ns.

    The kernel derives the root's own counter from timer ticks, and a virtual machine on a busy host loses ticks, so the root shows
    less CPU time than its children used. The counters of the children are exact, but they lack the processes of the root itself.
    """

    def __init__(self, root: str, own: str) -> None:
        self._root = root
        self._own = own
        self._fds: dict[str, int] = {}
        self._last_us: dict[str, int] = {}
        self._used_us = 0

    def refresh(self) -> None:
        """List the sibling groups again; at most 64 are read.

        A new group counts from now: the CPU time that it used before would appear as a spike.
        """
        with os.scandir(self._root) as entries:
            found = {entry.name for entry in entries if entry.name != self._own and entry.is_dir(follow_symlinks=False)}
        wanted = set(sorted(found)[:_GROUPS_MOST])
        for name in sorted(self._fds.keys() - wanted):
            self._drop(name)
        for name in sorted(wanted - self._fds.keys()):
            with contextlib.suppress(OSError):
                self._add(name)

    def used_ns(self) -> int:
        """The CPU time since the first `refresh`. The time of a deleted group stays in it."""
        for name, fd in list(self._fds.items()):
            try:
                now_us = _used_us(fd)
            except (OSError, ValueError):
                self._drop(name)
                continue
            self._used_us += max(0, now_us - self._last_us[name])
            self._last_us[name] = now_us
        return self._used_us * 1_000

    def close(self) -> None:
        """Close the open files; the counted time stays."""
        for name in list(self._fds):
            self._drop(name)

    def _add(self, name: str) -> None:
        fd = os.open(os.path.join(self._root, name, "cpu.stat"), os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._last_us[name] = _used_us(fd)
        except (OSError, ValueError):
            os.close(fd)
            return
        self._fds[name] = fd

    def _drop(self, name: str) -> None:
        del self._last_us[name]
        with contextlib.suppress(OSError):
            os.close(self._fds.pop(name))


def _used_us(fd: int) -> int:
    text = os.pread(fd, 64, 0)
    if not text.startswith(_USED):
        raise ValueError(text)
    return int(text[len(_USED) :].split(b"\n", 1)[0])
