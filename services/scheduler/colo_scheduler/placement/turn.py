"""One turn of a request class: as many of its replicas as find a place now, decided together or one after the other.

The core and the plan call the same: what differs is only what becomes of a choice.
"""

from collections.abc import Callable

from colo_scheduler.cluster.snapshot import View
from colo_scheduler.placement.decide import Choice, ClassDecision, Stages, Unwatched, decide_class
from colo_scheduler.placement.score_history import SearchHistory, SearchSnapshot
from colo_scheduler.placement.search import Search, needs_search
from colo_scheduler.policy import SchedulerPolicy
from colo_scheduler.requests.request_class import RequestClass

__all__ = ["decide_turn"]


def decide_turn(
    view: View,
    request: RequestClass,
    count: int,
    policy: SchedulerPolicy,
    take: Callable[[int, Choice], None],
    *,
    best_rows: int,
    stages: Stages | None = None,
) -> ClassDecision:
    """Choose places for `count` equal replicas in order. `take(number, choice)` makes the view hold a choice that was made."""
    wanted = count if request.is_admitted else 0
    if wanted and needs_search(view, request):
        return _search(view, request, wanted, policy, take, best_rows, stages or Unwatched())
    decision = decide_class(view, request, wanted, policy.weights_of(request), best_rows=best_rows, stages=stages)
    for number, choice in enumerate(decision.choices):
        take(number, choice)
    return decision


def _search(
    view: View,
    request: RequestClass,
    count: int,
    policy: SchedulerPolicy,
    take: Callable[[int, Choice], None],
    best_rows: int,
    stages: Stages,
) -> ClassDecision:
    stages.mark("filter")
    search = Search(view, request, policy.weights_of(request), best_rows, stages)
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
