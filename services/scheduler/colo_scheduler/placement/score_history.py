"""The score matrix of each choice of a turn, as it was at the moment of that choice.

Few are read, so nothing is computed at the decision. In one pass only the chosen nodes change, so these are kept as the pass left
them, with the best of the other nodes that it scored: on request each moment is computed by replaying the choices. A node that the
pass did not score is below each chosen node and below its own bound, so every node above all of these keys is known to be among the
best, and is reported. Of replicas that were searched for one by one the best nodes are kept for each.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from colo_common.events.placement import NodeScore, ReasonCount
from colo_common.model.placement import ZoneShare
from colo_common.model.reasons import Reason
from colo_scheduler.cluster.inventory_index import UNLIMITED
from colo_scheduler.cluster.snapshot import View
from colo_scheduler.placement.candidates import Candidate, Candidates, ClassContext
from colo_scheduler.placement.filters import ORDER, reason_for
from colo_scheduler.placement.scoring import Scoring, Seen
from colo_scheduler.requests.request_class import RequestClass

__all__ = [
    "SearchSnapshot",
    "ScoreHistory",
    "ScoreSnapshot",
    "SearchHistory",
    "JointHistory",
    "search_snapshot",
    "together",
]


class ScoreSnapshot(NamedTuple):
    """The cluster as one replica found it: the nodes that each reason refused, and the best nodes, the chosen one first.

    No node outside `scores` is better than a node in it; they may be fewer than the most that are reported. `fitting`: how many
    nodes could take the replica; None where the exact fit did not try all nodes. The rows are then those that pass the filters,
    without those that the exact fit refused.
    """

    counts: tuple[ReasonCount, ...]
    scores: tuple[NodeScore, ...]
    fitting: int | None = None


class PlacedChoice(Protocol):
    """A choice: its row, and its shares of the zones there."""

    @property
    def row(self) -> int:
        """The row of the node."""
        ...

    @property
    def shares(self) -> tuple[ZoneShare, ...]:
        """The shares by zone."""
        ...


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
    choices: Sequence[PlacedChoice]
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
    choices: Sequence[PlacedChoice],
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
