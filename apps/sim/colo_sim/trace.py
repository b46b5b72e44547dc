"""LoadTrace: measured load of machines over time, readable at any moment.

Shares are integers in parts per million of the machine (`_ppm`: 10,000 = 1 %), so that every reading is exact and equal
on every machine.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from colo_common.model.invalid import InvalidInput
from colo_common.model.percentile import rank_of
from colo_sim.noise import PPM

__all__ = ["DEFAULT_GAP_LIMIT_MS", "NODE_SHIFT_MS", "Load", "LoadSeries", "LoadTrace", "SeriesStatistics"]

DEFAULT_GAP_LIMIT_MS: Final = 300_000
"""Between samples at most this far apart the load is bridged by a straight line; over longer gaps it is held."""

NODE_SHIFT_MS: Final = 37 * 60_000
"""The k-th copy of a series starts k x 37 minutes later in it; 37 shares no factor with 60, so copies spread over the day."""

PPM_OF_PCT: Final = PPM // 100


class Load(NamedTuple):
    """Share of a machine's CPU and memory in use, in parts per million."""

    cpu_ppm: int
    mem_ppm: int


@dataclass(frozen=True, slots=True)
class SeriesStatistics:
    """Numbers of one series. Means are weighted by sample, not by time, and round down to 0.0001 %; p95 is by nearest rank."""

    samples: int
    span_ms: int
    step_ms: int
    cpu_mean_pct: float
    cpu_p95_pct: float
    cpu_max_pct: float
    mem_mean_pct: float
    gaps: int
    longest_gap_ms: int


@dataclass(frozen=True)
class LoadSeries:
    """The samples of one machine: times strictly ascending from any origin, shares from 0 to 1,000,000 ppm.

    A series wraps around: its period is its span plus one median step, so the moment after the last sample is the first
    one again. Raises InvalidInput when it is empty, out of order, or out of range.
    """

    name: str
    t_ms: tuple[int, ...]
    cpu_ppm: tuple[int, ...]
    mem_ppm: tuple[int, ...]
    gap_limit_ms: int = DEFAULT_GAP_LIMIT_MS
    step_ms: int = field(init=False)
    period_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self._validate()
        steps = sorted(later - earlier for earlier, later in pairwise(self.t_ms))
        step_ms = steps[len(steps) // 2] if steps else 1_000
        object.__setattr__(self, "step_ms", step_ms)
        object.__setattr__(self, "period_ms", self.t_ms[-1] - self.t_ms[0] + step_ms)

    def _validate(self) -> None:
        where = f"series {self.name}"
        if not self.t_ms:
            raise InvalidInput(where, "must have at least one sample", len(self.t_ms))
        if not len(self.t_ms) == len(self.cpu_ppm) == len(self.mem_ppm):
            lengths = (len(self.t_ms), len(self.cpu_ppm), len(self.mem_ppm))
            raise InvalidInput(where, "must have as many times as CPU and memory shares", lengths)
        if self.gap_limit_ms < 0:
            raise InvalidInput("gap_limit_ms", "must be at least 0", self.gap_limit_ms)
        for earlier, later in pairwise(self.t_ms):
            if later <= earlier:
                raise InvalidInput(f"{where} time", "must ascend from sample to sample", later)
        for column, shares in (("cpu", self.cpu_ppm), ("memory", self.mem_ppm)):
            if min(shares) < 0 or max(shares) > PPM:
                raise InvalidInput(f"{where} {column}", f"must be from 0 to {PPM} ppm", (min(shares), max(shares)))

    def at(self, t_ms: int) -> Load:
        """Return the load at `t_ms` after the first sample, wrapped around the period; bridged values round down."""
        local_ms = self.t_ms[0] + t_ms % self.period_ms
        left = bisect_right(self.t_ms, local_ms) - 1
        right = left + 1
        start_ms = self.t_ms[left]
        if right < len(self.t_ms):
            gap_ms = self.t_ms[right] - start_ms
        else:
            right, gap_ms = 0, self.step_ms
        cpu_ppm, mem_ppm = self.cpu_ppm[left], self.mem_ppm[left]
        if gap_ms > self.gap_limit_ms:
            return Load(cpu_ppm, mem_ppm)
        into_ms = local_ms - start_ms
        return Load(
            cpu_ppm + (self.cpu_ppm[right] - cpu_ppm) * into_ms // gap_ms,
            mem_ppm + (self.mem_ppm[right] - mem_ppm) * into_ms // gap_ms,
        )

    def statistics(self) -> SeriesStatistics:
        """Return mean, p95, maximum and gaps. A gap is a step longer than the limit, over which values are held."""
        steps = [later - earlier for earlier, later in pairwise(self.t_ms)]
        gaps = [step for step in steps if step > self.gap_limit_ms]
        count = len(self.t_ms)
        ascending = sorted(self.cpu_ppm)
        return SeriesStatistics(
            samples=count,
            span_ms=self.t_ms[-1] - self.t_ms[0],
            step_ms=self.step_ms,
            cpu_mean_pct=sum(self.cpu_ppm) // count / PPM_OF_PCT,
            cpu_p95_pct=ascending[rank_of(95, count)] / PPM_OF_PCT,
            cpu_max_pct=ascending[-1] / PPM_OF_PCT,
            mem_mean_pct=sum(self.mem_ppm) // count / PPM_OF_PCT,
            gaps=len(gaps),
            longest_gap_ms=max(gaps, default=0),
        )


@dataclass(frozen=True)
class LoadTrace:
    """Series of one source, sorted by name, and whether they are machines or the mean of a fleet.

    `is_fleet_mean`: the one series is smoother than any machine, so a demand made from it adds more noise (demand.py).
    `is_synthetic`: nobody measured it. Raises InvalidInput when there is no series or a name appears twice.
    """

    series: tuple[LoadSeries, ...]
    source: str
    is_fleet_mean: bool = False
    is_synthetic: bool = False

    def __post_init__(self) -> None:
        if not self.series:
            raise InvalidInput(self.source, "must have at least one series", 0)
        names = [one.name for one in self.series]
        if names != sorted(set(names)):
            raise InvalidInput(self.source, "series must be sorted by name, each name once", names)

    def at(self, node_index: int, t_ms: int) -> Load:
        """Return the load of the node_index-th node at `t_ms`: series index modulo the count, shifted for every copy.

        Node k reads series k mod S. Its shift is k x 37 minutes when the trace has one series; with more, the first
        copy of each series is unshifted, the second starts 37 minutes later in it, and so on.
        """
        copy, which = divmod(node_index, len(self.series))
        return self.series[which].at(t_ms + copy * NODE_SHIFT_MS)

    def series_of(self, node_index: int) -> LoadSeries:
        """Return the series that the node_index-th node reads."""
        return self.series[node_index % len(self.series)]

    def statistics(self) -> dict[str, SeriesStatistics]:
        """Return the numbers of each series by name, in order of name."""
        return {one.name: one.statistics() for one in self.series}


def series_from_rows(name: str, rows: Sequence[tuple[int, int, int]], gap_limit_ms: int) -> LoadSeries:
    """Return a series of (t_ms, cpu_ppm, mem_ppm) rows."""
    return LoadSeries(
        name,
        tuple(row[0] for row in rows),
        tuple(row[1] for row in rows),
        tuple(row[2] for row in rows),
        gap_limit_ms,
    )
