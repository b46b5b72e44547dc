"""How good a node is for a request. Each scorer gives 0..100 from the node's own numbers, rounded down.

A score depends on nothing but its node, so placing on one node changes no other score. Each scorer exists for all rows at
once and for one row; both give the same numbers.
"""

from typing import Final

import numpy as np
from msgspec import Struct

from colo_scheduler.zones import IntArray

__all__ = ["FEWEST_ZONES", "MOST_FREE", "Weights", "fewest_zones", "most_free", "most_free_of_rows", "total"]

FEWEST_ZONES: Final = "fewest-zones"
MOST_FREE: Final = "most-free"


class Weights(Struct, frozen=True, kw_only=True):
    """How much each scorer counts: 0..100 each, at least one above 0. The defaults put one zone before two whatever is free."""

    fewest_zones: int = 10
    most_free: int = 1


def fewest_zones(zone_cost: int) -> int:
    """100 for one zone, 50 for two, 33 for three of one socket: floor(100 / cost), with the cost of `zones.cost_of`, at least 1."""
    return 100 // zone_cost


def most_free(left_cpu: int, left_memory: int, allocatable_cpu: int, allocatable_memory: int) -> int:
    """Share of the allocatable that stays free, mean of CPU and memory: floor((floor(100 c/C) + floor(100 m/M)) / 2)."""
    cpu_pct = 100 * left_cpu // allocatable_cpu if allocatable_cpu > 0 else 0
    memory_pct = 100 * left_memory // allocatable_memory if allocatable_memory > 0 else 0
    return min(100, max(0, (cpu_pct + memory_pct) // 2))


def most_free_of_rows(
    left_cpu: IntArray, left_memory: IntArray, allocatable_cpu: IntArray, allocatable_memory: IntArray
) -> IntArray:
    """`most_free` of every row; all shapes (rows,)."""
    cpu_pct = np.where(allocatable_cpu > 0, 100 * left_cpu // np.maximum(allocatable_cpu, 1), 0)
    memory_pct = np.where(allocatable_memory > 0, 100 * left_memory // np.maximum(allocatable_memory, 1), 0)
    mean: IntArray = np.clip((cpu_pct + memory_pct) // 2, 0, 100)
    return mean


def total(weighted: int, weights: Weights) -> int:
    """The weighted sum as 0..100: floor(weighted / sum of weights)."""
    return weighted // (weights.fewest_zones + weights.most_free)
