"""The best node for a request for more than amounts: the exact fit tries nodes in the order of their scores until one takes it.

The filters of all nodes at once (`verdicts.py`) come first, so that few exact fits fail. A node that rejected the request stays
rejected until an attempt leaves it, so equal replicas do not try it again in one turn.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from colo_common.events.placement import ReasonCount
from colo_common.model.reasons import Reason
from colo_scheduler.cluster.pool import pool_of
from colo_scheduler.cluster.snapshot import View
from colo_scheduler.placement.candidates import Candidates, ranked
from colo_scheduler.placement.fit import NodeFit, Rejection, Site, fit_node
from colo_scheduler.placement.fit_rejections import FitRejections
from colo_scheduler.placement.score_history import SearchSnapshot, search_snapshot
from colo_scheduler.placement.scoring import scoring_for
from colo_scheduler.requests.request_class import RequestClass
from colo_scheduler.scorers.weights import ScorerWeights

__all__ = ["SEARCH_COST", "TRIES_MOST", "Found", "Search", "fit_node_exactly", "needs_search"]

TRIES_MOST: Final = 1_000
"""The most nodes that the exact fit tries for one replica, the best ones; the others are reported as not tried."""

SEARCH_COST: Final = 10
"""One replica that needs the exact fit counts as so many other replicas in a batch."""


class Found(NamedTuple):
    """A node that takes the request, and its fit; `look`: the scores of the node and of the best other nodes at that moment."""

    row: int
    fit: NodeFit
    look: SearchSnapshot


def needs_search(view: View, request: RequestClass) -> bool:
    """Whether nodes have to be fitted exactly, one by one: because of the request, or because of a node's rules for online work."""
    return request.is_detailed or (request.is_prod and view.inventory_index.strict > 0)


def fit_node_exactly(view: View, row: int, request: RequestClass) -> NodeFit | Rejection:
    """Whether this node, which passed all filters, takes the request."""
    inventory = view.inventory_index.of(row)
    node = view.nodes[row]
    if inventory is None:
        return Rejection(Reason.TOPOLOGY_UNKNOWN)
    return fit_node(Site(view.pools[pool_of(request.band)].rows[row], node.zone_ids, node.sockets, inventory), request)


class Search:
    """One turn of a request class. `refused` are the rejections of the nodes that did not take it, as of their exact fit.

    `counts`: how many nodes each reason refused before the first choice. `rows`: how many of the best nodes are reported of each
    choice. `filtered` is called once, when all nodes were filtered and the first are about to be scored.
    """

    def __init__(
        self, view: View, request: RequestClass, weights: ScorerWeights, rows: int, filtered: Callable[[], None]
    ) -> None:
        self._view = view
        self._request = request
        self._weights = weights
        self._rows = rows
        self._filtered = filtered
        self._scoring = scoring_for(view, request, weights)
        self.counts: tuple[ReasonCount, ...] | None = None
        self.refused = view.derived.of(FitRejections).known(request, view.generation_of)

    def next(self) -> Found | None:
        """The best node now, None when none of the nodes that are tried takes the request. The caller takes its capacity."""
        view, request = self._view, self._request
        if self.counts is not None and request.place.devices:
            # The previous choice took devices, and nodes are scored by their free devices.
            self._scoring = scoring_for(view, request, self._weights)
        candidates = Candidates(view, request, self._scoring, tuple(self.refused))
        if self.counts is None:
            self.counts = candidates.counts
            self._filtered()
        for tries, candidate in enumerate(ranked(candidates)):
            if tries == TRIES_MOST:
                return None
            found = fit_node_exactly(view, candidate.row, request)
            if isinstance(found, NodeFit):
                return Found(candidate.row, found, search_snapshot(candidates, self._rows))
            self.refused[candidate.row] = found
            capacity_generation = view.generation_of(candidate.row)
            view.derived.of(FitRejections).note(request, candidate.row, capacity_generation, found)
        return None
