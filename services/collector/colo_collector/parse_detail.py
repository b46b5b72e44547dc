"""Parses the files of a control group that are read seldom: memory by kind and zone, events, quota periods, block I/O.

v1 and v2 give the same values. A key that the kernel lacks is None; every error names the file, the line and the rule.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from msgspec import Struct

from colo_collector.kernel_text import flat_keyed, line_value, numbered_lines, single_count, unsigned, where
from colo_common.model.invalid import InvalidInput

__all__ = [
    "MemoryEvents",
    "MemorySplit",
    "QuotaPeriods",
    "parse_block_io",
    "parse_memory_events",
    "parse_memory_split",
    "parse_numa_stat",
    "parse_periods",
    "parse_task_count",
]

_PAGE_BYTES: Final = 4_096
_NODE: Final = re.compile(r"N([0-9]{1,4})=([0-9]{1,20})", re.ASCII)
_DEVICE: Final = re.compile(r"[0-9]{1,7}:[0-9]{1,7}", re.ASCII)


class MemorySplit(Struct, frozen=True, kw_only=True):
    """Memory of a group and its descendants by kind. Shared memory (tmpfs too) is a part of `file_bytes`, as the kernel counts."""

    anon_bytes: int | None = None
    file_bytes: int | None = None
    shmem_bytes: int | None = None


class MemoryEvents(Struct, frozen=True, kw_only=True):
    """How often since the group was made its memory was throttled at `high`, at its limit, out of memory, and a process killed."""

    high: int | None = None
    max: int | None = None
    oom: int | None = None
    oom_kill: int | None = None


class QuotaPeriods(Struct, frozen=True, kw_only=True):
    """Periods of the CPU quota in which the group ran, and those in which it used the quota up."""

    periods: int | None = None
    throttled: int | None = None


def parse_memory_split(path: str, text: str) -> MemorySplit:
    """The kinds of memory.stat: `anon file shmem` on v2, `total_rss total_cache total_shmem` on v1."""
    anon_bytes = line_value(path, text, "anon")
    names = ("anon", "file", "shmem") if anon_bytes is not None else ("total_rss", "total_cache", "total_shmem")
    anon, file, shmem = (line_value(path, text, name) for name in names)
    return MemorySplit(anon_bytes=anon, file_bytes=file, shmem_bytes=shmem)


def parse_numa_stat(path: str, text: str, page_bytes: int = _PAGE_BYTES) -> tuple[tuple[int, int], ...]:
    """(zone, bytes) of memory.numa_stat, ascending. v1 has pages in `hierarchical_total=` (`total=` before 3.16), v2 bytes by kind.

    On v2 anonymous and file pages count; other kinds are parts of these or of the kernel.
    """
    pages: dict[int, int] = {}
    old: dict[int, int] = {}
    by_kind: dict[int, int] = {}
    for number, line in numbered_lines(path, text):
        words = line.split()
        head, equals, _ = words[0].partition("=")
        into = pages if head == "hierarchical_total" else old if head == "total" else None
        if not equals:
            into = by_kind if head in ("anon", "file") else None
        if into is None:
            continue
        for word in words[1:]:
            match = _NODE.fullmatch(word)
            if match is None:
                raise InvalidInput(where(path, number), 'must have words such as "N0=4096"', line)
            zone = int(match[1])
            into[zone] = into.get(zone, 0) + unsigned(match[2], where(path, number))
    if by_kind:
        return tuple(sorted(by_kind.items()))
    return tuple((zone, count * page_bytes) for zone, count in sorted((pages or old).items()))


def parse_memory_events(path: str, text: str) -> MemoryEvents:
    """memory.events of v2, or memory.oom_control of v1, which counts kills only (since 4.13)."""
    found = flat_keyed(path, text)
    if "oom_kill_disable" in found:
        return MemoryEvents(oom_kill=found.get("oom_kill"))
    return MemoryEvents(
        high=found.get("high"), max=found.get("max"), oom=found.get("oom"), oom_kill=found.get("oom_kill")
    )


def parse_periods(path: str, text: str) -> QuotaPeriods:
    """The quota's periods of cpu.stat; both None where the group's file has none."""
    found = flat_keyed(path, text)
    return QuotaPeriods(periods=found.get("nr_periods"), throttled=found.get("nr_throttled"))


def parse_task_count(path: str, text: str) -> int:
    """The number of tasks in pids.current."""
    return single_count(path, text)


def parse_block_io(path: str, text: str) -> tuple[int, int]:
    """Bytes read and written since the group was made, over all devices: io.stat (v2) or blkio.throttle.io_service_bytes (v1)."""
    totals: dict[Literal["read", "written"], int] = {"read": 0, "written": 0}
    for number, line in numbered_lines(path, text):
        words = line.split()
        if words[0] == "Total":
            continue
        if not _DEVICE.fullmatch(words[0]):
            raise InvalidInput(where(path, number), 'must begin with a device such as "8:0"', line)
        if len(words) == 3 and "=" not in words[1]:
            amount = unsigned(words[2], where(path, number))
            totals["read"] += amount if words[1] == "Read" else 0
            totals["written"] += amount if words[1] == "Write" else 0
            continue
        for word in words[1:]:
            key, _, value = word.partition("=")
            if key in ("rbytes", "wbytes"):
                totals["read" if key == "rbytes" else "written"] += unsigned(value, where(path, number))
    return totals["read"], totals["written"]
