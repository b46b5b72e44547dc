"""Moments by the time since the machine's boot: it goes on across processes, and nobody can set it."""

import time

from msgspec import structs

from colo_executor.local import StopIntent

__all__ = ["with_boot_time", "by_this_clock"]


def with_boot_time(intent: StopIntent) -> StopIntent:
    """The intent of a stop that begins now, with the end of its grace by the time since boot."""
    return structs.replace(intent, kill_at_boot_ms=_boot_ms() + intent.grace_ms)


def by_this_clock(intent: StopIntent | None, now_ms: int) -> StopIntent | None:
    """The intent of an earlier executor of this boot, its end by the present wall clock, which may have been set since."""
    if intent is None or not intent.kill_at_boot_ms:
        return intent
    left_ms = max(0, min(intent.kill_at_boot_ms - _boot_ms(), intent.grace_ms))
    return structs.replace(intent, kill_at_ms=now_ms + left_ms)


def _boot_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
