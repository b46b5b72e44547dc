"""The order of filters and the weighing of scores: what makes a node the best one for a request."""

from typing import Final, NamedTuple

import numpy as np

from colo_common.events.placement import NodeScore, ReasonCount
from colo_common.model.reasons import Reason
from colo_scheduler import filters, scores
from colo_scheduler.cluster import BoolArray, View
from colo_scheduler.filters import Filter
from colo_scheduler.request import RequestClass
from colo_scheduler.scores import Weights
from colo_scheduler.zones import IntArray, costs_of_rows

__all__ = ["FILTERS", "Filtered", "run_filters", "score_rows", "scores_of", "sort_key", "weighted"]

FILTERS: Final = (
    Filter(Reason.TOPOLOGY_UNKNOWN, filters.is_known),
    Filter(Reason.NODE_NOT_FRESH, filters.is_fresh),
    Filter(Reason.NODE_EXCLUDED, filters.is_not_avoided),
    Filter(Reason.QOS_NOT_ADMITTED, filters.is_admitted),
    Filter(Reason.RUNTIME_ABSENT, filters.has_runtime),
    Filter(Reason.LEDGER_CONFLICT, filters.is_settled),
    Filter(Reason.BATCH_CPU_SHORT, filters.has_batch_cpu),
    Filter(Reason.BATCH_MEMORY_SHORT, filters.has_batch_memory),
    Filter(Reason.ZONE_FIT_SHORT, filters.has_zones),
)

_RANK_BITS: Final = 20
_CPU_BITS: Final = 27
_CPU_MAX: Final = (1 << _CPU_BITS) - 1


class Filtered(NamedTuple):
    """The rows that passed all filters, ascending, and for each reason the rows it refused, in the order of precedence."""

    rows: IntArray
    refused: tuple[tuple[Reason, IntArray], ...]

    @property
    def counts(self) -> tuple[ReasonCount, ...]:
        """How many nodes each reason refused; reasons that refused none are left out."""
        return tuple(ReasonCount(reason=reason, nodes=int(rows.size)) for reason, rows in self.refused)


def run_filters(view: View, request: RequestClass) -> Filtered:
    """Ask every filter in order; a node is refused by the first that says no."""
    remaining: BoolArray = np.ones(view.count, dtype=np.bool_)
    refused: list[tuple[Reason, IntArray]] = []
    for reason, passes in FILTERS:
        passing = passes(view, request)
        rows = np.flatnonzero(remaining & ~passing)
        if rows.size:
            refused.append((reason, rows))
            remaining = remaining & passing
    return Filtered(np.flatnonzero(remaining), tuple(refused))


def weighted(zone_cost: int, free_pct: int, weights: Weights) -> int:
    """The weighted sum of the scores, not yet divided: nodes are compared by it, so that rounding makes no ties."""
    return weights.fewest_zones * scores.fewest_zones(zone_cost) + weights.most_free * free_pct


def sort_key(weight: int, left_cpu: int, rank: int) -> int:
    """One integer to compare nodes by, higher is better: weighted sum, then free CPU left, then the earlier name.

    `left_cpu` is cut at 2^27 - 1 milli-CPU; `rank` is below 2^20. Unequal for unequal ranks, so there are no ties.
    """
    return (
        (weight << (_CPU_BITS + _RANK_BITS)) | (min(left_cpu, _CPU_MAX) << _RANK_BITS) | ((1 << _RANK_BITS) - 1 - rank)
    )


def score_rows(view: View, request: RequestClass, rows: IntArray, weights: Weights) -> IntArray:
    """The `sort_key` of each of these rows, all of which passed the filters."""
    costs = costs_of_rows(
        request.cpu_mcpu, request.memory_bytes, view.free_cpu[rows], view.free_memory[rows], view.socket[rows]
    )
    left_cpu = view.node_free_cpu[rows] - request.cpu_mcpu
    left_memory = view.node_free_memory[rows] - request.memory_bytes
    free_pct = scores.most_free_of_rows(
        left_cpu, left_memory, view.allocatable_cpu[rows], view.allocatable_memory[rows]
    )
    weight = weights.fewest_zones * (100 // np.maximum(costs, 1)) + weights.most_free * free_pct
    tie = (np.minimum(left_cpu, _CPU_MAX) << _RANK_BITS) | ((1 << _RANK_BITS) - 1 - view.rank[rows])
    keys: IntArray = (weight << (_CPU_BITS + _RANK_BITS)) | tie
    return keys


def scores_of(node: str, zone_cost: int, free_pct: int, weights: Weights) -> NodeScore:
    """One row of the score matrix as it is told."""
    return NodeScore(
        node=node,
        total=scores.total(weighted(zone_cost, free_pct, weights), weights),
        scores={scores.FEWEST_ZONES: scores.fewest_zones(zone_cost), scores.MOST_FREE: free_pct},
    )
