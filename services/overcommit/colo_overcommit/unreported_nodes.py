"""Nodes whose samples come and whose topology is not known, or is not on the bus any more: they are asked to tell it again."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

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


class _Question(Struct, kw_only=True):
    """Of one node: when it is asked next, None until its next sample comes, and after which time it is asked once more.

    `is_owed`: it is asked once whatever it tells before, and `has_reported`: its topology came meanwhile.
    """

    due_ms: int | None = None
    again_ms: int = _AGAIN_MS
    is_owed: bool = False
    has_reported: bool = False


class UnreportedNodes:
    """When each such node is asked next: three seconds after its first sample, then after ten seconds, twenty and so on.

    At most 500 are asked in a second, so that a whole fleet, which answers at once, does not answer in the same second.

    Where the bus has lost what nodes said, each of them is asked once although its topology comes: a collector that begins again
    publishes that unasked, and its executor, which lives, is asked by nobody else what runs there.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, _Question] = {}
        self._has_lost = False
        self._second = 0
        self._asked = 0

    def __len__(self) -> int:
        return len(self._nodes)

    def lost(self, nodes: Iterable[str]) -> None:
        """The bus may not keep any more what these nodes said, whether or not it is known here, nor what unseen ones did."""
        self._has_lost = True
        for node in {*self._nodes, *nodes}:
            self._question(node, is_owed=True)

    def reported(self, node: str) -> None:
        """The topology of the node came."""
        question = self._nodes.get(node)
        if question is not None and question.is_owed:
            question.has_reported = True
        else:
            self._nodes.pop(node, None)

    def sampled(self, node: str, now_ms: int, *, is_known: bool, is_first: bool = False) -> list[Publish]:
        """A sample of the node came, the first one that was seen of it or a later one: the question, when it is due."""
        question = self._nodes.get(node)
        if question is None:
            is_owed = is_first and self._has_lost
            if is_known and not is_owed:
                return []
            question = self._question(node, is_owed=is_owed)
            question.has_reported = is_known
        if question.due_ms is None:
            question.due_ms = now_ms + _FIRST_MS
        if now_ms < question.due_ms or not self._may_ask(now_ms):
            return []
        if question.has_reported:
            self._nodes.pop(node, None)
        question.is_owed = False
        question.due_ms, question.again_ms = now_ms + question.again_ms, min(2 * question.again_ms, _AGAIN_MOST_MS)
        return [Publish(fact=NodeFactsWanted(at_ms=now_ms, node=node))]

    def _question(self, node: str, *, is_owed: bool) -> _Question:
        """The new question to the node, or the one that it was not asked yet; above the limit of nodes it is not kept."""
        question = self._nodes.get(node)
        if question is None or not question.is_owed:
            question = _Question(is_owed=is_owed)
            if len(self._nodes) < _NODES_MOST or node in self._nodes:
                self._nodes[node] = question
        return question

    def _may_ask(self, now_ms: int) -> bool:
        second = now_ms // _SECOND_MS
        if second != self._second:
            self._second, self._asked = second, 0
        self._asked += 1
        return self._asked <= _A_SECOND_MOST
