"""The lost nodes, from FreshnessChanged. The facts of one node may come out of order: the newest counts."""

from typing import Final

from msgspec import Struct

from colo_common.events.fact import is_older
from colo_common.events.node import FreshnessChanged
from colo_common.model.freshness import FORGET_NODE_MS, Freshness
from colo_common.model.received_fences import ReceivedFences

__all__ = ["LostNodes"]

_NODES_MAX: Final = 50_000


class _Change(Struct, frozen=True):
    fact: FreshnessChanged
    received_ms: int


class LostNodes:
    """The last change of freshness of each node, for at most 50,000 nodes; above that the one recorded longest ago is dropped.

    A change that is `forget_ms` old is dropped as well (0: never): the node is unchanged for long, or has left for good.
    """

    def __init__(self, forget_ms: int = FORGET_NODE_MS) -> None:
        self._nodes: dict[str, _Change] = {}
        self._fences = ReceivedFences()
        self._forget_ms = forget_ms

    def __len__(self) -> int:
        return len(self._nodes)

    def record(self, event: FreshnessChanged, now_ms: int) -> bool:
        """Record a change of freshness; False when a newer one of the node is known, or its publisher was replaced there."""
        if not self._fences.admits(event.node, event.fence, now_ms):
            return False
        last = self._nodes.pop(event.node, None)
        if last is not None and is_older(event, last.fact):
            self._nodes[event.node] = last
            return False
        self._nodes[event.node] = _Change(event, now_ms)
        while len(self._nodes) > _NODES_MAX or self._is_old(next(iter(self._nodes.values())), now_ms):
            del self._nodes[next(iter(self._nodes))]
        return True

    def _is_old(self, change: _Change, now_ms: int) -> bool:
        return 0 < self._forget_ms <= now_ms - change.received_ms

    def is_lost(self, node: str) -> bool:
        """Whether the newest recorded freshness of the node is lost."""
        last = self._nodes.get(node)
        return last is not None and last.fact.freshness is Freshness.LOST
