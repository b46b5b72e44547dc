"""The scorers that read node signals beside free capacity; each counts only for requests where it tells nodes apart.

A scorer that gives all nodes the same score would change no order, so it is left out: for a request without a spread preference,
in a cluster without soft taints, evictions or load reports, no such scorer runs. Replicas placed in the same turn count as held,
and no score rises by them. Forms as in `scores.ScorerForms`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from colo_scheduler.cluster.signals import kind_of
from colo_scheduler.cluster.snapshot import View
from colo_scheduler.numa.zones import IntArray
from colo_scheduler.placement.scores import FitRows, OneFit, ScorerForms
from colo_scheduler.requests.request_class import RequestClass
from colo_scheduler.scorers.placement import soft_taints, spread
from colo_scheduler.scorers.weights import Scorer

__all__ = ["APPRAISERS", "ContextScorers"]


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
