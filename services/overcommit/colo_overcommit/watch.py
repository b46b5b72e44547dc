"""Orders the nodes by their last sample, so that late and lost nodes are found without a look at the others."""

import heapq
from collections import OrderedDict

from colo_common.model.freshness import FreshnessPolicy

__all__ = ["Watch"]


class _DueTimes:
    """One time for each node, which it may change; the earliest comes out first, equal ones by the names of the nodes."""

    def __init__(self) -> None:
        self._ms: dict[str, int] = {}
        # Also has entries that were dropped or replaced: they go when they come to the front.
        self._heap: list[tuple[int, str]] = []

    def put(self, node: str, at_ms: int) -> None:
        self._ms[node] = at_ms
        heapq.heappush(self._heap, (at_ms, node))

    def drop(self, node: str) -> None:
        self._ms.pop(node, None)

    def first_ms(self) -> int | None:
        while self._heap and self._ms.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, now_ms: int) -> list[str]:
        """Take out the nodes whose time is now or earlier."""
        found = []
        while (first_ms := self.first_ms()) is not None and first_ms <= now_ms:
            node = heapq.heappop(self._heap)[1]
            del self._ms[node]
            found.append(node)
        return found


class Watch:
    """Nodes on time, ordered by the time of the last sample, and nodes that are late, by the time at which they are lost.

    Others are the times at which late nodes are promised less, and the departed nodes: lost ones and those without a topology,
    until they are forgotten (`forget_ms` 0: never).
    """

    def __init__(self, policy: FreshnessPolicy, forget_ms: int = 0) -> None:
        self._policy = policy
        self._forget_ms = forget_ms
        self._on_time: OrderedDict[str, int] = OrderedDict()
        self._late = _DueTimes()
        self._falls = _DueTimes()
        self._departed: OrderedDict[str, int] = OrderedDict()

    def sampled(self, node: str, now_ms: int) -> None:
        """Note a sample of the node: it is on time."""
        self._departed.pop(node, None)
        self._late.drop(node)
        self._falls.drop(node)
        self._on_time.pop(node, None)
        self._on_time[node] = now_ms

    def late(self, node: str, sampled_ms: int) -> None:
        """Look at a late node again when it is lost, given the time of its last sample."""
        self._late.put(node, sampled_ms + self._policy.lost_after_ms)

    def withhold(self, node: str, now_ms: int) -> None:
        """Look at a late node again after the time in which a node turns stale, although it is due now."""
        self._late.put(node, now_ms + self._policy.stale_after_ms)

    def falls_at(self, node: str, at_ms: int | None) -> None:
        """Report the late node in `falling` at this time, unless a sample comes before; None: not any more."""
        if at_ms is None:
            self._falls.drop(node)
        else:
            self._falls.put(node, at_ms)

    def falling(self, now_ms: int) -> list[str]:
        """Take out the late nodes that are promised less from now on."""
        return self._falls.take(now_ms)

    def departed(self, node: str, now_ms: int) -> None:
        """Start the time after which the node is forgotten: it is lost, has sent no topology, or still holds something."""
        if self._forget_ms:
            self._departed[node] = now_ms

    def forgotten(self, now_ms: int) -> list[str]:
        """Take out the nodes that departed `forget_ms` ago or earlier."""
        found = []
        while self._departed and now_ms - next(iter(self._departed.values())) >= self._forget_ms:
            found.append(self._departed.popitem(last=False)[0])
        return found

    def deadline_ms(self) -> int | None:
        """The time at which the next node turns late or lost, is promised less, or is to be forgotten; None without nodes."""
        due = [at_ms for at_ms in (self._late.first_ms(), self._falls.first_ms()) if at_ms is not None]
        if self._departed:
            due.append(next(iter(self._departed.values())) + self._forget_ms)
        if self._on_time:
            due.append(next(iter(self._on_time.values())) + self._policy.stale_after_ms)
        return min(due, default=None)

    def due(self, now_ms: int) -> list[str]:
        """Take out the nodes whose freshness changes now, those that may be lost first. Each change of a node is reported once."""
        found = self._late.take(now_ms)
        while self._on_time:
            node, sampled_ms = next(iter(self._on_time.items()))
            if now_ms - sampled_ms < self._policy.stale_after_ms:
                break
            del self._on_time[node]
            if now_ms - sampled_ms < self._policy.lost_after_ms:
                self.late(node, sampled_ms)
            found.append(node)
        return found
