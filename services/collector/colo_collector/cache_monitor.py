"""Reads what the groups of resctrl use of caches and memory bandwidth, seldom: each counter may interrupt another CPU."""

from __future__ import annotations

from typing import Final

from colo_collector.detail_reader import DetailSource
from colo_collector.resctrl import (
    RESCTRL_ROOT,
    MonitorFile,
    MonitorReading,
    cache_use_between,
    monitor_files,
    read_monitors,
)
from colo_common.events.node import CacheUse

__all__ = ["CacheMonitor"]

PERIODS: Final = 10
"""Of so many samples one has the use of caches."""
_GROUPS_MAX: Final = 32
_NO_GROUPS: Final = frozenset({"info", "mon_data", "mon_groups"})


class CacheMonitor:
    """The counters of one machine's resctrl groups, of at most 32 of them in ascending path."""

    def __init__(self) -> None:
        self._round = 0
        self._previous: MonitorReading | None = None

    def take(self, reader: DetailSource, faults: list[str]) -> tuple[CacheUse, ...]:
        """The use since the last reading; () in the periods between, and where nothing is monitored."""
        self._round += 1
        if (self._round - 1) % PERIODS:
            return ()
        files = self._files(reader)
        if not files:
            self._previous = None
            return ()
        batch = reader.read_all([file.path for file in files], keep=False)
        now = read_monitors(files, batch.texts, batch.started_ns, faults)
        previous, self._previous = self._previous, now
        return cache_use_between(previous, now)

    def _files(self, reader: DetailSource) -> list[MonitorFile]:
        groups = ["", *(f"mon_groups/{name}" for name in reader.list_directories(f"{RESCTRL_ROOT}/mon_groups"))]
        for name in reader.list_directories(RESCTRL_ROOT):
            if name not in _NO_GROUPS:
                inner = reader.list_directories(f"{RESCTRL_ROOT}/{name}/mon_groups")
                groups += [name, *(f"{name}/mon_groups/{each}" for each in inner)]
        found: list[MonitorFile] = []
        for group in sorted(groups)[:_GROUPS_MAX]:
            at = f"{RESCTRL_ROOT}/{group}/mon_data" if group else f"{RESCTRL_ROOT}/mon_data"
            found += monitor_files(group, reader.list_directories(at))
        return found
