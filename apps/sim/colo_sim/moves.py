"""Counts how often replicas move between nodes, and how often one comes back soon to a node that it left."""

from typing import Final

__all__ = ["BACK_WITHIN_MS", "ReplicaMoves"]

#: A replica that comes back to a node within this time after it was placed there before has moved A -> B -> A.
BACK_WITHIN_MS: Final = 600_000


class ReplicaMoves:
    """`count` placements were on another node than the one before of the same replica, `back` of these A -> B -> A."""

    def __init__(self) -> None:
        self.count = 0
        self.back = 0
        # Of each replica the node where it was placed last, and when it was last placed on each.
        self._last: dict[str, str] = {}
        self._placed_ms: dict[tuple[str, str], int] = {}

    def placed(self, replica: str, node: str, at_ms: int) -> None:
        """Note a new place of the replica."""
        before, self._last[replica] = self._last.get(replica, node), node
        earlier_ms = self._placed_ms.get((replica, node))
        self._placed_ms[replica, node] = at_ms
        if node != before:
            self.count += 1
            self.back += earlier_ms is not None and at_ms - earlier_ms <= BACK_WITHIN_MS
