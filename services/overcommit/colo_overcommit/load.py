"""The load summary of a node, published with its allocatable, so that the scheduler can choose nodes by their load.

All windows end at the newest sample: averages and percentiles of one and five minutes, and for an hour and a day the highest
average over five minutes. After a start of this service or of the node's collector a window covers the samples since then.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from colo_common.events.node import LoadPeak, LoadSummary, LoadWindow, NodeUsageSampled
from colo_common.model.percentile import rank_of
from colo_common.model.qos import PriorityBand

__all__ = ["HOUR_MS", "STEP_MS", "WINDOWS_MS", "LoadHistory"]

STEP_MS: Final = 10_000
"""The newest sample of each step is kept."""
WINDOWS_MS: Final = (60_000, 300_000)
_KEEP_MS: Final = WINDOWS_MS[-1]
HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * HOUR_MS
_SLICES: Final = HOUR_MS // _KEEP_MS

# A member of an enumeration costs as much to look up as the rest of what a workload costs here.
_PROD: Final = PriorityBand.PROD
_PERCENTILES: Final = (50, 90, 95, 99)
# Time (Unix ms), mcpu, bytes.
_Usage = tuple[int, int, int]


class LoadHistory:
    """The samples of one node of five minutes, the averages of the twelve slices before, and the highest average of each hour."""

    __slots__ = ("_hours", "_samples", "_slices")

    def __init__(self) -> None:
        self._samples: deque[_Usage] = deque()
        self._slices: deque[_Usage] = deque()
        self._hours: deque[_Usage] = deque()

    def add(self, sample: NodeUsageSampled) -> None:
        """Add a sample. One older than the newest is left out; one much older clears the history, because a clock was set back."""
        at_ms, samples = sample.at_ms, self._samples
        if samples:
            newest_ms = samples[-1][0]
            if at_ms < newest_ms - _KEEP_MS:
                # The clock was set back: the kept samples are of another time.
                for kept in (samples, self._slices, self._hours):
                    kept.clear()
            elif at_ms < newest_ms:
                return
            elif at_ms // STEP_MS == newest_ms // STEP_MS:
                samples.pop()
            elif at_ms // _KEEP_MS != newest_ms // _KEEP_MS:
                self._close_slice(newest_ms)
        samples.append((at_ms, sample.cpu_used_mcpu, sample.memory_used_bytes))
        while samples[0][0] <= at_ms - _KEEP_MS:
            samples.popleft()

    def _close_slice(self, at_ms: int) -> None:
        """Close a slice of five minutes of the clock: its average counts for the last hour and for its hour of the day."""
        part = _average(self._samples, at_ms, _KEEP_MS)
        self._slices.append(part)
        while len(self._slices) > _SLICES or self._slices[0][0] <= at_ms - HOUR_MS:
            self._slices.popleft()
        hours = self._hours
        if hours and hours[-1][0] // HOUR_MS == at_ms // HOUR_MS:
            part = (at_ms, max(hours[-1][1], part[1]), max(hours[-1][2], part[2]))
            hours.pop()
        hours.append(part)
        while hours[0][0] <= at_ms - _DAY_MS:
            hours.popleft()

    def summary(self, sample: NodeUsageSampled) -> LoadSummary:
        """The load summary of the newest sample, which `sample` must be."""
        prod = [work for work in sample.workloads if work.band is _PROD]
        times, mcpus, sizes = zip(*self._samples, strict=True)
        firsts = [bisect_right(times, times[-1] - window_ms) for window_ms in WINDOWS_MS]
        windows = tuple(
            [_window(ms, mcpus[first:], sizes[first:]) for ms, first in zip(WINDOWS_MS, firsts, strict=True)]
        )
        return LoadSummary(
            interval_ms=sample.interval_ms,
            cpu_used_mcpu=sample.cpu_used_mcpu,
            memory_used_bytes=sample.memory_used_bytes,
            prod_cpu_used_mcpu=sum([work.cpu_used_mcpu for work in prod]),
            prod_memory_used_bytes=sum([work.memory_used_bytes for work in prod]),
            system_cpu_used_mcpu=sample.system_cpu_used_mcpu,
            system_memory_used_bytes=sample.system_memory_used_bytes,
            windows=windows,
            peaks=self._peaks(windows[-1].cpu_avg_mcpu, windows[-1].memory_avg_bytes),
        )

    def _peaks(self, mcpu: int, size: int) -> tuple[LoadPeak, ...]:
        """The highest averages of an hour and of a day. `mcpu` and `size` are those of the five minutes that are not over yet."""
        end_ms = self._samples[-1][0]
        found = []
        for parts, window_ms in ((self._slices, HOUR_MS), (self._hours, _DAY_MS)):
            inside = [part for part in parts if part[0] > end_ms - window_ms]
            most_mcpu = max([mcpu, *[part[1] for part in inside]])
            most_bytes = max([size, *[part[2] for part in inside]])
            found.append(LoadPeak(window_ms=window_ms, cpu_mcpu=most_mcpu, memory_bytes=most_bytes))
        return tuple(found)


def _window(window_ms: int, used_mcpu: Sequence[int], used_bytes: Sequence[int]) -> LoadWindow:
    """The averages and percentiles of the samples of a window, at least one."""
    mcpus, sizes, count = sorted(used_mcpu), sorted(used_bytes), len(used_mcpu)
    p50, p90, p95, p99 = _ranks(count)
    return LoadWindow(
        window_ms=window_ms,
        cpu_avg_mcpu=sum(mcpus) // count,
        memory_avg_bytes=sum(sizes) // count,
        cpu_p95_mcpu=mcpus[p95],
        memory_p95_bytes=sizes[p95],
        cpu_p50_mcpu=mcpus[p50],
        memory_p50_bytes=sizes[p50],
        cpu_p90_mcpu=mcpus[p90],
        memory_p90_bytes=sizes[p90],
        cpu_p99_mcpu=mcpus[p99],
        memory_p99_bytes=sizes[p99],
    )


@lru_cache(maxsize=64)
def _ranks(count: int) -> tuple[int, ...]:
    """The indexes of the percentiles among so many values, of which a window has a few dozens."""
    return tuple([rank_of(pct, count) for pct in _PERCENTILES])


def _average(samples: Iterable[_Usage], end_ms: int, window_ms: int) -> _Usage:
    """The average of the samples in the window that ends at `end_ms`, rounded down. The window must have at least one sample."""
    inside = [usage for usage in samples if usage[0] > end_ms - window_ms]
    count = len(inside)
    return end_ms, sum(usage[1] for usage in inside) // count, sum(usage[2] for usage in inside) // count
