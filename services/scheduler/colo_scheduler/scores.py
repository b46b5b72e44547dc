"""How good a node is for a request. Each scorer gives 0..100 from the node's own numbers, rounded down.

A score depends on nothing but its node, so placing on one node changes no other score. Each scorer exists for one node, for many
rows at once with the same numbers, and as a bound that is cheap for all rows and never below the score.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Final, NamedTuple, Protocol

import numpy as np
from msgspec import Struct

from colo_scheduler.pool import FloatArray, Pool
from colo_scheduler.request import RequestClass
from colo_scheduler.zones import IntArray

__all__ = [
    "FEWEST_ZONES",
    "MOST_FREE",
    "SCORERS",
    "FitRows",
    "OneFit",
    "Scorer",
    "Weights",
    "fewest_zones",
    "most_free",
    "most_free_of_rows",
    "total",
]

FEWEST_ZONES: Final = "fewest-zones"
MOST_FREE: Final = "most-free"

# More than the four rounded steps that give a share of at most 100 in 32-bit floats lose together (4 units of 2^-18 each at most).
_ROUNDING: Final = np.float32(2**-14)


class Weights(Struct, frozen=True, kw_only=True):
    """How much each scorer counts: 0..100 each, at least one above 0. The defaults put one zone before two whatever is free."""

    fewest_zones: int = 10
    most_free: int = 1


class OneFit(Protocol):
    """A node that can take a request: how scattered (`zones.cost_of`), and what stays free of how much."""

    cost: int
    left_cpu: int
    left_memory: int
    allocatable_cpu: int
    allocatable_memory: int


class FitRows:
    """Rows that can take a request, or all rows among which such are looked for; arrays of shape (rows,), computed when asked for.

    `cost`: as in OneFit, or not above it where only bounds are wanted.
    """

    def __init__(self, pool: Pool, rows: "slice | IntArray", request: RequestClass, cost: IntArray) -> None:
        self.pool = pool
        self.rows = rows
        self.request = request
        self.cost = cost

    @cached_property
    def left_cpu(self) -> IntArray:
        """Free CPU of all zones less the request."""
        left: IntArray = self.pool.node_free_cpu[self.rows] - self.request.cpu_mcpu
        return left

    @cached_property
    def left_memory(self) -> IntArray:
        """Free memory of all zones less the request."""
        left: IntArray = self.pool.node_free_memory[self.rows] - self.request.memory_bytes
        return left

    @property
    def allocatable_cpu(self) -> IntArray:
        """Of all zones."""
        return self.pool.allocatable_cpu[self.rows]

    @property
    def allocatable_memory(self) -> IntArray:
        """Of all zones."""
        return self.pool.allocatable_memory[self.rows]


class Scorer(NamedTuple):
    """One column of the score matrix. `above` is at least `of_rows` and whole; it need not be cheap to be right.

    `weight` names its field of the policy's weights.
    """

    name: str
    weight: str
    of_one: Callable[[OneFit], int]
    of_rows: Callable[[FitRows], IntArray]
    above: Callable[[FitRows], "FloatArray | IntArray"]


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


def _above_most_free(fits: FitRows) -> FloatArray:
    """The same in 32-bit floats, which are right but for shares next to a whole number: 1 too much. Only for rows that fit."""
    pool, rows = fits.pool, fits.rows
    cpu = pool.cpu_pct[rows] - pool.cpu_unit_pct[rows] * np.float32(fits.request.cpu_mcpu)
    cpu += _ROUNDING
    memory = pool.memory_pct[rows] - pool.memory_unit_pct[rows] * np.float32(fits.request.memory_bytes)
    memory += _ROUNDING
    both = np.floor(cpu, out=cpu)
    both += np.floor(memory, out=memory)
    both *= np.float32(0.5)
    return np.floor(both, out=both)


def _fewest_zones_of_rows(fits: FitRows) -> IntArray:
    return 100 // np.maximum(fits.cost, 1)


SCORERS: Final = (
    Scorer(
        FEWEST_ZONES,
        "fewest_zones",
        lambda fit: fewest_zones(fit.cost),
        _fewest_zones_of_rows,
        _fewest_zones_of_rows,
    ),
    Scorer(
        MOST_FREE,
        "most_free",
        lambda fit: most_free(fit.left_cpu, fit.left_memory, fit.allocatable_cpu, fit.allocatable_memory),
        lambda fits: most_free_of_rows(fits.left_cpu, fits.left_memory, fits.allocatable_cpu, fits.allocatable_memory),
        _above_most_free,
    ),
)


def total(weighted: int, weights: Weights) -> int:
    """The weighted sum as 0..100: floor(weighted / sum of weights)."""
    of_all: int = sum(getattr(weights, scorer.weight) for scorer in SCORERS)
    return weighted // of_all
