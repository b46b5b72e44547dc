"""The order of filters and the weighing of scores: what makes a node the best one for a request."""

from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from colo_common.events.placement import NodeScore, ReasonCount
from colo_common.model.reasons import Reason
from colo_scheduler.cluster import View
from colo_scheduler.facts import BoolArray
from colo_scheduler.filters import FACT_FILTERS, FREE_FILTERS, shape_of
from colo_scheduler.pool import CPU_BITS, RANK_BITS, pool_of
from colo_scheduler.request import RequestClass
from colo_scheduler.scores import SCORERS, FitRows, OneFit, Scorer, Weights
from colo_scheduler.zones import IntArray, costs_of_rows

__all__ = [
    "CPU_MAX",
    "ORDER",
    "RANK_MAX",
    "Filtered",
    "Scoring",
    "counts_of",
    "run_filters",
    "score_rows",
    "scoring_of",
    "sort_key",
    "usable",
]

_BEFORE_AVOID: Final = 2

ORDER: Final = (
    *(f.reason for f in FACT_FILTERS[:_BEFORE_AVOID]),
    Reason.NODE_EXCLUDED,
    Reason.QOS_NOT_ADMITTED,
    *(f.reason for f in FACT_FILTERS[_BEFORE_AVOID:]),
    *(f.reason for f in FREE_FILTERS),
)
"""The precedence of the reasons: a node is counted under the first that holds."""

CPU_MAX: Final = (1 << CPU_BITS) - 1
RANK_MAX: Final = (1 << RANK_BITS) - 1


# ---- filters


class Filtered(NamedTuple):
    """The rows that passed all filters, ascending, and for each reason the rows it refused, in the order of precedence."""

    rows: IntArray
    refused: tuple[tuple[Reason, IntArray], ...]

    @property
    def counts(self) -> tuple[ReasonCount, ...]:
        """How many nodes each reason refused; reasons that refused none are left out."""
        return tuple(ReasonCount(reason=reason, nodes=int(rows.size)) for reason, rows in self.refused)


def run_filters(view: View, request: RequestClass) -> Filtered:
    """Ask every filter in order; a node is refused by the first that says no. A pass over all nodes: for rejections."""
    refused: dict[Reason, IntArray] = {}
    codes = view.shapes.of(shape_of(request), view.facts, view.count).codes
    excluded = np.array(sorted(row for row in _avoided(view, request) if codes[row] >= _BEFORE_AVOID), dtype=np.int64)
    for number, fact_filter in enumerate(FACT_FILTERS):
        rows = np.flatnonzero(codes == number)
        refused[fact_filter.reason] = rows if number < _BEFORE_AVOID else np.setdiff1d(rows, excluded)
    refused[Reason.NODE_EXCLUDED] = excluded
    remaining = np.setdiff1d(np.flatnonzero(codes == len(FACT_FILTERS)), excluded)
    if not request.is_admitted:
        late = [refused.pop(f.reason) for f in FACT_FILTERS[_BEFORE_AVOID:]]
        refused[Reason.QOS_NOT_ADMITTED] = np.sort(np.concatenate([remaining, *late]))
        remaining = remaining[:0]
    pool = view.pool(pool_of(request.band))
    for free_filter in FREE_FILTERS:
        passing = free_filter.passes(pool, remaining, request)
        refused[free_filter.reason] = remaining[~passing]
        remaining = remaining[passing]
    found = tuple((reason, refused[reason]) for reason in ORDER if reason in refused and refused[reason].size)
    return Filtered(remaining, found)


def usable(view: View, request: RequestClass) -> tuple[BoolArray, list[int]]:
    """The rows that facts and avoidance leave, and how many rows each reason of ORDER refused so far. The array is read only."""
    verdicts = view.shapes.of(shape_of(request), view.facts, view.count)
    facts = list(verdicts.counts)
    passing = verdicts.passing
    avoided = [row for row in _avoided(view, request) if verdicts.codes[row] >= _BEFORE_AVOID]
    if avoided:
        passing = passing.copy()
        for row in avoided:
            facts[verdicts.codes[row]] -= 1
            passing[row] = False
    return passing, [*facts[:_BEFORE_AVOID], len(avoided), 0, *facts[_BEFORE_AVOID:-1]]


def counts_of(numbers: list[int]) -> tuple[ReasonCount, ...]:
    """How many nodes each reason of ORDER refused; reasons that refused none are left out."""
    return tuple(ReasonCount(reason=r, nodes=n) for r, n in zip(ORDER, numbers, strict=True) if n)


def _avoided(view: View, request: RequestClass) -> set[int]:
    """The rows of the nodes that refused or evicted this replica a short while ago."""
    return {view.rows[name] for name, until_ms in request.avoid if until_ms > view.now_ms and name in view.rows}


# ---- scores


class Scoring(NamedTuple):
    """The scorers that count, each with its weight, and the sum of the weights."""

    weighed: tuple[tuple[int, Scorer], ...]
    total: int

    def of_one(self, fit: OneFit) -> int:
        """The weighted sum of the scores, not yet divided: nodes are compared by it, so that rounding makes no ties."""
        return sum(weight * scorer.of_one(fit) for weight, scorer in self.weighed)

    def of_rows(self, fits: FitRows) -> IntArray:
        """`of_one` of every row."""
        sums = np.zeros(fits.cost.size, dtype=np.int64)
        for weight, scorer in self.weighed:
            sums += weight * scorer.of_rows(fits)
        return sums

    def above(self, fits: FitRows) -> IntArray:
        """At least `of_rows`, for rows that hold the request."""
        # Whole numbers below 2^24 are exact in 32-bit floats.
        sums = np.zeros(fits.cost.size, dtype=np.float32)
        for weight, scorer in self.weighed:
            sums += np.float32(weight) * scorer.above(fits)
        return sums.astype(np.int64)

    def told(self, node: str, fit: OneFit) -> NodeScore:
        """One row of the score matrix as it is told."""
        scores = {scorer.name: scorer.of_one(fit) for _, scorer in self.weighed}
        return NodeScore(node=node, total=self.of_one(fit) // self.total, scores=scores)


@lru_cache(maxsize=16)
def scoring_of(weights: Weights) -> Scoring:
    """The scorers of these weights."""
    weighed = tuple((int(getattr(weights, s.weight)), s) for s in SCORERS if getattr(weights, s.weight) > 0)
    return Scoring(weighed, sum(weight for weight, _ in weighed))


def sort_key(weight: int, left_cpu: int, rank: int) -> int:
    """One integer to compare nodes by, higher is better: weighted sum, then free CPU left, then the earlier name.

    `left_cpu` is cut at 2^27 - 1 milli-CPU; `rank` is below 2^20. Unequal for unequal ranks, so there are no ties.
    """
    return (weight << (CPU_BITS + RANK_BITS)) | (min(left_cpu, CPU_MAX) << RANK_BITS) | (RANK_MAX - rank)


def score_rows(view: View, request: RequestClass, rows: IntArray, scoring: Scoring) -> IntArray:
    """The `sort_key` of each of these rows, all of which passed the filters."""
    pool = view.pool(pool_of(request.band))
    costs = costs_of_rows(
        request.cpu_mcpu, request.memory_bytes, pool.free_cpu[rows], pool.free_memory[rows], view.facts.socket[rows]
    )
    fits = FitRows(pool, rows, request, costs)
    tie = (np.minimum(fits.left_cpu, CPU_MAX) << RANK_BITS) | (RANK_MAX - view.facts.rank[rows])
    keys: IntArray = (scoring.of_rows(fits) << (CPU_BITS + RANK_BITS)) | tie
    return keys
