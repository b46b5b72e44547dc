"""Records which nodes evicted which work: equal work avoids these nodes for a while, in every scheduler that shares the work.

Only one of several schedulers receives an end; all of them receive a requested eviction, while the replica still holds its place.
Each eviction counts once, by the event that is received first.
"""

from collections.abc import Mapping
from typing import Final

from colo_common.events.effects import Effect
from colo_common.events.enforcement import PlacementRefused, ReplicaEnded
from colo_common.events.eviction import EvictionRequested
from colo_common.model.placement import Attempt
from colo_common.model.reasons import EndCause
from colo_scheduler.cluster.cluster import Cluster
from colo_scheduler.cluster.signals import kind_of
from colo_scheduler.commit.commit import load_rows
from colo_scheduler.commit.held import HeldAttempt, Over

__all__ = ["EvictionHistory"]

_UNKNOWN_MOST: Final = 1_000


class EvictionHistory:
    """`held`: the held attempts known here. Evictions of attempts not known here wait for the row of the node, at most 1,000."""

    def __init__(self, cluster: Cluster, held: Mapping[Attempt, HeldAttempt], over: Over) -> None:
        self._cluster = cluster
        self._held = held
        self._over = over
        self._unknown: dict[Attempt, str] = {}

    def requested(self, event: EvictionRequested, now_ms: int) -> list[Effect]:
        """A node is to lose a replica. When another scheduler placed the replica lately, the node's row is read first."""
        attempt = (event.replica, event.attempt)
        held = self._held.get(attempt)
        if held is not None:
            self._note(held, event.node, now_ms)
            return []
        if attempt in self._over or self._cluster.find(event.node) is None or len(self._unknown) >= _UNKNOWN_MOST:
            return []
        self._unknown[attempt] = event.node
        return load_rows([event.node])

    def ended(self, event: ReplicaEnded | PlacementRefused, now_ms: int) -> None:
        """An attempt is over: count its eviction, unless it was counted already."""
        if not isinstance(event, ReplicaEnded) or event.cause is not EndCause.EVICTED:
            return
        attempt = (event.replica, event.attempt)
        held = self._held.get(attempt)
        if held is not None and attempt not in self._over:
            self._note(held, event.node, now_ms)

    def took(self, nodes: list[str], now_ms: int) -> None:
        """These rows were read: count the evictions that waited for them."""
        for attempt, node in [(attempt, node) for attempt, node in self._unknown.items() if node in nodes]:
            del self._unknown[attempt]
            held = self._held.get(attempt)
            if held is not None:
                self._note(held, node, now_ms)

    def _note(self, held: HeldAttempt, node: str, now_ms: int) -> None:
        row, place = self._cluster.rows.get(node), held.placement
        if row is None or held.is_evicted:
            return
        held.is_evicted = True
        kind = kind_of(place.band, place.qos, place.cpu_mcpu, place.memory_bytes)
        self._cluster.signals.evicted(kind, row, now_ms)
