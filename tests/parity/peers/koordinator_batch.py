"""Quirks of Koordinator's batch and mid formulas that colo does not share, and its mid tier, which colo does not have.

(koordinator-sh/koordinator:pkg/slo-controller/noderesource/plugins)
"""

from __future__ import annotations

from collections.abc import Mapping

Amounts = Mapping[str, int]


def percent_of(amount: int, percent: float) -> int:
    """The percentage as upstream computes it, with floats and cut: a margin loses up to one unit, and so a promise gains it."""
    return int(float(amount) * float(percent) / 100.0)


def mid_static(capacity: int, reserved_pct: int, most_pct: int) -> int:
    """The mid tier in the mode `static`: a fixed share of the machine, within the tier's bound."""
    return min(percent_of(capacity, reserved_pct), percent_of(capacity, most_pct))


def mid_reclaimable(
    capacity: int, reclaimable: int, used: int | None, kept: int, requested: int, unallocated_pct: int, most_pct: int
) -> int:
    """The mid tier by what prod work could give back: not more than the machine has unused, and a part of what nobody asked for.

    `used` None: the node's usage is not known, so nothing counts as unused.
    """
    unused = 0 if used is None else capacity - used
    given_back = max(min(reclaimable, unused), 0)
    unallocated = max(capacity - kept - requested, 0)
    return min(given_back + percent_of(unallocated, unallocated_pct), percent_of(capacity, most_pct))


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
