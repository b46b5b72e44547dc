"""The weighted sum of scores: the scorers that count for a request, and the one number by which nodes are compared."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from colo_common.events.placement import NodeScore
from colo_scheduler.cluster.pool import CPU_BITS, CPU_MAX, RANK_BITS, RANK_MAX, FloatArray, pool_of
from colo_scheduler.cluster.snapshot import View
from colo_scheduler.numa.zones import IntArray, costs_of_rows
from colo_scheduler.placement.context_scorers import APPRAISERS, ContextScorers
from colo_scheduler.placement.scores import FitRows, OneFit, ScorerForms, scorers_of
from colo_scheduler.requests.request_class import RequestClass
from colo_scheduler.scorers.weights import NEVER_RISING, Scorer, ScorerWeights

__all__ = ["Scoring", "score_rows", "scoring_for", "scoring_of", "sort_keys"]

_Weighed = tuple[int, Scorer, ScorerForms]


class Scoring(NamedTuple):
    """The scorers that count, each with its weight; the sum of the weights; and again the forms for one node, with their names.

    `may_rise`: a node may score higher after a replica was placed on it. `sibling`: the scorers of node signals that tell nodes
    apart. `is_of_room`: only scorers of free capacity count, so a node's own numbers give all of its scores.
    """

    weighed: tuple[_Weighed, ...]
    total: int
    ones: tuple[tuple[int, Callable[[OneFit], int]], ...]
    names: tuple[str, ...]
    may_rise: bool
    sibling: tuple[tuple[int, Scorer, ContextScorers], ...] = ()
    is_of_room: bool = False

    def of_one(self, fit: OneFit) -> int:
        """The weighted sum of the scores, not divided: nodes are compared by it, so that rounding makes no ties."""
        total = 0
        for weight, score in self.ones:
            total += weight * score(fit)
        return total

    def of_rows(self, fits: FitRows) -> IntArray:
        """`of_one` of every row."""
        total: IntArray = np.zeros(fits.left_cpu.shape, dtype=np.int64)
        for weight, _, forms in self.weighed:
            total = total + weight * forms.of_rows(fits)
        return total

    def above(self, fits: FitRows, zone_score: FloatArray | np.float32) -> IntArray:
        """At least `of_rows`, for rows that hold the request. `zone_score`: at least their score for few zones, or one for all."""
        # Whole numbers below 2^24 are exact in 32-bit floats, and the largest sum of weights and scores is below.
        total: FloatArray | np.float32 = np.float32(0)
        for weight, scorer, forms in self.weighed:
            bound: FloatArray | np.float32
            if scorer is Scorer.FEWEST_ZONES:
                bound = zone_score
            elif forms.above is not None:
                bound = forms.above(fits)
            else:
                bound = forms.of_rows(fits).astype(np.float32)
            part = bound if weight == 1 else bound * np.float32(weight)
            total = total + part if isinstance(total, np.ndarray) or total else part
        if not isinstance(total, np.ndarray):
            return np.full(fits.left_cpu.shape, total, dtype=np.int64)
        return total.astype(np.int64)

    def kept(self, rows: Sequence[int]) -> "Scoring":
        """The same scorers for these rows later, when the cluster may have changed: for `of_one` and `delivered`."""
        if self.is_of_room:
            return self
        ones = [(weight, forms.of_one if forms.kept is None else forms.kept(rows)) for weight, _, forms in self.weighed]
        return Scoring((), self.total, tuple(ones), self.names, self.may_rise, is_of_room=True)

    def delivered(self, node: str, fit: OneFit) -> NodeScore:
        """One row of the score matrix as it is published."""
        scores = {name: score(fit) for name, (_, score) in zip(self.names, self.ones, strict=True)}
        weighted = sum([weight * score for (weight, _), score in zip(self.ones, scores.values(), strict=True)])
        return NodeScore(node=node, total=weighted // self.total if self.total else 0, scores=scores)


def _scoring(weighed: tuple[_Weighed, ...]) -> Scoring:
    ones = tuple((weight, forms.of_one) for weight, _, forms in weighed)
    names = tuple(scorer.value for _, scorer, _ in weighed)
    may_rise = any(scorer not in NEVER_RISING for _, scorer, _ in weighed)
    return Scoring(weighed, sum(weight for weight, _, _ in weighed), ones, names, may_rise)


@lru_cache(maxsize=16)
def scoring_of(weights: ScorerWeights) -> Scoring:
    """The scorers of free capacity: for requests and clusters in which node signals tell no nodes apart."""
    active, forms = weights.active, scorers_of(weights.resources)
    room = _scoring(tuple((weight, scorer, forms[scorer]) for scorer, weight in active if scorer in forms))
    return room._replace(
        sibling=tuple((weight, scorer, APPRAISERS[scorer]) for scorer, weight in active if scorer in APPRAISERS),
        is_of_room=True,
    )


def scoring_for(view: View, request: RequestClass, weights: ScorerWeights) -> Scoring:
    """The scorers that count for a request now. Equals `scoring_of` where node signals tell no nodes apart."""
    room = scoring_of(weights)
    if not (view.signals.is_published or request.job or view.facts.taints.has_soft or request.place.devices):
        return room
    sibling = [each for each in room.sibling if each[2].tells(view, request)]
    if not sibling:
        return room
    return _scoring((*room.weighed, *((weight, scorer, each.forms(view, request)) for weight, scorer, each in sibling)))


def sort_keys(weighted: IntArray, left_cpu: IntArray, rank: IntArray) -> IntArray:
    """One integer a node to compare it by, higher is better: weighted sum, then free CPU left, then the earlier name.

    `left_cpu` is cut at 2^24 - 1 milli-CPU; `rank` is below 2^17. Unequal for unequal ranks, so there are no ties.
    """
    keys: IntArray = (
        (weighted << (CPU_BITS + RANK_BITS)) | (np.minimum(left_cpu, CPU_MAX) << RANK_BITS) | (RANK_MAX - rank)
    )
    return keys


def score_rows(view: View, request: RequestClass, rows: IntArray, scoring: Scoring) -> IntArray:
    """The key (`sort_keys`) of each of these rows, all of which passed the filters."""
    pool = view.pool(pool_of(request.band))

    def costs() -> IntArray:
        sockets = view.facts.socket[rows]
        free_cpu, free_memory = pool.free_cpu[rows], pool.free_memory[rows]
        return costs_of_rows(request.cpu_mcpu, request.memory_bytes, free_cpu, free_memory, sockets)

    fits = FitRows(pool, rows, request, costs)
    return sort_keys(scoring.of_rows(fits), fits.left_cpu, view.facts.rank[rows])
