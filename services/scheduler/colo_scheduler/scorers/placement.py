"""Scores from where the work lies: few zones, few replicas of a job on one node, few taints that work does not tolerate."""

from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["fewest_zones", "fewest_zones_of_rows", "soft_taints", "spread"]

IntArray = npt.NDArray[np.int64]
Count = TypeVar("Count", int, IntArray)
"""A count of one node, or int64 of shape (nodes,)."""

_FULL: Final = 100


def fewest_zones(zone_cost: int) -> int:
    """floor(100 / cost): 100 for one zone, 50 for two; 0 for a cost of 0, a node that cannot hold the request."""
    return _FULL // zone_cost if zone_cost > 0 else 0


def fewest_zones_of_rows(zone_costs: IntArray) -> IntArray:
    """`fewest_zones` of every row: int64, shape (nodes,)."""
    scores: IntArray = np.where(zone_costs > 0, _FULL // np.maximum(zone_costs, 1), 0)
    return scores


def spread(same_job_count: Count) -> Count:
    """floor(100 / (1 + n)) for n replicas of the same job on the node: each further one is worth less."""
    return _FULL // (1 + same_job_count)


def soft_taints(untolerated_count: Count) -> Count:
    """floor(100 / (1 + n)) for n PreferNoSchedule taints that the work does not tolerate."""
    return _FULL // (1 + untolerated_count)
