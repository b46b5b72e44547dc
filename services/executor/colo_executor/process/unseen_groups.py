"""Online work without a pressure file: what its threads tell of its waits for a CPU, and whose waits nobody sees."""

import contextlib
import os
from collections.abc import Collection, Mapping
from typing import Final

from colo_executor.process.online_groups import group_of_this_process, online_groups
from colo_executor.process.thread_waits import ThreadWaits

__all__ = ["UnseenGroups", "throttled_us"]

_LISTED_MOST: Final = 256
_EVERY_MS: Final = 1_000
_BUSY_MCPU: Final = 50
"""From so much CPU use on a group is busy: what idles has nobody who waits."""
_READ_MCPU: Final = 10
"""From so much CPU use on the threads of a group are read, so that they are known when it gets busy."""
_NS_OF_MCPU_MS: Final = 1_000
"""A thousandth of a CPU is 1000 ns of CPU time a millisecond."""
_KEPT_MS: Final = 60_000
"""A group that was busy counts for so long, so that the rule of the reflex does not change with every pause of it."""


class UnseenGroups:
    """Lists the groups of online work under the cpu controller each second, and reads the CPU use of those without a pressure file.

    Such groups are those of cgroup v1 that are not in its `unified` hierarchy (a kubelet may make its pods' so), and all where the
    kernel keeps no pressure (boot option psi=0). `usage_root` and `version` are the mount with their CPU time and its version,
    `unified` the hierarchy that may have pressure files. `own` are the top-level groups of batch work. At most 256 groups are
    looked at. With `threads` those that run are read by their threads; a busy group whose known threads ran for less than half of
    its CPU time, as where it starts a process for each request, is unseen all the same. Whether they did is known from the second
    listing of its threads on.
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
        self._used_ns: dict[str, int] = {}
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
        used_ns = {
            name: self._used(name)
            for name in sorted(groups)[:_LISTED_MOST]
            if self._unified is None or not os.path.exists(os.path.join(self._unified, name, "cpu.pressure"))
        }
        # Of a group that is new there is no use to tell yet.
        more_ns = {name: used - self._used_ns.get(name, used) for name, used in used_ns.items()}
        self._used_ns = used_ns
        of_a_mcpu_ns = 0 if span_ms is None else span_ms * _NS_OF_MCPU_MS
        for name, more in more_ns.items():
            if span_ms is not None and more >= _READ_MCPU * of_a_mcpu_ns:
                self._read_from_ms[name] = now_ms
        self._read_from_ms = _recent(self._read_from_ms, used_ns, now_ms)
        busy = {name for name, more in more_ns.items() if span_ms is not None and more >= _BUSY_MCPU * of_a_mcpu_ns}
        if self._threads is not None:
            # The busy ones first, and those that were read before them: who is read changes as little as may be.
            wanted = sorted(self._read_from_ms, key=lambda name: (name not in busy, name))
            self._threads.watch(wanted, now_ms)
        for name in busy:
            ran_ns = 0 if self._threads is None else self._threads.ran_ns(name)
            if ran_ns is not None and ran_ns * 2 < more_ns[name]:
                self._unseen_at_ms[name] = now_ms
        self._unseen_at_ms = _recent(self._unseen_at_ms, used_ns, now_ms)

    def _used(self, name: str) -> int:
        """The CPU time of the group in ns; 0 where it is gone or shows none."""
        file_name = "cpuacct.usage" if self._version == 1 else "cpu.stat"
        with (
            contextlib.suppress(OSError, ValueError),
            open(os.path.join(self._usage_root, name, file_name), encoding="ascii") as file,
        ):
            text = file.readline()
            return int(text) if self._version == 1 else int(text.removeprefix("usage_usec ")) * 1_000
        return 0


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


def _recent(at_ms: Mapping[str, int], known: Collection[str], now_ms: int) -> dict[str, int]:
    return {name: at for name, at in at_ms.items() if name in known and 0 <= now_ms - at < _KEPT_MS}
