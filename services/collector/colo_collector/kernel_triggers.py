"""Waits for the kernel to tell of pressure and of memory events, in a thread, and wakes the collector at once.

Nothing is decided here: whoever is woken reads a whole sample. A pressure file is written once, with the trigger; that changes
nothing on the machine and is gone with the descriptor.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from colo_common.model.linux_capability import CAP_SYS_RESOURCE, has_capability

__all__ = ["KernelTriggers", "may_set_triggers"]

_FILES_MAX: Final = 1_024


def may_set_triggers() -> bool:
    """Whether this process may use triggers beside readings of the same file.

    Without the right the kernel checks triggers every two seconds, and a reading takes the event away (linux/kernel/sched/psi.c).
    """
    with contextlib.suppress(OSError, ValueError), open("/proc/self/status", encoding="ascii") as file:
        return has_capability(file.read(), CAP_SYS_RESOURCE)
    return False


class KernelTriggers:
    """One thread that polls. `wake` is called in it with the names of what the kernel tells of."""

    def __init__(
        self, root: str, wake: Callable[[tuple[str, ...]], object], always: Mapping[str, tuple[str, str]] | None = None
    ) -> None:
        """`always` is watched from the first `watch` on, whatever that names."""
        self._always = dict(always or {})
        self._root = root.rstrip("/")
        self._wake = wake
        self._lock = threading.Lock()
        self._poll = select.poll()
        self._names: dict[int, str] = {}
        self._of: dict[str, tuple[int, str]] = {}
        self._refused: set[str] = set()
        self._is_over = False
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll.register(self._reader, select.POLLIN)
        self._thread: threading.Thread | None = None

    @property
    def watched(self) -> tuple[str, ...]:
        """The names that are watched, sorted."""
        with self._lock:
            return tuple(sorted(self._of))

    def watch(self, files: Mapping[str, tuple[str, str]]) -> None:
        """Watch exactly these: name -> path and trigger ("some 600000 10000000", "" for an events file). At most 1,024.

        A trigger that the kernel refuses is left out, and is not tried again while it is in the mapping.
        """
        wanted = {**dict(sorted(files.items())[: _FILES_MAX - len(self._always)]), **self._always}
        with self._lock:
            self._refused &= wanted.keys()
            for name in [name for name, (_, path) in self._of.items() if wanted.get(name, ("", ""))[0] != path]:
                self._drop(name)
            for name, (path, trigger) in wanted.items():
                if name not in self._of and name not in self._refused and not self._add(name, path, trigger):
                    self._refused.add(name)
            if self._of and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kernel-triggers", daemon=True)
                self._thread.start()
        self._nudge()

    def close(self) -> None:
        """End the thread and close every file."""
        self._is_over = True
        self._nudge()
        if self._thread is not None:
            self._thread.join(5)
        with self._lock:
            for name in list(self._of):
                self._drop(name)
            os.close(self._reader)
            os.close(self._writer)

    def _add(self, name: str, path: str, trigger: str) -> bool:
        try:
            fd = os.open(self._root + path, (os.O_RDWR if trigger else os.O_RDONLY) | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            if trigger:
                # The kernel overwrites the last byte of what is written to /proc/pressure.
                os.write(fd, f"{trigger}\n".encode())
            else:
                os.pread(fd, 4096, 0)
            self._poll.register(fd, select.POLLPRI)
        except OSError:
            os.close(fd)
            return False
        self._names[fd] = name
        self._of[name] = (fd, path)
        return True

    def _drop(self, name: str) -> None:
        fd, _ = self._of.pop(name)
        self._names.pop(fd, None)
        with contextlib.suppress(KeyError, OSError):
            self._poll.unregister(fd)
        with contextlib.suppress(OSError):
            os.close(fd)

    def _nudge(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._writer, b"x")

    def _run(self) -> None:
        while not self._is_over:
            events = self._poll.poll()
            named = self._named(events)
            if named and not self._is_over:
                self._wake(named)

    def _named(self, events: Iterable[tuple[int, int]]) -> tuple[str, ...]:
        """The names of what the kernel tells of. A file that only reports an error (its group was removed) is dropped."""
        found = []
        with self._lock:
            for fd, mask in events:
                if fd == self._reader:
                    with contextlib.suppress(OSError):
                        os.read(fd, 4096)
                    continue
                name = self._names.get(fd)
                if name is None:
                    continue
                is_trigger = name.startswith("pressure ")
                if not is_trigger:
                    try:
                        os.pread(fd, 4096, 0)
                    except OSError:
                        self._drop(name)
                        continue
                elif not mask & select.POLLPRI or mask & select.POLLERR:
                    self._drop(name)
                    continue
                found.append(name)
        return tuple(found)
