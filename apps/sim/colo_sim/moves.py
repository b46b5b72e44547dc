"""Counts how often replicas move between nodes, how often one comes back soon, and finds one that is placed without end."""

from collections import deque
from typing import Final

from colo_common.model.invalid import InvariantBroken

__all__ = ["BACK_WITHIN_MS", "ReplicaMoves"]

#: A replica that comes back to a node within this time after it was placed there before has moved A -> B -> A.
BACK_WITHIN_MS: Final = 600_000
#: So many places of one replica within a minute are a loop between services, whatever each of them had to do with it.
_PLACES_MOST: Final = 20
_WITHIN_MS: Final = 60_000


class ReplicaMoves:
    """`count` placements were on another node than the one before of the same replica, `back` of these A -> B -> A."""

    def __init__(self) -> None:
        self.count = 0
        self.back = 0
        # Of each replica the node where it was placed last, and when it was last placed on each.
        self._last: dict[str, str] = {}
        self._placed_ms: dict[tuple[str, str], int] = {}
        self._newest_ms: dict[str, deque[int]] = {}

    def placed(self, replica: str, node: str, at_ms: int) -> None:
        """Note a new place of the replica. Raises InvariantBroken when it is one of more than twenty within a minute."""
        newest_ms = self._newest_ms.setdefault(replica, deque(maxlen=_PLACES_MOST + 1))
        newest_ms.append(at_ms)
        if len(newest_ms) > _PLACES_MOST and max(newest_ms) - min(newest_ms) <= _WITHIN_MS:
            raise InvariantBroken(
                "a replica is placed again and again", replica=replica, node=node, times=len(newest_ms)
            )
        before, self._last[replica] = self._last.get(replica, node), node
        earlier_ms = self._placed_ms.get((replica, node))
        self._placed_ms[replica, node] = at_ms
        if node != before:
            self.count += 1
            self.back += earlier_ms is not None and at_ms - earlier_ms <= BACK_WITHIN_MS
