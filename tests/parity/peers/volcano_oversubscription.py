"""How Volcano's agent finds out how much it may oversubscribe: samples, their weighted mean, and when the node is told.

(volcano-sh/volcano:pkg/agent/oversubscription, pkg/agent/events/probes/noderesources)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_CHANGE: Final = 0.1
_REPORTS: Final = 6
_SAMPLES: Final = 10


def sample_of(allocatable: int, used: int, guaranteed: int, ratio_pct: int) -> int:
    """A share of what is allocatable, neither used nor guaranteed to anybody; at least 0, cut."""
    return max(allocatable - guaranteed - used, 0) * ratio_pct // 100


def reported(samples: Sequence[int]) -> int:
    """The mean of the last ten samples, oldest first, each of twice the weight of the one before; cut. 0 without samples."""
    kept = samples[-_SAMPLES:]
    weights = [1 << number for number in range(len(kept))]
    return sum(value * weight for value, weight in zip(kept, weights, strict=True)) // sum(weights) if kept else 0


def is_written(report_no: int, current: Sequence[int], new: Sequence[int]) -> bool:
    """Whether the node's status is patched: a resource moved by more than a tenth, or it is every sixth report."""
    return report_no % _REPORTS == 0 or any(
        abs(after - before) > before * _CHANGE for before, after in zip(current, new, strict=True)
    )
