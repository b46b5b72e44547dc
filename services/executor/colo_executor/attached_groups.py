"""Publishes which control groups of others the node's replicas are attached to, so that the collector measures them as replicas."""

from collections.abc import Mapping

from colo_common.events.effects import Publish
from colo_common.events.enforcement import AttachedGroup, AttachedGroupsChanged
from colo_executor.attempt import ReplicaAttempt

__all__ = ["AttachedGroups"]


class AttachedGroups:
    """One fact with all of them whenever one comes or goes."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._published: tuple[AttachedGroup, ...] = ()
        self._count = 0

    def follow(self, active: Mapping[str, ReplicaAttempt], now_ms: int, *, again: bool = False) -> list[Publish]:
        """The fact, when the groups are others than before; `again`: in any case, because the bus keeps facts for days only."""
        groups = tuple(
            AttachedGroup(
                replica=replica,
                attempt=attempt.placement.attempt,
                qos=attempt.placement.qos,
                group=attempt.group,
            )
            for replica, attempt in sorted(active.items())
            if attempt.group
        )
        if groups == self._published and not again:
            return []
        self._published = groups
        self._count += 1
        fact = AttachedGroupsChanged(at_ms=now_ms, node=self._node, groups=groups)
        return [Publish(fact=fact, id=f"executor:attached:{self._node}:{now_ms}:{self._count}")]
