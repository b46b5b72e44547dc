"""Busy online work whose waits for a CPU the kernel does not show: groups of cgroup v1 that are in no hierarchy of cgroup v2."""

import contextlib
import os
from collections.abc import Collection
from typing import Final

from colo_executor.process.online_groups import group_of_this_process, online_groups

__all__ = ["UnseenGroups"]

_GROUPS_MOST: Final = 256
_EVERY_MS: Final = 1_000
_BUSY_MCPU: Final = 50
"""From so much CPU use on a group is busy: what idles has nobody who waits."""
_NS_OF_MCPU_MS: Final = 1_000
"""A thousandth of a CPU is 1000 ns of CPU time a millisecond."""
_KEPT_MS: Final = 60_000
"""A group that was busy counts for so long, so that the rule of the reflex does not change with every pause of it."""


class UnseenGroups:
    """Lists the groups of online work under the cpu controller each second, and reads the CPU use of those without a pressure file.

    Only the `unified` hierarchy has pressure files, and a kubelet on cgroup v1 may make its pods' groups without it. `own` are the
    top-level groups of batch work. At most 256 groups are looked at.
    """

    def __init__(self, cpu_root: str, usage_root: str, unified: str, own: Collection[str], *, proc_root: str) -> None:
        self._cpu_root = cpu_root
        self._usage_root = usage_root
        self._unified = unified
        self._own = frozenset(own)
        self._proc_root = proc_root
        self._used_ns: dict[str, int] = {}
        self._busy_at_ms: dict[str, int] = {}
        self._read_at_ms: int | None = None
        self._found: tuple[str, ...] = ()

    def read(self, now_ms: int) -> tuple[str, ...]:
        """Their names, in order. Never raises OSError: what cannot be listed is taken for as it was."""
        span_ms = None if self._read_at_ms is None else now_ms - self._read_at_ms
        if span_ms is not None and 0 <= span_ms < _EVERY_MS:
            return self._found
        with contextlib.suppress(OSError):
            self._look(now_ms, span_ms)
        self._read_at_ms = now_ms
        return self._found

    def _look(self, now_ms: int, span_ms: int | None) -> None:
        groups = online_groups(self._cpu_root, self._own, group_of_this_process(self._proc_root, "cpu"))
        used_ns: dict[str, int] = {}
        for name in sorted(groups)[:_GROUPS_MOST]:
            if os.path.exists(os.path.join(self._unified, name, "cpu.pressure")):
                continue
            used_ns[name] = self._used(name)
            # Of a group that is new there is no use to tell yet.
            more_ns = used_ns[name] - self._used_ns.get(name, used_ns[name])
            if span_ms is not None and span_ms > 0 and more_ns >= _BUSY_MCPU * span_ms * _NS_OF_MCPU_MS:
                self._busy_at_ms[name] = now_ms
        self._used_ns = used_ns
        self._busy_at_ms = {
            name: at_ms
            for name, at_ms in self._busy_at_ms.items()
            if name in used_ns and 0 <= now_ms - at_ms < _KEPT_MS
        }
        self._found = tuple(sorted(self._busy_at_ms))

    def _used(self, name: str) -> int:
        """The CPU time of the group in ns; 0 where it is gone or shows none."""
        with (
            contextlib.suppress(OSError, ValueError),
            open(os.path.join(self._usage_root, name, "cpuacct.usage"), encoding="ascii") as file,
        ):
            return int(file.read())
        return 0
