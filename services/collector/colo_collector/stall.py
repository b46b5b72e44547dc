"""Stall time of an interval from the growing totals of two pressure readings, or unknown; never negative, never longer
than the interval.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from colo_collector.parse_psi import Pressure, PressureLine

__all__ = ["Resource", "Stall", "stalls_between"]

Resource = Literal["cpu", "memory", "io"]


class Stall(Struct, frozen=True, kw_only=True):
    """How long some or all tasks waited for one resource in the interval (None: unknown), and the kernel's averages
    now.

    A line that the kernel does not print, such as `full` of the cpu file before 5.13, counts as 0.
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

    `interval_ns` 0 stands for readings that cannot be compared (another boot, time that went back): every stall is unknown, as
    is that of a resource that the previous reading lacks and of a total that went back. A total may run ahead of the
    clock by
    the kernel's own rounding, so a longer stall is cut to the interval, which is rounded down to microseconds.
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
