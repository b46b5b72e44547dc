"""The only entry point of decisions: chooses nodes for equal replicas in a view, for the core and for plans alike.

Amounts are decided together: every node is filtered once, then one replica after the other takes the best node. A score depends on
its own node only, so after each choice only the chosen node is scored again, and the result equals scoring all nodes again for
every replica. A request for more than amounts is searched for one replica after the other (`search.py`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from colo_common.events.job import PlacementRequest
from colo_common.events.placement import NodeScore, ReasonCount
from colo_common.model.placement import ZoneShare
from colo_scheduler.cluster.holding import Holding
from colo_scheduler.cluster.snapshot import View
from colo_scheduler.ledger.port import Attempt
from colo_scheduler.placement.candidates import Candidates
from colo_scheduler.placement.fit import Rejection
from colo_scheduler.placement.score_history import ScoreHistory, SearchHistory, SearchSnapshot, together
from colo_scheduler.placement.scoring import scoring_for
from colo_scheduler.placement.search import SEARCH_COST, Search, needs_search
from colo_scheduler.policy import SchedulerPolicy
from colo_scheduler.requests.queue import RequestQueue
from colo_scheduler.requests.request_class import RequestClass
from colo_scheduler.scorers.weights import ScorerWeights

__all__ = ["Choice", "ClassDecision", "Stages", "Turn", "Unwatched", "decide", "decide_class", "turns"]


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


class Choice(NamedTuple):
    """The row of a node, and one replica's resources there: `shares` of its zones, and the `holding` beside CPU and memory.

    `reservation` names the reservation in which an owner is placed. `inside`: attempts that already run on the node within the
    reserved place; only where the replica stands for a reservation.
    """

    row: int
    shares: tuple[ZoneShare, ...]
    holding: Holding | None = None
    reservation: str = ""
    inside: tuple[Attempt, ...] = ()


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
        cost = SEARCH_COST if needs_search(view, request) else 1
        placement_requests = queue.take(request, min(max(1, budget // cost), quantum))
        budget -= len(placement_requests) * cost
        yield Turn(request, placement_requests, len(placement_requests) * cost)


def decide(
    view: View,
    request: RequestClass,
    count: int,
    policy: SchedulerPolicy,
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
    if wanted and needs_search(view, request):
        return _one_by_one(view, request, wanted, policy, take, best_rows, stages)
    decision = decide_class(view, request, wanted, policy.weights_of(request), best_rows=best_rows, stages=stages)
    for number, choice in enumerate(decision.choices):
        take(number, choice)
    return decision


def decide_class(
    view: View,
    request: RequestClass,
    count: int,
    weights: ScorerWeights,
    *,
    best_rows: int = 0,
    stages: Stages | None = None,
) -> ClassDecision:
    """Choose a node for each of `count` equal replicas, in order. The view holds none of them afterwards.

    `best_rows` is the most rows of each choice's score matrix to report, best first. So many are compared before the first choice;
    a later choice reports as many as are known to be the best.
    """
    stages = stages or Unwatched()
    stages.mark("filter")
    if count == 0:
        stages.mark("score")
        stages.mark("done")
        return ClassDecision((), ())
    scoring = scoring_for(view, request, weights)
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
    policy: SchedulerPolicy,
    take: Callable[[int, Choice], None],
    best_rows: int,
    stages: Stages,
) -> ClassDecision:
    """Search a node for one replica after the other; each choice is taken before the next search."""
    stages.mark("filter")
    search = Search(view, request, policy.weights_of(request), best_rows, partial(stages.mark, "score"))
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
