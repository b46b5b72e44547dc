"""The thresholds of each node: the settings of the evictor, with what the colocation policy says for the node's labels."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from colo_common.events.policy import PolicyChanged
from colo_common.model.colocation_policy import ColocationPolicy
from colo_evictor.policy import EvictorPolicy
from colo_evictor.watched import WatchedNode

__all__ = ["FollowedThresholds"]


class FollowedThresholds:
    """The newest document, and the policies that follow from it. Before one arrives the settings alone count."""

    def __init__(self, base: EvictorPolicy) -> None:
        self.base = base
        self._revision = 0
        self._document = ColocationPolicy()
        # Nodes with the same thresholds share their policy.
        self._under: dict[tuple[int | None, int | None], EvictorPolicy] = {}

    def follow(self, event: PolicyChanged, nodes: Iterable[WatchedNode]) -> None:
        """Give all nodes the policy of this document; nothing changes unless its revision is higher. Raises InvalidInput for one
        that contradicts itself.
        """
        if event.revision <= self._revision:
            return
        event.policy.validate()
        self._revision, self._document = event.revision, event.policy
        for node in nodes:
            node.policy = self.of(node.labels)

    def give(self, node: WatchedNode, labels: Mapping[str, str]) -> None:
        """Give the node the policy of its labels."""
        node.labels, node.policy = labels, self.of(labels)

    def of(self, labels: Mapping[str, str]) -> EvictorPolicy:
        """The policy for a node with these labels."""
        values = self._document.values_of(labels)
        key = (values.cpu_evict_pct, values.memory_evict_pct)
        found = self._under.get(key)
        if found is None:
            found = self._under[key] = self._with(*key)
        return found

    def _with(self, cpu_pct: int | None, memory_pct: int | None) -> EvictorPolicy:
        """The settings with other upper marks. A lower mark stays as far below its upper one as it is in the settings."""
        base = self.base
        if cpu_pct is not None:
            lower_pct = max(cpu_pct - (base.cpu_pct - base.cpu_lower_pct), 0)
            base = replace(base, cpu_pct=cpu_pct, cpu_lower_pct=lower_pct)
        if memory_pct is not None:
            lower_pct = max(memory_pct - (base.memory_pct - base.memory_lower_pct), 0)
            base = replace(base, memory_pct=memory_pct, memory_lower_pct=lower_pct)
        return base
