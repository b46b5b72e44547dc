"""Quirks of Koordinator's batch formula that colo does not share.

(koordinator-sh/koordinator:pkg/slo-controller/noderesource/plugins)
"""

from __future__ import annotations

from collections.abc import Mapping

Amounts = Mapping[str, int]


def percent_of(amount: int, percent: float) -> int:
    """The percentage as upstream computes it, with floats and cut: a margin loses up to one unit, and so a promise gains it."""
    return int(float(amount) * float(percent) / 100.0)


def normalised(mcpu: int, ratio: float | None) -> int:
    """Batch CPU in the units of a slower reference CPU, rounded up; a ratio of 1 or less changes nothing."""
    return mcpu if ratio is None or ratio <= 1 else -(-int(mcpu * 1000 * ratio) // 1000)


def differs(old: int | None, new: int | None, threshold: float) -> bool:
    """Whether a node's number is written again: it moved by more than this share of the old one, appeared, or disappeared."""
    if old is None or new is None:
        return old is not new
    return abs(new - old) > old * threshold


def split(amount_milli: int, zones: list[int], count: int) -> list[int]:
    """A pod's part of each of `count` zones, in thousandths of a unit, rounded up: of the zones it was placed in, else of all."""
    chosen = zones or list(range(count))
    part = -(-amount_milli // len(chosen))
    return [part if zone in chosen else 0 for zone in range(count)]
