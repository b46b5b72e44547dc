"""The weighted sum of scores: the scorers that count for a request, and the one number by which nodes are compared.

Each scorer gives 0..100 from the node's own numbers, rounded down. A score depends on nothing but its node, so placing on one node
changes no other score. Each scorer exists for one node, for many rows at once with the same numbers, and as a bound: cheap for all
rows and never below the score.

A scorer that reads node signals beside free capacity counts only for requests where it tells nodes apart. A scorer that gives all
nodes the same score would change no order, so it is left out: for a request without a spread preference, in a cluster without soft
taints, evictions or load reports, no such scorer runs. Replicas placed in the same turn count as held, and no score rises by them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Final, NamedTuple, Protocol

import numpy as np

from colo_common.events.placement import NodeScore
from colo_scheduler.cluster.cluster import View
from colo_scheduler.cluster.pool import (
    CPU_BITS,
    CPU_MAX,
    RANK_BITS,
    FloatArray,
    Pool,
    pool_of,
    rank_key,
)
from colo_scheduler.cluster.signals import kind_of
from colo_scheduler.numa.zones import IntArray, costs_of_rows
from colo_scheduler.policy import NEVER_RISING, SchedulerPolicy, Scorer, ScorerWeights
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
from colo_scheduler.scorers.placement import fewest_zones_of_rows, soft_taints, spread

__all__ = [
    "FitRows",
    "Scoring",
    "Scorings",
    "Seen",
    "most_free",
    "most_free_of_rows",
    "score_rows",
    "scoring_for",
    "scoring_of",
    "scorings_of",
    "sort_keys",
]

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
    """A node at one moment, by name: an immutable OneFit. `rank_key`: see `pool.rank_key`."""

    node: str
    row: int
    taken: int
    cost: int
    left_cpu: int
    left_memory: int
    allocatable_cpu: int
    allocatable_memory: int
    rank_key: int


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

    The scorers of node signals are in `APPRAISERS`.
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


class ContextScorers(NamedTuple):
    """Whether the scorer tells nodes apart for a request, and the scorer's forms if it does."""

    tells: Callable[[View, RequestClass], bool]
    forms: Callable[[View, RequestClass], ScorerForms]


def _kind(request: RequestClass) -> str:
    return kind_of(request.band, request.qos, request.cpu_mcpu, request.memory_bytes)


def _fixed(scores: IntArray) -> ScorerForms:
    """Forms of scores that no placement changes."""
    return ScorerForms(lambda fit: int(scores[fit.row]), lambda fits: scores[fits.rows], kept=partial(_kept, scores))


def _kept(scores: IntArray, rows: Sequence[int]) -> Callable[[OneFit], int]:
    by_row = dict(zip(rows, scores[rows].tolist(), strict=True))
    return lambda fit: by_row[fit.row]


def _by_taken(by_row: Mapping[int, Callable[[int], int]]) -> Callable[[OneFit], int]:
    """The score of a row by the number of equal replicas placed on it."""
    return lambda fit: by_row[fit.row](fit.taken)


def _spread(view: View, request: RequestClass) -> ScorerForms:
    job = request.job
    view.signals.count_jobs(view.nodes)
    counts = view.signals.jobs

    def of_one(fit: OneFit) -> int:
        return spread(counts.on(job, fit.row) + fit.taken)

    def of_rows(fits: FitRows) -> IntArray:
        return spread(counts.column(job, view.count)[fits.rows])

    def kept(rows: Sequence[int]) -> Callable[[OneFit], int]:
        held = {row: counts.on(job, row) for row in rows}
        return lambda fit: spread(held[fit.row] + fit.taken)

    return ScorerForms(of_one, of_rows, kept=kept)


def _soft_taints(view: View, request: RequestClass) -> ScorerForms:
    return _fixed(soft_taints(view.facts.taints.soft(request.place.tolerations, view.count)))


def _evicted(view: View, request: RequestClass) -> bool:
    evictions = view.signals.evictions
    return not evictions.is_empty and evictions.is_remembered(_kind(request), view.now_ms)


def _recent_eviction(view: View, request: RequestClass) -> ScorerForms:
    return _fixed(view.signals.evictions.scores(_kind(request), view.count, view.now_ms))


def _load_aware(view: View, request: RequestClass) -> ScorerForms:
    loads = view.signals.loads

    def of_one(fit: OneFit) -> int:
        return loads.score(fit.row, request, view.now_ms, fit.taken)

    def of_rows(fits: FitRows) -> IntArray:
        return loads.scores(request, view.count, view.now_ms)[fits.rows]

    def kept(rows: Sequence[int]) -> Callable[[OneFit], int]:
        return _by_taken(loads.kept(rows, request, view.now_ms))

    return ScorerForms(of_one, of_rows, kept=kept)


def _dynamic_load(view: View, request: RequestClass) -> ScorerForms:
    dynamic = view.signals.dynamic

    def of_one(fit: OneFit) -> int:
        return dynamic.score(fit.row, view.now_ms, fit.taken)

    def of_rows(fits: FitRows) -> IntArray:
        return dynamic.scores(view.count, view.now_ms)[fits.rows]

    def kept(rows: Sequence[int]) -> Callable[[OneFit], int]:
        return _by_taken({row: dynamic.kept(row, view.now_ms) for row in rows})

    return ScorerForms(of_one, of_rows, kept=kept)


def _wants_devices(view: View, request: RequestClass) -> bool:
    return bool(request.place.devices)


def _devices(view: View, request: RequestClass, *, packs: bool) -> ScorerForms:
    # Device requests are decided one replica at a time, so no replica is placed that the scores do not see.
    return _fixed(view.inventory_index.device_scores(request.place.devices, view.count, packs=packs))


APPRAISERS: Final[dict[Scorer, ContextScorers]] = {
    Scorer.SPREAD: ContextScorers(lambda view, request: bool(request.job), _spread),
    Scorer.RECENT_EVICTION: ContextScorers(_evicted, _recent_eviction),
    Scorer.SOFT_TAINTS: ContextScorers(lambda view, request: view.facts.taints.has_soft, _soft_taints),
    Scorer.LOAD_AWARE: ContextScorers(lambda view, request: view.signals.loads.is_received, _load_aware),
    Scorer.DEVICES_LEAST_ALLOCATED: ContextScorers(_wants_devices, partial(_devices, packs=False)),
    Scorer.DEVICES_MOST_ALLOCATED: ContextScorers(_wants_devices, partial(_devices, packs=True)),
    Scorer.DYNAMIC_LOAD: ContextScorers(lambda view, request: view.signals.dynamic.is_received, _dynamic_load),
}


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


def scoring_of(weights: ScorerWeights) -> Scoring:
    """The scorers of free capacity: for requests and clusters in which node signals tell no nodes apart."""
    active, forms = weights.active, scorers_of(weights.resources)
    room = _scoring(tuple((weight, scorer, forms[scorer]) for scorer, weight in active if scorer in forms))
    return room._replace(
        sibling=tuple((weight, scorer, APPRAISERS[scorer]) for scorer, weight in active if scorer in APPRAISERS),
        is_of_room=True,
    )


class Scorings(NamedTuple):
    """The scorers of free capacity as a policy weighs them: for prod work, and for work below prod."""

    prod: Scoring
    below_prod: Scoring

    def of(self, request: RequestClass) -> Scoring:
        """The scorers for a request class."""
        return self.prod if request.is_prod else self.below_prod


def scorings_of(policy: SchedulerPolicy) -> Scorings:
    """The scorers of a policy, made once for all its decisions."""
    return Scorings(scoring_of(policy.prod_weights), scoring_of(policy.weights))


def scoring_for(view: View, request: RequestClass, room: Scoring) -> Scoring:
    """The scorers that count for a request now. Equals `room` (`scoring_of`) where node signals tell no nodes apart."""
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
    left = np.minimum(left_cpu, CPU_MAX)
    keys: IntArray = (((weighted << CPU_BITS) | left) << RANK_BITS) + rank_key(rank)
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
