"""What the stream of facts says of holds: all that it keeps of a ledger that was emptied, or what was said of one last.

A hold is known from the fact that it was decided, which has its placement, until the fact that it was released. Its revision was
lost with it, so a row without a revision begins again at the first one. Reservations publish no such facts, and do not come back.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from colo_common.events.fact import Fact
from colo_common.events.placement import PlacementsDecided, PlacementsReleased
from colo_common.model.placement import Attempt, Placement
from colo_scheduler.ledger.port import Ending, Hold, NodeRow, name_of

__all__ = ["REBUILT_FROM", "FactsOfHolds"]

#: The facts to be read, which one stream keeps.
REBUILT_FROM: Final = (PlacementsDecided, PlacementsReleased)

_FIRST_REVISION: Final = 1


class FactsOfHolds:
    """Folds facts in their order. A decision that is published once more after its release holds nothing."""

    def __init__(self) -> None:
        self._held: dict[Attempt, Placement] = {}
        self._over: dict[str, int] = {}
        # Where each attempt was released, and when that was said (ms).
        self._released: dict[Attempt, tuple[str, int]] = {}

    def take(self, fact: Fact) -> None:
        """Fold one more fact."""
        match fact:
            case PlacementsDecided():
                for placement in fact.placements:
                    if placement.attempt > self._over.get(placement.replica, 0) and not name_of(placement.replica):
                        self._held[placement.replica, placement.attempt] = placement
            case PlacementsReleased():
                for node in fact.nodes:
                    for replica, attempt in node.attempts:
                        self._held.pop((replica, attempt), None)
                        self._over[replica] = max(attempt, self._over.get(replica, 0))
                        self._released[replica, attempt] = node.node, fact.at_ms
            case _:
                pass

    def take_known(self, placements: Iterable[Placement]) -> int:
        """Fold in places of which the facts say nothing; returns how many of these there were."""
        new = [one for one in placements if one.attempt > self._over.get(one.replica, 0)]
        before = len(self._held)
        for one in new:
            self._held.setdefault((one.replica, one.attempt), one)
        return len(self._held) - before

    def released(self, rows: Sequence[NodeRow]) -> list[Ending]:
        """What was released, and where, but for holds in these rows that were decided after that."""
        decided_ms = {(h.attempt, row.node): h.placement.decided_at_ms for row in rows for h in row.holds}
        return [
            (attempt, node)
            for attempt, (node, at_ms) in self._released.items()
            if decided_ms.get((attempt, node), at_ms) <= at_ms
        ]

    def lost(self, rows: Sequence[NodeRow] = (), floor: int = 0) -> tuple[NodeRow, ...]:
        """What was decided and is in none of these rows, by the name of the node; whether it was started is not known.

        A row has the revision that the ledger has for its node: that of the node's row in `rows`, else `floor`. A row that cannot
        be read is left as it is.
        """
        known = {row.node: row for row in rows}
        held = {hold.attempt for row in rows for hold in row.holds}
        by_node: defaultdict[str, list[Hold]] = defaultdict(list)
        for attempt in sorted(self._held.keys() - held):
            placement = self._held[attempt]
            by_node[placement.node].append(Hold(placement=placement, generation=_FIRST_REVISION))
        first = max(floor, _FIRST_REVISION)
        new = NodeRow(node="", revision=first, changes=first)
        return tuple(
            NodeRow(node=node, revision=row.revision, changes=row.changes, holds=tuple(by_node[node]))
            for node in sorted(by_node)
            if (row := known.get(node, new)).revision >= 0
        )
