"""Gives each workload its turn at what is too dear to read of every workload every period, and keeps its stall until the next.

A turn's numbers are of the pass in which they were read; only a stall is carried on, with its age.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from colo_collector.detail import DetailReading, detail_between, is_too_early, run_times_between
from colo_collector.detail_reader import (
    Batch,
    DetailFiles,
    DetailSource,
    DetailTexts,
    Due,
    detail_files,
    gather_details,
    read_details,
)
from colo_collector.discover import Workload
from colo_collector.hierarchy import Hierarchy
from colo_collector.memory_events import MemoryEventsRead, MemoryEventWatch
from colo_collector.parse_detail import MemoryEvents, parse_memory_events
from colo_collector.sample import Sample
from colo_common.events.node import WorkloadDetail
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.stall import RunTimes, StallShare, stall_share

__all__ = ["GROUPS_A_PERIOD", "WorkloadStall", "WorkloadTurns", "next_turns"]

GROUPS_A_PERIOD: Final = 16
"""Workloads with a turn in one period: 250 workloads are round in sixteen periods, and those of a small node every period."""
_STALE_NS: Final = 60_000_000_000
_NS_PER_MS: Final = 1_000_000


class WorkloadStall(Struct, frozen=True, kw_only=True):
    """The stall of a workload between its last two turns; `at_ns` is the time of the last one."""

    share: StallShare
    times: RunTimes
    at_ns: int

    @property
    def span_ms(self) -> int:
        """The time between the two turns."""
        return self.times.span_us // 1_000

    def age_ms(self, now_ns: int) -> int:
        """How long ago the last turn was, at least 0."""
        return max(now_ns - self.at_ns, 0) // _NS_PER_MS


def next_turns(names: Iterable[str], last: str, most: int = GROUPS_A_PERIOD) -> tuple[str, ...]:
    """Whose turn it is: in ascending name those after `last`, then from the beginning. Few enough have a turn every time."""
    ordered = sorted(names)
    if len(ordered) <= most:
        return tuple(ordered)
    later = [name for name in ordered if name > last]
    return tuple((later + ordered)[:most])


class WorkloadTurns:
    """The turns of one machine's workloads."""

    def __init__(self, user_hz: int) -> None:
        self._user_hz = user_hz
        self._last = ""
        self._events = MemoryEventWatch()
        self._grown: list[MemoryEventsRead] = []
        self._files: dict[str, DetailFiles] = {}
        self._readings: dict[str, DetailReading] = {}
        self._stalls: dict[str, WorkloadStall] = {}

    def gather(
        self, reader: DetailSource, hierarchy: Hierarchy, workloads: Mapping[str, Workload]
    ) -> DetailTexts | None:
        """Read the files of those whose turn it is; None where there are no workloads.

        It comes before the counters of the sample are read, so that nothing waits between these and the publication.
        """
        chosen = next_turns(workloads, self._last)
        if not chosen:
            return None
        self._last = chosen[-1]
        due = [Due(workload=workloads[name], files=self._files_of(hierarchy, workloads[name])) for name in chosen]
        return gather_details(reader, due)

    def take(
        self,
        texts: DetailTexts | None,
        workloads: Mapping[str, Workload],
        sample: Sample,
        counters: Batch,
        *,
        allowed: Callable[[str], tuple[CpuSet, tuple[int, ...]]],
        faults: list[str],
    ) -> dict[str, WorkloadDetail]:
        """The details of those whose turn it was, as far as they are in the sample of the same pass, whose files `counters` has.

        `allowed` tells the CPUs and zones that a workload may use.
        """
        self._forget(workloads)
        if texts is None:
            return {}
        due = {one.workload.name for one in texts.due}
        throttled_us = {group.workload: group.throttled_us for group in sample.reading.groups if group.workload in due}
        readings = read_details(texts, counters, throttled_us, sample.reading.ticks, faults)
        for name, reading in readings.items():
            self._count(workloads[name], reading.events, reading.identity, reading.at_ns)
        return {name: self._judged(name, reading, *allowed(name)) for name, reading in readings.items()}

    def event_files(self) -> dict[str, str]:
        """The files whose change the kernel tells of by itself: memory.events of v2, of every workload that had a turn."""
        return {name: files.events for name, files in self._files.items() if files.events.endswith("/memory.events")}

    def memory_events(self) -> tuple[MemoryEventsRead, ...]:
        """What the turns since the last call found to be published."""
        found, self._grown = tuple(self._grown), []
        return found

    def read_events(self, reader: DetailSource, names: Iterable[str], workloads: Mapping[str, Workload]) -> None:
        """Read the counters of these workloads' memory at once, because the kernel told of them."""
        paths = {name: self._files[name].events for name in names if name in self._files and name in workloads}
        batch = reader.read_all(tuple(paths.values()), keep=False)
        for name, path in paths.items():
            text, reading = batch.texts.get(path), self._readings.get(name)
            if not text or reading is None:
                continue
            with contextlib.suppress(InvalidInput):
                events = parse_memory_events(path, text)
                self._count(workloads[name], events, reading.identity, batch.started_ns)

    def _count(self, workload: Workload, events: MemoryEvents, identity: int, at_ns: int) -> None:
        grown = self._events.take(
            workload.name, events, identity=identity, at_ns=at_ns, replica=workload.replica, attempt=workload.attempt
        )
        if grown is not None:
            self._grown.append(grown)

    def stalls(self, now_ns: int) -> dict[str, WorkloadStall]:
        """The stalls that are known and not older than a minute."""
        return {name: stall for name, stall in self._stalls.items() if now_ns - stall.at_ns <= _STALE_NS}

    def _judged(self, name: str, reading: DetailReading, cpus: CpuSet, zones: Sequence[int]) -> WorkloadDetail:
        before = self._readings.get(name)
        if before is not None and is_too_early(before, reading):
            # Two samples close together (a start, a test): the earlier reading goes on, or no share would ever be known.
            return detail_between(None, reading, zones=tuple(zones), times=None)
        times = run_times_between(before, reading, cpus=cpus, user_hz=self._user_hz)
        self._readings[name] = reading
        if times is not None:
            self._stalls[name] = WorkloadStall(share=stall_share(times), times=times, at_ns=reading.at_ns)
        else:
            self._stalls.pop(name, None)
        return detail_between(before, reading, zones=tuple(zones), times=times)

    def _files_of(self, hierarchy: Hierarchy, workload: Workload) -> DetailFiles:
        found = self._files.get(workload.name)
        if found is None:
            found = self._files[workload.name] = detail_files(hierarchy, workload.path)
        return found

    def _forget(self, workloads: Mapping[str, Workload]) -> None:
        for name in [name for name in self._readings if name not in workloads]:
            self._readings.pop(name, None)
            self._stalls.pop(name, None)
            self._events.forget(name)
        for name in [name for name in self._files if name not in workloads]:
            del self._files[name]
