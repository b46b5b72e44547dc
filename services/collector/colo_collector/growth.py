"""The growth of a counter between two readings."""

from __future__ import annotations

__all__ = ["growth", "growth_of_pair"]


def growth(before: int | None, now: int | None) -> int | None:
    """How much a counter grew; None when a reading is unknown or the counter went back."""
    if before is None or now is None or now < before:
        return None
    return now - before


def growth_of_pair(before: tuple[int, int] | None, now: tuple[int, int] | None) -> tuple[int, int] | None:
    """How much two counters of one file grew; None when a reading is unknown or one of them went back."""
    if before is None or now is None or now[0] < before[0] or now[1] < before[1]:
        return None
    return now[0] - before[0], now[1] - before[1]
