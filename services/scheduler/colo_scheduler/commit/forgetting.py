"""Forgets deleted nodes: a node that is long lost and holds nothing is forgotten here and in the ledger.

On a fleet that grows and shrinks nodes come and go for ever under new names. A node is forgotten `forget_node_ms` after it was
lost, once its ledger row holds nothing; so is a name that only the ledger knows. A forgotten node that comes back is a new node:
its topology was forgotten as well, and its collector reports the topology at its start and again every few hours.
"""

import heapq
from collections import Counter
from typing import Final

from colo_common.events.effects import Effect
from colo_common.model.freshness import Freshness
from colo_scheduler.cluster.cluster import Cluster
from colo_scheduler.cluster.node import Node
from colo_scheduler.commit.commit import Commits
from colo_scheduler.ledger.port import CALL_MAX, ForgetRows

__all__ = ["Forgetting"]

# The bus replays facts in any order at a start: a node is not forgotten before all its facts had time to arrive.
_RECEIVED_WITHIN_MS: Final = 60_000
_AGAIN_MOST_MS: Final = 60_000
_SPARE: Final = 64


class Forgetting:
    """The moments at which nodes that seem deleted are forgotten. `after_ms` 0: no node is ever forgotten."""

    def __init__(self, after_ms: int, cluster: Cluster, commits: Commits, counts: Counter[str]) -> None:
        self._after_ms = after_ms
        self._again_ms = max(1, min(after_ms, _AGAIN_MOST_MS))
        self._cluster = cluster
        self._commits = commits
        self._counts = counts
        self._due_ms: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def note(self, name: str, now_ms: int) -> None:
        """A fact of the node was received or its row was read: start or stop its time to be forgotten."""
        if not self._after_ms:
            return
        node = self._cluster.find(name)
        if node is None:
            seems_deleted, since_ms = name in self._commits.unmet, now_ms
        else:
            seems_deleted, since_ms = _seems_deleted(node), min(now_ms, node.freshness_at_ms or now_ms)
        if not seems_deleted:
            self._due_ms.pop(name, None)
        elif name not in self._due_ms:
            earliest_ms = now_ms + min(self._after_ms, _RECEIVED_WITHIN_MS)
            self._put(name, max(since_ms + self._after_ms, earliest_ms))

    def _put(self, name: str, due_ms: int) -> None:
        self._due_ms[name] = due_ms
        heapq.heappush(self._heap, (due_ms, name))
        if len(self._heap) > 2 * len(self._due_ms) + _SPARE:
            self._heap = sorted((due_ms, name) for name, due_ms in self._due_ms.items())

    def deadline_ms(self) -> int | None:
        """When the first node is due; None without one."""
        while self._heap and self._due_ms.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def wake(self, now_ms: int) -> list[Effect]:
        """Forget at most CALL_MAX due nodes. A node that a hold, call or read depends on is checked again within a minute."""
        deleted: list[str] = []
        while len(deleted) < CALL_MAX and (due_ms := self.deadline_ms()) is not None and due_ms <= now_ms:
            _, name = heapq.heappop(self._heap)
            del self._due_ms[name]
            node = self._cluster.find(name)
            if node is not None and not self._commits.may_forget(node):
                self._put(name, now_ms + self._again_ms)
                continue
            self._commits.unmet.pop(name, None)
            if node is not None:
                self._cluster.forget(node)
            deleted.append(name)
        self._counts["nodes_forgotten"] += len(deleted)
        return [ForgetRows(nodes=tuple(deleted))] if deleted else []


def _seems_deleted(node: Node) -> bool:
    """Whether the node is lost, or only the ledger knows its name."""
    return node.freshness is Freshness.LOST or (node.topology is None and node.freshness is Freshness.UNKNOWN)
