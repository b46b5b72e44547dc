"""Nodes whose samples come and whose topology is not known, or is not on the bus any more: they are asked to tell it again."""

from typing import Final

from colo_common.events.effects import Publish
from colo_common.events.node import NodeFactsWanted

__all__ = ["UnreportedNodes"]

_FIRST_MS: Final = 3_000
"""A topology that is under way, at the start of this service or of a collector, is here by then."""
_AGAIN_MS: Final = 10_000
_AGAIN_MOST_MS: Final = 600_000
_A_SECOND_MOST: Final = 500
_SECOND_MS: Final = 1_000
_NODES_MOST: Final = 50_000


class UnreportedNodes:
    """When each such node is asked next: three seconds after its first sample, then after ten seconds, twenty and so on.

    At most 500 are asked in a second, so that a whole fleet, which answers at once, does not answer in the same second.
    """

    def __init__(self) -> None:
        # Of each: when it is asked next, None until its next sample comes; and after which time it is asked once more.
        self._nodes: dict[str, tuple[int | None, int]] = {}
        self._second = 0
        self._asked = 0

    def __len__(self) -> int:
        return len(self._nodes)

    def doubt(self, node: str) -> None:
        """The bus may not keep the topology of the node any more, whether or not it is known here."""
        if len(self._nodes) < _NODES_MOST:
            self._nodes[node] = (None, _AGAIN_MS)

    def reported(self, node: str) -> None:
        """The topology of the node came."""
        self._nodes.pop(node, None)

    def sampled(self, node: str, now_ms: int, *, is_known: bool) -> list[Publish]:
        """A sample of the node came: the question, when it is due."""
        if node not in self._nodes:
            if is_known:
                return []
            self.doubt(node)
        due_ms, again_ms = self._nodes.get(node, (now_ms + _FIRST_MS, _AGAIN_MS))
        if due_ms is None:
            due_ms = now_ms + _FIRST_MS
            self._nodes[node] = (due_ms, again_ms)
        if now_ms < due_ms or not self._may_ask(now_ms):
            return []
        self._nodes[node] = (now_ms + again_ms, min(2 * again_ms, _AGAIN_MOST_MS))
        return [Publish(fact=NodeFactsWanted(at_ms=now_ms, node=node))]

    def _may_ask(self, now_ms: int) -> bool:
        second = now_ms // _SECOND_MS
        if second != self._second:
            self._second, self._asked = second, 0
        self._asked += 1
        return self._asked <= _A_SECOND_MOST
