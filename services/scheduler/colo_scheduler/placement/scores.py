"""How good a node is for a request. Each scorer gives 0..100 from the node's own numbers, rounded down.

A score depends on nothing but its node, so placing on one node changes no other score. Each scorer exists for one node, for many
rows at once with the same numbers, and as a bound: cheap for all rows and never below the score.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final, NamedTuple, Protocol

import numpy as np

from colo_scheduler.cluster.pool import FloatArray, Pool
from colo_scheduler.numa.zones import IntArray
from colo_scheduler.requests.request_class import RequestClass
from colo_scheduler.scorers.allocation import (
    balanced_allocation,
    balanced_allocation_of_rows,
    binpack,
    binpack_of_rows,
    least_allocated,
    least_allocated_of_rows,
    least_allocated_pct,
    least_allocated_pct_of_rows,
    most_allocated,
    most_allocated_of_rows,
)
from colo_scheduler.scorers.placement import fewest_zones_of_rows
from colo_scheduler.scorers.weights import Scorer

__all__ = ["FitRows", "OneFit", "ScorerForms", "Seen", "most_free", "most_free_of_rows", "scorers_of"]

# A request for both resources, for the scorer that only tests whether there is one.
_BOTH: Final = (1, 1)
_BOTH_ROW: Final = np.array(_BOTH, dtype=np.int64)


class OneFit(Protocol):
    """A node that can take a request: the cost of the zones, the free amounts after it, and the allocatable amounts."""

    @property
    def row(self) -> int:
        """The row of the node."""
        ...

    @property
    def taken(self) -> int:
        """How many equal replicas were placed there in this turn and are not held yet."""
        ...

    @property
    def cost(self) -> int:
        """The cost of the zones that the request would take (`zones.cost_of`)."""
        ...

    @property
    def left_cpu(self) -> int:
        """Free CPU of all zones less the request."""
        ...

    @property
    def left_memory(self) -> int:
        """Free memory of all zones less the request."""
        ...

    @property
    def allocatable_cpu(self) -> int:
        """Allocatable CPU of all zones."""
        ...

    @property
    def allocatable_memory(self) -> int:
        """Allocatable memory of all zones."""
        ...


class Seen(NamedTuple):
    """A node at one moment, by name: an immutable OneFit. `place`: its rank among equals."""

    node: str
    row: int
    taken: int
    cost: int
    left_cpu: int
    left_memory: int
    allocatable_cpu: int
    allocatable_memory: int
    place: int


class FitRows:
    """Rows that can take a request, with the fields of OneFit; arrays of shape (rows,), computed on demand.

    Where only bounds are computed `cost` may be too low.
    """

    def __init__(
        self, pool: Pool, rows: "slice | IntArray", request: RequestClass, cost: Callable[[], IntArray]
    ) -> None:
        self.pool = pool
        self.rows = rows
        self.request = request
        self._cost = cost

    @cached_property
    def cost(self) -> IntArray:
        """The cost of the zones that the request would take, at least 1."""
        return self._cost()

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
        """Allocatable CPU of all zones."""
        return self.pool.allocatable_cpu[self.rows]

    @property
    def allocatable_memory(self) -> IntArray:
        """Allocatable memory of all zones."""
        return self.pool.allocatable_memory[self.rows]

    @cached_property
    def allocatable(self) -> IntArray:
        """CPU and memory of all zones: shape (rows, 2)."""
        return np.stack([self.allocatable_cpu, self.allocatable_memory], axis=1)

    @cached_property
    def allocated(self) -> IntArray:
        """The amounts held, with the request: shape (rows, 2)."""
        return self.allocatable - np.stack([self.left_cpu, self.left_memory], axis=1)


class ScorerForms(NamedTuple):
    """The forms of one scorer. `above` is whole and at least `of_rows` for rows that fit; None: `of_rows` itself.

    `above` must not read `cost`; the number of zones is bounded where the forms are combined. `kept`: `of_one` of these rows for
    later, when the cluster may have changed; None: `of_one` itself, which reads only its argument.
    """

    of_one: Callable[[OneFit], int]
    of_rows: Callable[[FitRows], IntArray]
    above: "Callable[[FitRows], FloatArray] | None" = None
    kept: "Callable[[Sequence[int]], Callable[[OneFit], int]] | None" = None


def most_free(fit: OneFit) -> int:
    """Share of the allocatable that stays free: mean of CPU and memory: floor((floor(100 c/C) + floor(100 m/M)) / 2)."""
    cpu_pct = least_allocated_pct(fit.allocatable_cpu - fit.left_cpu, fit.allocatable_cpu)
    memory_pct = least_allocated_pct(fit.allocatable_memory - fit.left_memory, fit.allocatable_memory)
    return min(100, (cpu_pct + memory_pct) // 2)


def most_free_of_rows(
    left_cpu: IntArray, left_memory: IntArray, allocatable_cpu: IntArray, allocatable_memory: IntArray
) -> IntArray:
    """`most_free` of every row; all shapes (rows,)."""
    cpu_pct = least_allocated_pct_of_rows(allocatable_cpu - left_cpu, allocatable_cpu)
    memory_pct = least_allocated_pct_of_rows(allocatable_memory - left_memory, allocatable_memory)
    mean: IntArray = np.minimum((cpu_pct + memory_pct) // 2, 100)
    return mean


def _mean_free_above(fits: FitRows) -> FloatArray:
    """The mean of both free shares in 32-bit floats: exact but for shares just below a whole number, which count as that number."""
    pool, rows = fits.pool, fits.rows
    cpu = pool.cpu_unit_pct[rows] * np.float32(-fits.request.cpu_mcpu)
    cpu += pool.cpu_pct[rows]
    memory = pool.memory_unit_pct[rows] * np.float32(-fits.request.memory_bytes)
    memory += pool.memory_pct[rows]
    both = np.floor(cpu, out=cpu)
    both += np.floor(memory, out=memory)
    both *= np.float32(0.5)
    bound: FloatArray = np.floor(both, out=both)
    return bound


def _amounts(fit: OneFit) -> tuple[tuple[int, int], tuple[int, int]]:
    """The allocated amounts, with the request, and the allocatable amounts: CPU and memory each."""
    allocated = (fit.allocatable_cpu - fit.left_cpu, fit.allocatable_memory - fit.left_memory)
    return allocated, (fit.allocatable_cpu, fit.allocatable_memory)


def _less(allocated: tuple[int, int]) -> tuple[int, int]:
    # The scorer adds the request itself, and only tests whether there is one: 1 of each gives the same score as the true amounts.
    return allocated[0] - 1, allocated[1] - 1


def scorers_of(resources: tuple[int, int] = (1, 1)) -> dict[Scorer, ScorerForms]:
    """The scorers of free capacity; `resources`: the weights of CPU and memory where a scorer weighs them.

    The scorers of node signals are in `context_scorers.APPRAISERS`.
    """
    row = np.array(resources, dtype=np.int64)
    return {
        Scorer.FEWEST_ZONES: ScorerForms(lambda fit: 100 // fit.cost, lambda fits: fewest_zones_of_rows(fits.cost)),
        Scorer.MOST_FREE: ScorerForms(
            most_free,
            lambda fits: most_free_of_rows(
                fits.left_cpu, fits.left_memory, fits.allocatable_cpu, fits.allocatable_memory
            ),
            _mean_free_above,
        ),
        Scorer.LEAST_ALLOCATED: ScorerForms(
            lambda fit: least_allocated(*_amounts(fit), resources),
            lambda fits: least_allocated_of_rows(fits.allocated, fits.allocatable, row),
        ),
        Scorer.MOST_ALLOCATED: ScorerForms(
            lambda fit: most_allocated(*_amounts(fit), resources),
            lambda fits: most_allocated_of_rows(fits.allocated, fits.allocatable, row),
        ),
        Scorer.BALANCED_ALLOCATION: ScorerForms(
            lambda fit: balanced_allocation(*_amounts(fit)),
            lambda fits: balanced_allocation_of_rows(fits.allocated, fits.allocatable),
        ),
        Scorer.BINPACK: ScorerForms(
            lambda fit: binpack(_BOTH, _less(_amounts(fit)[0]), _amounts(fit)[1], resources),
            lambda fits: binpack_of_rows(_BOTH_ROW, fits.allocated - 1, fits.allocatable, row),
        ),
    }
