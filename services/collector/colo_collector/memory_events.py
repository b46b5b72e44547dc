"""What the kernel counts of each workload's memory (throttled, at its limit, out of memory, killed), as growth to be published."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from colo_collector.growth import growth
from colo_collector.parse_detail import MemoryEvents

__all__ = ["MemoryEventsRead", "MemoryEventWatch"]

_QUIET_NS: Final = 10_000_000_000
"""Being throttled or at a limit is said once in ten seconds; running out of memory at once."""


class MemoryEventsRead(Struct, frozen=True, kw_only=True):
    """Event: how much the counters of a workload's memory grew since they were last published."""

    workload: str
    replica: str = ""
    attempt: int = 0
    high_events: int = 0
    max_events: int = 0
    oom_events: int = 0
    oom_kill_events: int = 0


class _Seen(Struct, kw_only=True):
    identity: int
    published: MemoryEvents
    published_ns: int | None = None


class MemoryEventWatch:
    """The counters published last, by workload. A workload's first reading is where counting begins."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def take(
        self, workload: str, now: MemoryEvents, *, identity: int, at_ns: int, replica: str = "", attempt: int = 0
    ) -> MemoryEventsRead | None:
        """The growth to publish now, if any. `identity` distinguishes a group from a later one of its name."""
        seen = self._seen.get(workload)
        if seen is None or seen.identity != identity:
            self._seen[workload] = _Seen(identity=identity, published=now)
            return None
        grown = MemoryEventsRead(
            workload=workload,
            replica=replica,
            attempt=attempt,
            high_events=growth(seen.published.high, now.high) or 0,
            max_events=growth(seen.published.max, now.max) or 0,
            oom_events=growth(seen.published.oom, now.oom) or 0,
            oom_kill_events=growth(seen.published.oom_kill, now.oom_kill) or 0,
        )
        is_urgent = grown.oom_events > 0 or grown.oom_kill_events > 0
        is_quiet = seen.published_ns is not None and at_ns - seen.published_ns < _QUIET_NS
        if not is_urgent and (is_quiet or not (grown.high_events or grown.max_events)):
            return None
        seen.published, seen.published_ns = now, at_ns
        return grown

    def forget(self, workload: str) -> None:
        """The workload is gone."""
        self._seen.pop(workload, None)
