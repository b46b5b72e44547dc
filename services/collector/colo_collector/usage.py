"""Turns two readings of counters into rates: integer milli-CPU, rounded down, or unknown with the reason.

A rate is never negative and never above what its CPUs can do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from colo_collector.parse_proc import CpuTicks, MachineCpuTicks
from colo_common.model.cpuset import CpuSet

__all__ = [
    "GroupCounters",
    "GroupRate",
    "MachineReading",
    "MachineRates",
    "Rate",
    "Unknown",
    "rates_between",
]

_NS_PER_S: Final = 1_000_000_000
_MCPU: Final = 1000
_INTERVAL_NS_MIN: Final = 1_000_000
_SLACK_TICKS: Final = 2
"""Ticks a CPU by which an interval may seem too long: one tick late at the first reading, one early at the second."""
_SLACK_DIVISOR: Final = 10
"""A tenth of the interval is allowed for the files of one batch, which are not read at one instant."""


class Unknown(StrEnum):
    """Why there is no rate."""

    FIRST = "first-reading"
    REBOOTED = "rebooted"
    TIME_STOOD = "no-time-passed"
    TIME_BACKWARDS = "time-went-backwards"
    RESET = "counter-went-backwards"
    ABSURD = "more-than-the-cpus-can-do"
    CPU_CAME = "cpu-not-in-both-readings"
    ABSENT = "not-in-this-reading"
    REPLACED = "group-was-replaced"


class Rate(Struct, frozen=True):
    """`mcpu` rounded down, or None and the reason why it is unknown. Exactly one of the two is None."""

    mcpu: int | None
    unknown: Unknown | None = None


class GroupCounters(Struct, frozen=True, kw_only=True):
    """The counters of one workload's group in one reading. `stalled_us`: some thread waited for a CPU (None: not measured).

    `identity` (the inode of the counter file) distinguishes a new group from an old one of the same name.
    """

    workload: str
    cpu_usage_ns: int
    throttled_us: int = 0
    identity: int = 0
    stalled_us: int | None = None


class MachineReading(Struct, frozen=True, kw_only=True):
    """The counters of one reading. `at_ns` is of the monotonic clock; readings of different boots are never compared."""

    at_ns: int
    boot_id: str
    ticks: MachineCpuTicks
    groups: tuple[GroupCounters, ...] = ()


class GroupRate(Struct, frozen=True, kw_only=True):
    """One workload's rate, and the time its threads were throttled, or waited for a CPU, in the interval (None when unknown)."""

    workload: str
    used: Rate
    throttled_us: int | None
    stalled_us: int | None = None


class MachineRates(Struct, frozen=True, kw_only=True):
    """All rates of one interval.

    `zones` has the id and rate of every zone asked for, `zone_steals` the rate of the time stolen from each, `groups` every
    workload of either reading, all ascending.
    """

    interval_ns: int
    used: Rate
    steal: Rate
    zones: tuple[tuple[int, Rate], ...]
    groups: tuple[GroupRate, ...]
    zone_steals: tuple[tuple[int, Rate], ...] = ()


def rates_between(
    previous: MachineReading | None, current: MachineReading, zones: Mapping[int, CpuSet], *, user_hz: int = 100
) -> MachineRates:
    """The rates between two readings. `user_hz` is the ticks a second of /proc/stat (sysconf SC_CLK_TCK).

    - The node's rate comes from the sum line, a zone's from the lines of its CPUs. A CPU of the zone that is missing in a
      reading makes the zone unknown for this interval (hot-plug); the node stays known.
    - mcpu = floor(ticks * 1000 * 10**9 / (user_hz * interval_ns)), summed before it is rounded.
    - A rate above what its CPUs can do is cut to that when two ticks and a tenth of the interval a CPU explain the excess;
      beyond that it is unknown.
    - A counter that went back, less than 1 ms, another boot or a replaced group make the rate unknown.
    """
    broken = _broken(previous, current)
    if previous is None or broken is not None:
        return _all_unknown(previous, current, zones, broken or Unknown.FIRST)
    interval_ns = current.at_ns - previous.at_ns
    before = {ticks.cpu: ticks for ticks in previous.ticks.cpus}
    now = {ticks.cpu: ticks for ticks in current.ticks.cpus}
    clock = _Clock(interval_ns=interval_ns, user_hz=user_hz)
    count = max(len(before), len(now))
    busy = current.ticks.total.busy - previous.ticks.total.busy
    steal = current.ticks.total.steal - previous.ticks.total.steal
    return MachineRates(
        interval_ns=interval_ns,
        used=clock.rate_of_ticks(busy, count),
        steal=clock.rate_of_ticks(steal, count),
        zones=tuple((zone, _zone_rate(zones[zone], before, now, clock)) for zone in sorted(zones)),
        groups=_group_rates(previous.groups, current.groups, clock, count),
        zone_steals=tuple((zone, _zone_steal(zones[zone], before, now, clock)) for zone in sorted(zones)),
    )


class _Clock(Struct, frozen=True, kw_only=True):
    interval_ns: int
    user_hz: int

    def rate_of_ticks(self, ticks: int, cpus: int) -> Rate:
        return self.rate(ticks * _NS_PER_S, self.user_hz, cpus)

    def rate(self, used_ns: int, per: int, cpus: int) -> Rate:
        """The rate of used_ns / per nanoseconds of CPU time in the interval, on that many CPUs."""
        if used_ns < 0:
            return Rate(None, Unknown.RESET)
        slack_ns = self.interval_ns // _SLACK_DIVISOR + _SLACK_TICKS * _NS_PER_S // self.user_hz
        if used_ns > cpus * (self.interval_ns + slack_ns) * per:
            return Rate(None, Unknown.ABSURD)
        return Rate(min(used_ns * _MCPU // (per * self.interval_ns), cpus * _MCPU))


def _broken(previous: MachineReading | None, current: MachineReading) -> Unknown | None:
    """Why the two readings cannot be compared, or None."""
    if previous is None:
        return Unknown.FIRST
    if previous.boot_id != current.boot_id:
        return Unknown.REBOOTED
    if current.at_ns < previous.at_ns:
        return Unknown.TIME_BACKWARDS
    if current.at_ns - previous.at_ns < _INTERVAL_NS_MIN:
        return Unknown.TIME_STOOD
    return None


def _all_unknown(
    previous: MachineReading | None, current: MachineReading, zones: Mapping[int, CpuSet], reason: Unknown
) -> MachineRates:
    unknown = Rate(None, reason)
    names = {group.workload for group in current.groups}
    if previous is not None:
        names |= {group.workload for group in previous.groups}
    return MachineRates(
        interval_ns=0,
        used=unknown,
        steal=unknown,
        zones=tuple((zone, unknown) for zone in sorted(zones)),
        groups=tuple(GroupRate(workload=name, used=unknown, throttled_us=None) for name in sorted(names)),
    )


def _zone_rate(cpus: CpuSet, before: Mapping[int, CpuTicks], now: Mapping[int, CpuTicks], clock: _Clock) -> Rate:
    busy = 0
    for cpu in cpus:
        first, last = before.get(cpu), now.get(cpu)
        if first is None or last is None:
            return Rate(None, Unknown.CPU_CAME)
        if last.busy < first.busy:
            return Rate(None, Unknown.RESET)
        busy += last.busy - first.busy
    return clock.rate_of_ticks(busy, len(cpus))


def _zone_steal(cpus: CpuSet, before: Mapping[int, CpuTicks], now: Mapping[int, CpuTicks], clock: _Clock) -> Rate:
    pairs = [(before.get(cpu), now.get(cpu)) for cpu in cpus]
    grown = [last.steal - first.steal for first, last in pairs if first is not None and last is not None]
    if len(grown) < len(pairs):
        return Rate(None, Unknown.CPU_CAME)
    return Rate(None, Unknown.RESET) if min(grown, default=0) < 0 else clock.rate_of_ticks(sum(grown), len(grown))


def _group_rates(
    before: Iterable[GroupCounters], now: Iterable[GroupCounters], clock: _Clock, cpus: int
) -> tuple[GroupRate, ...]:
    first = {group.workload: group for group in before}
    last = {group.workload: group for group in now}
    return tuple(
        _group_rate(name, first.get(name), last.get(name), clock, cpus) for name in sorted(first.keys() | last.keys())
    )


def _group_rate(
    name: str, first: GroupCounters | None, last: GroupCounters | None, clock: _Clock, cpus: int
) -> GroupRate:
    reason: Unknown | None = None
    if last is None:
        reason = Unknown.ABSENT
    elif first is None:
        reason = Unknown.FIRST
    elif first.identity != last.identity:
        reason = Unknown.REPLACED
    if reason is not None or first is None or last is None:
        return GroupRate(workload=name, used=Rate(None, reason or Unknown.FIRST), throttled_us=None)
    throttled_us = last.throttled_us - first.throttled_us
    return GroupRate(
        workload=name,
        used=clock.rate(last.cpu_usage_ns - first.cpu_usage_ns, 1, cpus),
        throttled_us=throttled_us if throttled_us >= 0 else None,
        stalled_us=_stalled_us(first.stalled_us, last.stalled_us, clock.interval_ns),
    )


def _stalled_us(first: int | None, last: int | None, interval_ns: int) -> int | None:
    """The growth of the total, at most the interval: the kernel rounds it, so it may run ahead of the clock."""
    if first is None or last is None or last < first:
        return None
    return min(last - first, interval_ns // 1_000)
