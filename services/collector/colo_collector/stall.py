"""Stall time of an interval, from the totals of two pressure readings.

A stall is unknown, or at least 0 and at most the interval.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from colo_collector.parse_psi import Pressure, PressureLine

__all__ = ["Resource", "Stall", "stalls_between"]

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
