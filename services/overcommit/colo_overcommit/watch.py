"""Which nodes were heard of, in the order of their last sample: finds the late ones without looking at the others."""

from collections import OrderedDict

from colo_common.model.freshness import FreshnessPolicy

__all__ = ["Watch"]


class Watch:
    """Two queues ordered by the time of the last sample: nodes that are not late yet, and late ones that are not lost yet.

    In a third one are those that are lost, or never said what they are, until they are to be forgotten (`forget_ms` 0: never).
    """

    def __init__(self, policy: FreshnessPolicy, forget_ms: int = 0) -> None:
        self._policy = policy
        self._forget_ms = forget_ms
        self._on_time: OrderedDict[str, int] = OrderedDict()
        self._late: OrderedDict[str, int] = OrderedDict()
        self._gone: OrderedDict[str, int] = OrderedDict()

    def heard(self, node: str, now_ms: int) -> None:
        """The node sent a sample now."""
        self._gone.pop(node, None)
        self._late.pop(node, None)
        self._on_time.pop(node, None)
        self._on_time[node] = now_ms

    def gone(self, node: str, now_ms: int) -> None:
        """The node is lost, or was only spoken of, or is still not to be forgotten."""
        if self._forget_ms:
            self._gone[node] = now_ms

    def forgotten(self, now_ms: int) -> list[str]:
        """Those that were gone for so long that they are to be forgotten."""
        found = []
        while self._gone and now_ms - next(iter(self._gone.values())) >= self._forget_ms:
            found.append(self._gone.popitem(last=False)[0])
        return found

    def deadline_ms(self) -> int | None:
        """When the next node turns late or lost, or is to be forgotten."""
        due = []
        if self._gone:
            due.append(next(iter(self._gone.values())) + self._forget_ms)
        if self._on_time:
            due.append(next(iter(self._on_time.values())) + self._policy.stale_after_ms)
        if self._late:
            due.append(next(iter(self._late.values())) + self._policy.lost_after_ms)
        return min(due, default=None)

    def due(self, now_ms: int) -> list[str]:
        """Nodes whose freshness changes now, oldest sample first; each is reported once a change."""
        found = []
        while self._late:
            node, heard_ms = next(iter(self._late.items()))
            if now_ms - heard_ms < self._policy.lost_after_ms:
                break
            del self._late[node]
            found.append(node)
        while self._on_time:
            node, heard_ms = next(iter(self._on_time.items()))
            if now_ms - heard_ms < self._policy.stale_after_ms:
                break
            del self._on_time[node]
            if now_ms - heard_ms < self._policy.lost_after_ms:
                self._late[node] = heard_ms
            found.append(node)
        return found
