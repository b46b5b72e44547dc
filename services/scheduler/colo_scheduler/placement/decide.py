"""The only entry point of decisions: chooses nodes for equal replicas in a view, for the core and for plans alike.

Amounts are decided together: every node is filtered once, then one replica after the other takes the best node. A score depends on
its own node only, so after each choice only the chosen node is scored again, and the result equals scoring all nodes again for
every replica. A request for more than amounts is searched for one replica after the other (`Search`): the exact fit tries nodes in
the order of their scores until one takes it.

The filters of all nodes at once (`filters.py`) come first, so that few exact fits fail. A node that rejected the request stays
rejected until an attempt leaves it, so equal replicas do not try it again in one turn. Rejections are kept from decision to
decision as well, each until its node can hold more: a class that no node takes is decided again whenever any node can hold more;
the nodes that did not change are not tried again.

Few score matrices are read, so nothing is computed of them at the decision (`ScoreHistory`). In one pass only the chosen nodes
change, so these are kept as the pass left them, with the best of the other nodes that it scored: on request the matrix of each
choice, as it was at that moment, is computed by replaying the choices. A node that the pass did not score is below each chosen node
and below its own bound, so every node above all of these keys is known to be among the best, and is reported. Of replicas that were
searched for one by one the best nodes are kept for each.
"""

from bisect import insort
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from colo_common.events.job import PlacementRequest
from colo_common.events.placement import NodeScore, ReasonCount
from colo_common.model.placement import ZoneShare
from colo_common.model.reasons import Reason
from colo_scheduler.cluster.cluster import View
from colo_scheduler.cluster.inventory_index import UNLIMITED
from colo_scheduler.placement.candidates import Candidate, Candidates, ClassContext, ranked
from colo_scheduler.placement.choice import Choice
from colo_scheduler.placement.filters import ORDER, reason_for
from colo_scheduler.placement.fit import TRIES_MOST, NodeFit, Rejection, fit_node_exactly
from colo_scheduler.placement.scoring import Scoring, Scorings, Seen, scoring_for
from colo_scheduler.requests.queue import RequestQueue
from colo_scheduler.requests.request_class import RequestClass

__all__ = [
    "ClassDecision",
    "ScoreHistory",
    "ScoreSnapshot",
    "SEARCH_COST",
    "Stages",
    "Unwatched",
    "decide",
    "decide_class",
    "turns",
]

_CLASSES_MOST: Final = 64


class ScoreSnapshot(NamedTuple):
    """The cluster as one replica found it: the nodes that each reason refused, and the best nodes, the chosen one first.

    No node outside `scores` is better than a node in it; they may be fewer than the most that are reported. `fitting`: how many
    nodes could take the replica; None where the exact fit did not try all nodes. The rows are then those that pass the filters,
    without those that the exact fit refused.
    """

    counts: tuple[ReasonCount, ...]
    scores: tuple[NodeScore, ...]
    fitting: int | None = None


class ScoreHistory(Protocol):
    """The history of the choices of a turn."""

    def snapshots(self) -> Iterator[ScoreSnapshot]:
        """A snapshot at each choice, in order; each is computed on demand."""
        ...


class SearchSnapshot(NamedTuple):
    """A choice found by search: how many nodes each reason refused, the best nodes with the chosen one first, and their scorers."""

    counts: tuple[ReasonCount, ...]
    seen: tuple[Seen, ...]
    scoring: Scoring


def search_snapshot(candidates: Candidates, rows: int) -> SearchSnapshot:
    """The snapshot of candidates of which the best takes the request; at most `rows` of them are reported."""
    seen = tuple([candidate.seen() for candidate in candidates.top(rows)])
    return SearchSnapshot(candidates.counts, seen, candidates.context.scoring.kept([each.row for each in seen]))


class SearchHistory(NamedTuple):
    """Choices that were searched for one by one."""

    looks: tuple[SearchSnapshot, ...]

    def snapshots(self) -> Iterator[ScoreSnapshot]:
        """A snapshot at each choice, in order."""
        for counts, seen, scoring in self.looks:
            yield ScoreSnapshot(counts, tuple([scoring.delivered(each.node, each) for each in seen]))


class JointHistory(NamedTuple):
    """Choices of one pass: `chosen` are the nodes as the pass left them, `others` the best nodes without a new replica.

    `nodes`: how many were filtered, `counts`: how many each reason refused before the first choice. `admits`: how many replicas a
    chosen node's own rules admitted; no entry where no rule limits them. `above`: an upper bound of the keys of all other nodes.
    `rows`: the most rows to report.
    """

    context: ClassContext
    request: RequestClass
    nodes: int
    counts: tuple[ReasonCount, ...]
    choices: Sequence[Choice]
    chosen: Sequence[Candidate]
    others: tuple[Seen, ...]
    admits: Mapping[int, int]
    above: int
    rows: int

    def snapshots(self) -> Iterator[ScoreSnapshot]:
        """A snapshot at each choice, in order."""
        context, scoring = self.context, self.context.scoring
        taken: dict[int, list[tuple[ZoneShare, ...]]] = {}
        for choice in self.choices:
            taken.setdefault(choice.row, []).append(choice.shares)
        chosen = {candidate.row: candidate.before(context, taken[candidate.row]) for candidate in self.chosen}
        delivered = {each.row: scoring.delivered(each.node, each) for each in self.others}
        order = sorted([(-context.key_of(each), each.row) for each in self.others])
        full: Counter[Reason] = Counter()
        least = self.above

        def enter(candidate: Candidate) -> None:
            reason = self._refusal(candidate)
            if reason is not None:
                full[reason] += 1
                return
            insort(order, (-candidate.key, candidate.row))
            delivered[candidate.row] = scoring.delivered(candidate.name, candidate)

        for candidate in chosen.values():
            enter(candidate)
        fitting = self.nodes - sum(count.nodes for count in self.counts)
        seen: list[tuple[list[tuple[int, int]], ScoreSnapshot]] = []
        for choice in self.choices:
            best = order[: self.rows]
            moment = ScoreSnapshot(self._counts(full), tuple([delivered[at] for _, at in best]), fitting - full.total())
            seen.append((best, moment))
            candidate = chosen[choice.row]
            least = min(least, candidate.key)
            order.remove((-candidate.key, choice.row))
            candidate.take(context)
            enter(candidate)
        for best, moment in seen:
            known = sum(-key >= least for key, _ in best)
            yield moment._replace(scores=moment.scores[:known])

    def _refusal(self, candidate: Candidate) -> Reason | None:
        """The filter's reason why the node takes no further replica; None when it takes one, and is scored then."""
        if candidate.taken >= self.admits.get(candidate.row, UNLIMITED):
            return Reason.BATCH_REPLICAS_MOST
        if candidate.taken >= candidate.room:
            return Reason.LOAD_OVER_THRESHOLD
        if candidate.fit(self.context):
            return None
        if candidate.left_cpu < 0:
            return Reason.BATCH_CPU_SHORT
        return Reason.BATCH_MEMORY_SHORT if candidate.left_memory < 0 else Reason.ZONE_FIT_SHORT

    def _counts(self, full: Counter[Reason]) -> tuple[ReasonCount, ...]:
        """The counts, with the nodes that earlier choices filled."""
        if not full:
            return self.counts
        before = {count.reason: count.nodes for count in self.counts}
        delivered = [(reason_for(reason, self.request), full[reason]) for reason in ORDER]
        return tuple(
            [ReasonCount(reason=name, nodes=n) for name, more in delivered if (n := before.get(name, 0) + more)]
        )


def together(
    view: View,
    request: RequestClass,
    candidates: Candidates,
    choices: Sequence[Choice],
    rows: int,
) -> JointHistory:
    """The history of a pass over these candidates that made these choices; at most `rows` nodes are reported for each.

    Call it before any capacity is taken from the view.
    """
    chosen = candidates.chosen
    others = tuple([candidate.seen() for candidate in candidates.others(max(rows - 1, 0))])
    context = candidates.context
    if not context.scoring.is_of_room:
        context = context.kept([*(each.row for each in chosen), *(each.row for each in others)])
    admits = {}
    if view.inventory_index.limited and not request.is_prod:
        admits = {candidate.row: int(view.inventory_index.batch_left[candidate.row]) for candidate in chosen}
    above = candidates.above()
    return JointHistory(
        context, request, view.node_count, candidates.counts, choices, chosen, others, admits, above, rows
    )


class FitRejections:
    """For the classes decided last, at most 64: row -> (the node's capacity generation at the rejection, the rejection)."""

    def __init__(self) -> None:
        self._kept: OrderedDict[RequestClass, dict[int, tuple[int, Rejection]]] = OrderedDict()

    def known(self, request: RequestClass, growth_of: Callable[[int], int]) -> dict[int, Rejection]:
        """The rejections that still hold, by row; others are deleted."""
        kept = self._kept.get(request)
        if kept is None:
            return {}
        for row in [row for row, (capacity_generation, _) in kept.items() if capacity_generation != growth_of(row)]:
            del kept[row]
        return {row: rejection for row, (_, rejection) in kept.items()}

    def note(self, request: RequestClass, row: int, capacity_generation: int, rejection: Rejection) -> None:
        """Keep the node's rejection of the class."""
        kept = self._kept.setdefault(request, {})
        self._kept.move_to_end(request)
        if len(self._kept) > _CLASSES_MOST:
            self._kept.popitem(last=False)
        kept[row] = (capacity_generation, rejection)


SEARCH_COST: Final = 10
"""One replica that needs the exact fit counts as so many other replicas in a batch."""


class Found(NamedTuple):
    """A node that takes the request, and its fit; `look`: the scores of the node and of the best other nodes at that moment."""

    row: int
    fit: NodeFit
    look: SearchSnapshot


class Search:
    """One turn of a request class. `refused` are the rejections of the nodes that did not take it, as of their exact fit.

    `counts`: how many nodes each reason refused before the first choice. `rows`: how many of the best nodes are reported of each
    choice. `filtered` is called once, when all nodes were filtered and the first are about to be scored.
    """

    def __init__(
        self, view: View, request: RequestClass, room: Scoring, rows: int, filtered: Callable[[], None]
    ) -> None:
        self._view = view
        self._request = request
        self._room = room
        self._rows = rows
        self._filtered = filtered
        self._scoring = scoring_for(view, request, room)
        self.counts: tuple[ReasonCount, ...] | None = None
        self.refused = view.derived.of(FitRejections).known(request, view.generation_of)

    def next(self) -> Found | None:
        """The best node now, None when none of the nodes that are tried takes the request. The caller takes its capacity."""
        view, request = self._view, self._request
        if self.counts is not None and request.place.devices:
            # The previous choice took devices, and nodes are scored by their free devices.
            self._scoring = scoring_for(view, request, self._room)
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


class Stages(Protocol):
    """Receives the begin and end of each stage of a decision, for measuring. It must change nothing that the core sees."""

    def mark(self, stage: str) -> None:
        """A stage begins: "filter", "score"; "done" ends the class."""
        ...

    def decided(self, placement_requests: Sequence[PlacementRequest]) -> None:
        """These placement requests were placed by the decision that the last marks belong to."""
        ...


class Unwatched:
    """Stages that measure nothing."""

    def mark(self, stage: str) -> None:
        """Does nothing."""

    def decided(self, placement_requests: Sequence[PlacementRequest]) -> None:
        """Does nothing."""


class Turn(NamedTuple):
    """Requests of one class that are decided together, in order, and the part of the budget that they use."""

    request: RequestClass
    placement_requests: list[PlacementRequest]
    cost: int


class ClassDecision(NamedTuple):
    """Choices, one a replica in order. `counts`: how many nodes each reason refused before the first choice; empty when no replica
    was to be placed.

    `matrix`: the nodes' scores at the moment of each choice; None where scores were not compared. `refused`: the rejections of the
    exact fit, by row.
    """

    choices: tuple[Choice, ...]
    counts: tuple[ReasonCount, ...]
    matrix: ScoreHistory | None = None
    refused: Mapping[int, Rejection] = {}

    @property
    def best(self) -> tuple[NodeScore, ...]:
        """The top of the score matrix before the first choice."""
        first = next(self.matrix.snapshots(), None) if self.matrix is not None else None
        return first.scores if first is not None else ()


def turns(queue: RequestQueue, view: View, budget: int, quantum: int) -> Iterator[Turn]:
    """Take the waiting requests that a budget is enough for, class by class: each turn is the first class and its first requests.

    The caller places a turn, or puts it back, before it asks for the next one. A turn has at most `quantum` requests and at least
    one. A request costs 1, and SEARCH_COST where it needs an exact fit, so that other work does not wait for it.
    """
    while budget > 0 and (request := queue.next_class()) is not None:
        cost = SEARCH_COST if view.needs_search(request) else 1
        placement_requests = queue.take(request, min(max(1, budget // cost), quantum))
        budget -= len(placement_requests) * cost
        yield Turn(request, placement_requests, len(placement_requests) * cost)


def decide(
    view: View,
    request: RequestClass,
    count: int,
    scorings: Scorings,
    take: Callable[[int, Choice], None],
    *,
    best_rows: int,
    stages: Stages | None = None,
) -> ClassDecision:
    """Choose places for `count` equal replicas, in order; none for a class that is not admitted.

    `take(number, choice)` makes the view hold the choice of that number; it is called once for each choice, in order.
    `best_rows`: the most rows of each choice's score matrix to report, best first.
    """
    stages = stages or Unwatched()
    wanted = count if request.is_admitted else 0
    if wanted and view.needs_search(request):
        return _one_by_one(view, request, wanted, scorings, take, best_rows, stages)
    decision = decide_class(view, request, wanted, scorings.of(request), best_rows=best_rows, stages=stages)
    for number, choice in enumerate(decision.choices):
        take(number, choice)
    return decision


def decide_class(
    view: View,
    request: RequestClass,
    count: int,
    room: Scoring,
    *,
    best_rows: int = 0,
    stages: Stages | None = None,
) -> ClassDecision:
    """Choose a node for each of `count` equal replicas, in order. The view holds none of them afterwards.

    `room`: the scorers of free capacity (`scoring_of`); those of node signals are added where they tell nodes apart.
    `best_rows` is the most rows of each choice's score matrix to report, best first. So many are compared before the first choice;
    a later choice reports as many as are known to be the best.
    """
    stages = stages or Unwatched()
    stages.mark("filter")
    if count == 0:
        stages.mark("score")
        stages.mark("done")
        return ClassDecision((), ())
    scoring = scoring_for(view, request, room)
    candidates = Candidates(view, request, scoring)
    stages.mark("score")
    candidates.expect(max(count, best_rows))
    candidates.top(best_rows)
    choices: list[Choice] = []
    while len(choices) < count and (candidate := candidates.best()) is not None:
        choices.append(Choice(candidate.row, candidates.take()))
    matrix = together(view, request, candidates, choices, best_rows) if choices else None
    stages.mark("done")
    return ClassDecision(tuple(choices), candidates.counts, matrix)


def _one_by_one(
    view: View,
    request: RequestClass,
    count: int,
    scorings: Scorings,
    take: Callable[[int, Choice], None],
    best_rows: int,
    stages: Stages,
) -> ClassDecision:
    """Search a node for one replica after the other; each choice is taken before the next search."""
    stages.mark("filter")
    search = Search(view, request, scorings.of(request), best_rows, partial(stages.mark, "score"))
    choices: list[Choice] = []
    looks: list[SearchSnapshot] = []
    while len(choices) < count and (found := search.next()) is not None:
        choice = Choice(found.row, found.fit.shares, found.fit.holding)
        looks.append(found.look)
        take(len(choices), choice)
        choices.append(choice)
    stages.mark("done")
    matrix = SearchHistory(tuple(looks)) if looks else None
    return ClassDecision(tuple(choices), search.counts or (), matrix, search.refused)
