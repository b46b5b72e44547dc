"""Orders the nodes by their last sample, so that late and lost nodes are found without a look at the others."""

from collections import OrderedDict

from colo_common.model.freshness import FreshnessPolicy

__all__ = ["Watch"]


class Watch:
    """Two queues ordered by the time of the last sample: nodes on time, and nodes that are late but not lost.

    A third queue has the departed nodes: lost ones and those without a topology, until they are forgotten (`forget_ms` 0: never).
    """

    def __init__(self, policy: FreshnessPolicy, forget_ms: int = 0) -> None:
        self._policy = policy
        self._forget_ms = forget_ms
        self._on_time: OrderedDict[str, int] = OrderedDict()
        self._late: OrderedDict[str, int] = OrderedDict()
        self._departed: OrderedDict[str, int] = OrderedDict()

    def sampled(self, node: str, now_ms: int) -> None:
        """Note a sample of the node: it is on time."""
        self._departed.pop(node, None)
        self._late.pop(node, None)
        self._on_time.pop(node, None)
        self._on_time[node] = now_ms

    def withhold(self, node: str, now_ms: int) -> None:
        """Look at a late node again after the time in which a node turns stale, although it is due now."""
        self._late[node] = now_ms - self._policy.lost_after_ms + self._policy.stale_after_ms

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
        """The time at which the next node turns late or lost, or is to be forgotten; None without nodes."""
        due = []
        if self._departed:
            due.append(next(iter(self._departed.values())) + self._forget_ms)
        if self._on_time:
            due.append(next(iter(self._on_time.values())) + self._policy.stale_after_ms)
        if self._late:
            due.append(next(iter(self._late.values())) + self._policy.lost_after_ms)
        return min(due, default=None)

    def due(self, now_ms: int) -> list[str]:
        """Take out the nodes whose freshness changes now, oldest sample first. Each change of a node is reported once."""
        found = []
        while self._late:
            node, sampled_ms = next(iter(self._late.items()))
            if now_ms - sampled_ms < self._policy.lost_after_ms:
                break
            del self._late[node]
            found.append(node)
        while self._on_time:
            node, sampled_ms = next(iter(self._on_time.items()))
            if now_ms - sampled_ms < self._policy.stale_after_ms:
                break
            del self._on_time[node]
            if now_ms - sampled_ms < self._policy.lost_after_ms:
                self._late[node] = sampled_ms
            found.append(node)
        return found
