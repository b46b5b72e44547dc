"""Stall time of an interval, from the totals of two pressure readings.

A stall is unknown, or at least 0 and at most the interval.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from msgspec import Struct

from colo_collector.parse_psi import Pressure, PressureLine
from colo_common.events.node import PressureReading

__all__ = ["Resource", "Stall", "pressure_readings", "stalls_between"]

Resource = Literal["cpu", "memory", "io"]


class Stall(Struct, frozen=True, kw_only=True):
    """Time for which some or all tasks waited for a resource in the interval (None: unknown), and the kernel's averages now.

    A line that the kernel does not print, for example `full` of the cpu file before 5.13, counts as 0.
    """

    resource: Resource
    some_us: int | None
    full_us: int | None
    some_avg10_centipct: int
    full_avg10_centipct: int


def stalls_between(
    previous: Iterable[tuple[Resource, Pressure]], current: Iterable[tuple[Resource, Pressure]], interval_ns: int
) -> tuple[Stall, ...]:
    """The stalls of every resource of the current reading, in its order.

    `interval_ns` 0 means that the readings cannot be compared (another boot, time that went back): every stall is unknown. A stall
    is also unknown when the previous reading lacks the resource or its total went back. A total may run ahead of the clock by the
    kernel's rounding, so a longer stall is cut to the interval, which is rounded down to microseconds.
    """
    before = dict(previous)
    limit_us = interval_ns // 1000
    return tuple(_stall(resource, before.get(resource), now, limit_us) for resource, now in current)


_NO_LINE: Final = PressureLine(0, 0, 0, 0)


def pressure_readings(
    stalls: Iterable[Stall], current: Iterable[tuple[Resource, Pressure]]
) -> tuple[PressureReading, ...]:
    """The stalls that have a rate, with the kernel's averages and totals of the same reading."""
    lines = dict(current)
    found = []
    for stall in stalls:
        if stall.some_us is None or stall.full_us is None:
            continue
        some, full = lines[stall.resource].some or _NO_LINE, lines[stall.resource].full or _NO_LINE
        found.append(
            PressureReading(
                resource=stall.resource,
                some_us=stall.some_us,
                full_us=stall.full_us,
                some_avg10_centipct=some.avg10_centipct,
                full_avg10_centipct=full.avg10_centipct,
                some_avg60_centipct=some.avg60_centipct,
                full_avg60_centipct=full.avg60_centipct,
                some_avg300_centipct=some.avg300_centipct,
                full_avg300_centipct=full.avg300_centipct,
                some_total_us=some.total_us,
                full_total_us=full.total_us,
            )
        )
    return tuple(found)


def _stall(resource: Resource, before: Pressure | None, now: Pressure, limit_us: int) -> Stall:
    known = before if limit_us > 0 else None
    return Stall(
        resource=resource,
        some_us=None if known is None else _grown(known.some, now.some, limit_us),
        full_us=None if known is None else _grown(known.full, now.full, limit_us),
        some_avg10_centipct=0 if now.some is None else now.some.avg10_centipct,
        full_avg10_centipct=0 if now.full is None else now.full.avg10_centipct,
    )


def _grown(before: PressureLine | None, now: PressureLine | None, limit_us: int) -> int | None:
    if now is None:
        return 0
    if before is None or now.total_us < before.total_us:
        return None
    return min(now.total_us - before.total_us, limit_us)
