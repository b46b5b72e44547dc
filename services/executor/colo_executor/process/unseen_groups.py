"""Online work without a pressure file: what its threads tell of its waits for a CPU, and whose waits nobody sees."""

import contextlib
import os
from collections.abc import Collection
from typing import Final

from colo_executor.process.busiest_groups import BUSY_MCPU, recent, used_us
from colo_executor.process.online_groups import group_of_this_process, online_groups
from colo_executor.process.thread_waits import ThreadWaits

__all__ = ["UnseenGroups", "throttled_us"]

_LISTED_MOST: Final = 1_024
_EVERY_MS: Final = 1_000
_READ_MCPU: Final = 10
"""From so much CPU use on the threads of a group are read, so that they are known when it gets busy."""


class UnseenGroups:
    """Lists the groups of online work under the cpu controller each second, and reads the CPU use of those without a pressure file.

    Such groups are those of cgroup v1 that are not in its `unified` hierarchy (a kubelet may make its pods' so), and all where the
    kernel keeps no pressure (boot option psi=0). `usage_root` and `version` are the mount with their CPU time and its version,
    `unified` the hierarchy that may have pressure files. `own` are the top-level groups of batch work. At most 1,024 such
    groups are looked at, and those beyond are unseen. With `threads` those that run are read by their threads; a busy group whose
    known threads ran for less than half of its CPU time, as where it starts a process for each request, is unseen all the same.
    Whether they did is known from the second listing of its threads on.
    """

    def __init__(
        self,
        cpu_root: str,
        usage_root: str,
        version: int,
        unified: str | None,
        own: Collection[str],
        *,
        proc_root: str,
        threads: ThreadWaits | None = None,
    ) -> None:
        self._cpu_root = cpu_root
        self._usage_root = usage_root
        self._version = version
        self._unified = unified
        self._own = frozenset(own)
        self._proc_root = proc_root
        self._threads = threads
        self._used_us: dict[str, int] = {}
        self._read_from_ms: dict[str, int] = {}
        self._unseen_at_ms: dict[str, int] = {}
        self._looked_at_ms: int | None = None

    def read(self, now_ms: int) -> tuple[str, ...]:
        """The busy groups whose waits nobody sees, in order. Never raises OSError: what cannot be listed is taken for as it was."""
        span_ms = None if self._looked_at_ms is None else now_ms - self._looked_at_ms
        if span_ms is None or not 0 <= span_ms < _EVERY_MS:
            with contextlib.suppress(OSError):
                self._look(now_ms, span_ms if span_ms is not None and span_ms > 0 else None)
            self._looked_at_ms = now_ms
        return tuple(sorted(self._unseen_at_ms))

    def waits_us(self, now_ms: int) -> tuple[tuple[str, int], ...]:
        """For how long each group that is read by its threads has waited, in order."""
        return () if self._threads is None else self._threads.read(now_ms)

    def throttled_us(self, name: str) -> int:
        """For how long the group's own quota stopped it."""
        return throttled_us(os.path.join(self._cpu_root, name))

    def close(self) -> None:
        """Close the files of threads; they are opened again within a second."""
        self._looked_at_ms = None
        if self._threads is not None:
            self._threads.close()

    def _look(self, now_ms: int, span_ms: int | None) -> None:
        here = group_of_this_process(self._proc_root, "cpu" if self._version == 1 else "")
        groups = online_groups(self._cpu_root, self._own, here)
        names = [
            name
            for name in sorted(groups)
            if self._unified is None or not os.path.exists(os.path.join(self._unified, name, "cpu.pressure"))
        ]
        file = "cpuacct.usage" if self._version == 1 else "cpu.stat"
        used = {name: used_us(os.path.join(self._usage_root, name, file)) for name in names[:_LISTED_MOST]}
        # Of a group that is new there is no use to tell yet.
        more_us = {name: now - self._used_us.get(name, now) for name, now in used.items()}
        self._used_us = used
        for name, more in more_us.items():
            if span_ms is not None and more >= _READ_MCPU * span_ms:
                self._read_from_ms[name] = now_ms
        self._read_from_ms = recent(self._read_from_ms, used, now_ms)
        busy = {name for name, more in more_us.items() if span_ms is not None and more >= BUSY_MCPU * span_ms}
        if self._threads is not None:
            # The busy ones first, and those that were read before them: who is read changes as little as may be.
            wanted = sorted(self._read_from_ms, key=lambda name: (name not in busy, name))
            self._threads.watch(wanted, now_ms)
        for name in busy:
            ran_ns = 0 if self._threads is None else self._threads.ran_ns(name)
            if ran_ns is not None and ran_ns * 2 < more_us[name] * 1_000:
                self._unseen_at_ms[name] = now_ms
        beyond = names[_LISTED_MOST:]
        self._unseen_at_ms = recent(self._unseen_at_ms, used, now_ms) | dict.fromkeys(beyond, now_ms)


def throttled_us(group: str) -> int:
    """For how long the quota of the group, a directory, stopped it; 0 where it has no quota or its file says nothing."""
    with contextlib.suppress(OSError, ValueError), open(os.path.join(group, "cpu.stat"), "rb") as file:
        for line in file:
            # v1 counts ns, v2 us.
            if line.startswith(b"throttled_time "):
                return int(line.split()[1]) // 1_000
            if line.startswith(b"throttled_usec "):
                return int(line.split()[1])
    return 0
