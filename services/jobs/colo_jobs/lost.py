"""Which nodes are lost, as far as was heard. Facts of one node may come in another order: the newest counts."""

from typing import Final

from msgspec import Struct

from colo_common.events.node import FreshnessChanged
from colo_common.model.freshness import FORGET_NODE_MS, Freshness

__all__ = ["LostNodes"]

_NODES_MAX: Final = 50_000


class _Heard(Struct, frozen=True):
    at_ms: int
    is_lost: bool


class LostNodes:
    """The last change of freshness of every node, for at most 50,000 nodes; the one heard of longest ago goes first.

    One that changed for the last time `forget_ms` ago goes as well (0: never): it is as it was for long, or is gone for good.
    """

    def __init__(self, forget_ms: int = FORGET_NODE_MS) -> None:
        self._nodes: dict[str, _Heard] = {}
        self._forget_ms = forget_ms

    def __len__(self) -> int:
        return len(self._nodes)

    def heard(self, event: FreshnessChanged) -> bool:
        """Take in a change; False when a newer one is known already."""
        last = self._nodes.pop(event.node, None)
        if last is not None and event.at_ms < last.at_ms:
            self._nodes[event.node] = last
            return False
        self._nodes[event.node] = _Heard(event.at_ms, event.freshness is Freshness.LOST)
        while len(self._nodes) > _NODES_MAX or self._is_old(next(iter(self._nodes.values())), event.at_ms):
            del self._nodes[next(iter(self._nodes))]
        return True

    def _is_old(self, heard: _Heard, now_ms: int) -> bool:
        return 0 < self._forget_ms <= now_ms - heard.at_ms

    def is_lost(self, node: str) -> bool:
        """Whether the last that was heard of the node is that it is lost."""
        last = self._nodes.get(node)
        return last is not None and last.is_lost
