"""The places that equal wants take in one turn, node by node, as the ledger will be asked for them."""

from collections.abc import Iterator

from colo_common.model.placement import Placement
from colo_scheduler.cluster.pool import pool_of
from colo_scheduler.cluster.preemptible_index import importance_of
from colo_scheduler.ledger.port import HOLDS_MAX, Hold, NodeCommit
from colo_scheduler.requests.request_class import RequestClass

__all__ = ["CommitTurn", "NodeCall"]


class NodeCall:
    """The holds that are written to one node's row together, at most HOLDS_MAX.

    `expect`: the revision of the row before. `is_chained`: that revision rests on calls that are under way.
    """

    __slots__ = ("expect", "holds", "is_chained", "node")

    def __init__(self, node: str, expect: int, *, is_chained: bool) -> None:
        self.node, self.expect, self.is_chained = node, expect, is_chained
        self.holds: list[Hold] = []


class CommitTurn:
    """What one class takes in one turn (`Commits.place`). `placements`: what each want was promised, in order.

    `importance`: how important the class is held as; None for what stands for a reservation, which nobody asks to leave.
    """

    __slots__ = ("_by_row", "importance", "now_ms", "placements", "pool")

    def __init__(self, request: RequestClass, now_ms: int) -> None:
        self.now_ms = now_ms
        self.pool = pool_of(request.band)
        self.importance = None if request.reserves else importance_of(request.band, request.priority)
        self.placements: list[Placement] = []
        self._by_row: dict[int, list[NodeCall]] = {}

    def open_call(self, row: int) -> NodeCall | None:
        """The call of this node that has room for one more hold."""
        calls = self._by_row.get(row)
        return calls[-1] if calls and len(calls[-1].holds) < HOLDS_MAX else None

    def begin(self, row: int, call: NodeCall) -> NodeCall:
        """From now on this node's holds are written by this call."""
        self._by_row.setdefault(row, []).append(call)
        return call

    def commits(self) -> Iterator[NodeCommit]:
        """What to ask of the ledger: nodes in the order of their first place, the calls of a node one after the other."""
        for calls in self._by_row.values():
            for each in calls:
                yield NodeCommit(
                    node=each.node, expect=each.expect, holds=tuple(each.holds), is_chained=each.is_chained
                )
