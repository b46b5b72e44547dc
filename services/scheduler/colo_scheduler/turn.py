"""One turn of a request class: as many of its replicas as find a place now, decided together or one after the other.

The core and the plan call the same: what differs is only what becomes of a choice.
"""

from collections.abc import Callable

from colo_scheduler.candidates import Candidates
from colo_scheduler.cluster import View
from colo_scheduler.decide import Choice, ClassDecision, Stages, Unwatched, decide_class
from colo_scheduler.policy import Policy
from colo_scheduler.request import RequestClass
from colo_scheduler.search import Search, needs_search
from colo_scheduler.stack import scoring_for, table_of

__all__ = ["decide_turn"]


def decide_turn(
    view: View,
    request: RequestClass,
    count: int,
    policy: Policy,
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
    policy: Policy,
    take: Callable[[int, Choice], None],
    best_rows: int,
    stages: Stages,
) -> ClassDecision:
    stages.mark("filter")
    scoring = scoring_for(view, request, policy.weights_of(request))
    candidates = Candidates(view, request, scoring)
    stages.mark("score")
    table = table_of(scoring, [candidate.seen() for candidate in candidates.top(best_rows)])
    search = Search(view, request, scoring)
    choices: list[Choice] = []
    while len(choices) < count and (found := search.next()) is not None:
        choice = Choice(found.row, found.fit.shares, found.fit.holding)
        take(len(choices), choice)
        choices.append(choice)
    stages.mark("done")
    return ClassDecision(tuple(choices), candidates.counts, table, search.refused)
