"""The scorers that look beside room: they see a node's merits for one request, and count only where these tell nodes apart.

A scorer that gives all nodes the same would change no order, so it is left out: of a request that need not be spread, in a cluster
without soft taints, evictions or reports of load, nobody looks at any of this. What is placed in the same turn counts as if it were
held, and no score rises by it. Forms as in `scores.ScorerForms`.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from colo_scheduler.cluster import View
from colo_scheduler.merits import kind_of
from colo_scheduler.request import RequestClass
from colo_scheduler.scorers.placement import soft_taints_of_rows, spread, spread_of_rows
from colo_scheduler.scorers.weights import Scorer, ScorerWeights
from colo_scheduler.scores import FitRows, OneFit, ScorerForms
from colo_scheduler.zones import IntArray

__all__ = ["APPRAISERS", "appraisers"]


class _Site(NamedTuple):
    """For whom nodes are looked at."""

    view: View
    request: RequestClass

    @property
    def kind(self) -> str:
        """The name of such work among evictions."""
        request = self.request
        return kind_of(request.band, request.qos, request.cpu_mcpu, request.memory_bytes)


class _Appraiser(NamedTuple):
    """Whether the scorer tells nodes apart, and its forms then."""

    tells: Callable[[_Site], bool]
    forms: Callable[[_Site], ScorerForms]


def _fixed(scores: IntArray) -> ScorerForms:
    """Forms of scores that no placement changes."""
    return ScorerForms(lambda fit: int(scores[fit.row]), lambda fits: scores[fits.rows])


def _spread(site: _Site) -> ScorerForms:
    view, job = site.view, site.request.job
    view.merits.count_jobs(view.nodes)
    counts = view.merits.jobs

    def of_one(fit: OneFit) -> int:
        return spread(counts.on(job, fit.row) + fit.taken)

    def of_rows(fits: FitRows) -> IntArray:
        return spread_of_rows(counts.column(job, view.count)[fits.rows])

    return ScorerForms(of_one, of_rows)


def _soft_taints(site: _Site) -> ScorerForms:
    view, request = site.view, site.request
    return _fixed(soft_taints_of_rows(view.facts.taints.soft(request.place.tolerations, view.count)))


def _evicted(site: _Site) -> bool:
    return site.view.merits.evictions.is_remembered(site.kind, site.view.now_ms)


def _recent_eviction(site: _Site) -> ScorerForms:
    view = site.view
    return _fixed(view.merits.evictions.scores(site.kind, view.count, view.now_ms))


def _load_aware(site: _Site) -> ScorerForms:
    view, request = site.view, site.request
    loads = view.merits.loads

    def of_one(fit: OneFit) -> int:
        return loads.score(fit.row, request, view.now_ms, fit.taken)

    def of_rows(fits: FitRows) -> IntArray:
        return loads.scores(request, view.count, view.now_ms)[fits.rows]

    return ScorerForms(of_one, of_rows)


APPRAISERS: Final[dict[Scorer, _Appraiser]] = {
    Scorer.SPREAD: _Appraiser(lambda site: bool(site.request.job), _spread),
    Scorer.RECENT_EVICTION: _Appraiser(_evicted, _recent_eviction),
    Scorer.SOFT_TAINTS: _Appraiser(lambda site: site.view.facts.taints.has_soft, _soft_taints),
    Scorer.LOAD_AWARE: _Appraiser(lambda site: site.view.merits.loads.is_heard, _load_aware),
}


def appraisers(view: View, request: RequestClass, weights: ScorerWeights) -> Iterator[tuple[int, Scorer, ScorerForms]]:
    """The scorers that count and tell nodes apart, with their weights, in the order of `Scorer`."""
    site = _Site(view, request)
    for scorer, weight in weights.active:
        appraiser = APPRAISERS.get(scorer)
        if appraiser is not None and appraiser.tells(site):
            yield weight, scorer, appraiser.forms(site)

