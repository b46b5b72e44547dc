"""Percentiles by nearest rank: always a value that was measured."""

from collections.abc import Sequence
from typing import TypeVar

from colo_common.model.invalid import InvalidInput

__all__ = ["percentile", "rank_of"]

_Number = TypeVar("_Number", int, float)


def rank_of(pct: int, count: int) -> int:
    """The index, from 0, of a percentile among `count` ascending values: ceil(pct / 100 x count) - 1. Both are at least 1."""
    return -(-pct * count // 100) - 1


def percentile(values: Sequence[_Number], pct: int) -> _Number:
    """The smallest value that at least `pct` percent of the values do not exceed; the values may be in any order.

    Raises InvalidInput unless `pct` is from 1 to 100 and there is a value.
    """
    if not 1 <= pct <= 100:
        raise InvalidInput("pct", "must be from 1 to 100", pct)
    if not values:
        raise InvalidInput("values", "must have at least one value", values)
    return sorted(values)[rank_of(pct, len(values))]
