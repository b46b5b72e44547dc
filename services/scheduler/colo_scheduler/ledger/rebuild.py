"""What the stream of facts still says of a ledger that was emptied while no scheduler was alive.

A hold is known from the fact that it was decided, which has its placement, until the fact that it was released. Its revision was
lost with the ledger, so all rows begin again at the first one. Reservations publish no such facts, and do not come back.
"""

from collections import defaultdict
from typing import Final

from colo_common.events.fact import Fact
from colo_common.events.placement import PlacementsDecided, PlacementsReleased
from colo_common.model.placement import Attempt, Placement
from colo_scheduler.ledger.port import Hold, NodeRow, name_of

__all__ = ["REBUILT_FROM", "FactsOfHolds"]

#: The facts to be read, which one stream keeps.
REBUILT_FROM: Final = (PlacementsDecided, PlacementsReleased)

_FIRST_REVISION: Final = 1


class FactsOfHolds:
    """Folds facts in their order. A decision that is published once more after its release holds nothing."""

    def __init__(self) -> None:
        self._held: dict[Attempt, Placement] = {}
        self._over: dict[str, int] = {}

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
            case _:
                pass

    def rows(self) -> tuple[NodeRow, ...]:
        """The rows of the nodes that hold something, by name; whether a hold was started is not known."""
        by_node: defaultdict[str, list[Hold]] = defaultdict(list)
        for attempt in sorted(self._held):
            placement = self._held[attempt]
            by_node[placement.node].append(Hold(placement=placement, generation=_FIRST_REVISION))
        return tuple(
            NodeRow(node=node, revision=_FIRST_REVISION, changes=_FIRST_REVISION, holds=tuple(by_node[node]))
            for node in sorted(by_node)
        )
