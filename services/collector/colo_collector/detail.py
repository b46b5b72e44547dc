"""What a workload's turn adds to the sample: two readings of its files become memory by kind, growth and run times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from colo_collector.growth import growth, growth_of_pair
from colo_collector.parse_detail import MemoryEvents, MemorySplit, QuotaPeriods
from colo_collector.parse_proc import CpuTicks, MachineCpuTicks
from colo_collector.parse_psi import Pressure
from colo_collector.parse_tasks import TaskTimes
from colo_collector.stall import Resource, pressure_readings, stalls_between
from colo_common.events.node import WorkloadDetail
from colo_common.model.cpuset import CpuSet
from colo_common.model.stall import RunTimes

__all__ = ["DetailReading", "detail_between", "is_too_early", "run_times_between"]

_NS_PER_US: Final = 1_000
_NS_PER_MS: Final = 1_000_000
_SHORTEST_NS: Final = 50_000_000
"""Readings closer together than this make no share: a few waits would decide."""


class DetailReading(Struct, frozen=True, kw_only=True):
    """The values of one workload's turn, all of one pass; None where the kernel does not say.

    `identity` distinguishes a group from a later one of its name. `times` and `switches` are by thread id. `ticks` are those of
    /proc/stat in the same pass, `throttled_us` of cpu.stat.
    """

    at_ns: int
    identity: int = 0
    memory: MemorySplit = MemorySplit()
    numa_bytes: tuple[tuple[int, int], ...] = ()
    events: MemoryEvents = MemoryEvents()
    periods: QuotaPeriods = QuotaPeriods()
    tasks: int | None = None
    block_io: tuple[int, int] | None = None
    pressure: tuple[tuple[Resource, Pressure], ...] = ()
    times: Mapping[int, TaskTimes] = {}
    switches: Mapping[int, int] = {}
    throttled_us: int = 0
    ticks: MachineCpuTicks | None = None


def detail_between(
    previous: DetailReading | None, now: DetailReading, *, zones: tuple[int, ...], times: RunTimes | None
) -> WorkloadDetail:
    """The detail of a turn. What grows is known from the second turn of one group on; `times` are those of run_times_between."""
    before = previous if previous is not None and previous.identity == now.identity else None
    span_ns = 0 if before is None else max(now.at_ns - before.at_ns, 0)
    stalls = stalls_between(() if before is None else before.pressure, now.pressure, span_ns)
    io = None if before is None else growth_of_pair(before.block_io, now.block_io)
    local = sum(size for zone, size in now.numa_bytes if zone in zones)
    everywhere = sum(size for _, size in now.numa_bytes)
    return WorkloadDetail(
        span_ms=span_ns // _NS_PER_MS,
        anon_bytes=now.memory.anon_bytes,
        file_bytes=now.memory.file_bytes,
        shmem_bytes=now.memory.shmem_bytes,
        numa_bytes=now.numa_bytes,
        remote_pct=(everywhere - local) * 100 // everywhere if everywhere and zones else None,
        pressure=pressure_readings(stalls, now.pressure),
        run_us=None if times is None else times.run_us,
        wait_us=None if times is None else times.wait_us,
        steal_us=None if times is None else times.steal_us,
        periods=None if before is None else growth(before.periods.periods, now.periods.periods),
        throttled_periods=None if before is None else growth(before.periods.throttled, now.periods.throttled),
        tasks=now.tasks,
        involuntary_switches=None if before is None else _switches(before.switches, now.switches),
        disk_read_bytes=None if io is None else io[0],
        disk_written_bytes=None if io is None else io[1],
        high_events=None if before is None else growth(before.events.high, now.events.high),
        max_events=None if before is None else growth(before.events.max, now.events.max),
        oom_events=None if before is None else growth(before.events.oom, now.events.oom),
        oom_kill_events=None if before is None else growth(before.events.oom_kill, now.events.oom_kill),
    )


def is_too_early(previous: DetailReading, now: DetailReading) -> bool:
    """Whether two readings of one group are too close together to make a share of."""
    return previous.identity == now.identity and 0 <= now.at_ns - previous.at_ns < _SHORTEST_NS


def run_times_between(
    previous: DetailReading | None, now: DetailReading, *, cpus: CpuSet, user_hz: int
) -> RunTimes | None:
    """What the group's threads did between two turns; None without a thread that is in both readings.

    A thread that ended in between took its counters with it, and one that came may have run elsewhere: only threads of both
    readings count, so the share is theirs. The stolen time of the group's CPUs (all CPUs without a set) counts by the part of their
    busy time in which the group ran.
    """
    if previous is None or previous.identity != now.identity or is_too_early(previous, now):
        return None
    run_ns = wait_ns = 0
    seen = False
    for task, times in now.times.items():
        before = previous.times.get(task)
        # A thread id may have been given to another thread: then its counters are smaller.
        if before is None or times.run_ns < before.run_ns or times.wait_ns < before.wait_ns:
            continue
        run_ns += times.run_ns - before.run_ns
        wait_ns += times.wait_ns - before.wait_ns
        seen = True
    if not seen:
        return None
    return RunTimes(
        span_us=(now.at_ns - previous.at_ns) // _NS_PER_US,
        run_us=run_ns // _NS_PER_US,
        wait_us=wait_ns // _NS_PER_US,
        throttled_us=max(now.throttled_us - previous.throttled_us, 0),
        steal_us=_steal_us(previous.ticks, now.ticks, cpus, run_ns // _NS_PER_US, user_hz),
    )


def _steal_us(
    before: MachineCpuTicks | None, now: MachineCpuTicks | None, cpus: CpuSet, run_us: int, user_hz: int
) -> int:
    if before is None or now is None or now.total.steal <= before.total.steal:
        return 0
    first = {one.cpu: one for one in before.cpus}
    steal = busy = 0
    for last in now.cpus:
        earlier = first.get(last.cpu)
        if earlier is None or (cpus and last.cpu not in cpus):
            continue
        steal += max(last.steal - earlier.steal, 0)
        busy += max(_not_idle(last) - _not_idle(earlier), 0)
    busy_us = busy * 1_000_000 // user_hz
    steal_us = steal * 1_000_000 // user_hz
    return steal_us * min(run_us, busy_us) // busy_us if busy_us else 0


def _not_idle(ticks: CpuTicks) -> int:
    return ticks.busy + ticks.steal


def _switches(before: Mapping[int, int], now: Mapping[int, int]) -> int | None:
    grown = [count - before[task] for task, count in now.items() if task in before and count >= before[task]]
    return sum(grown) if grown else None
