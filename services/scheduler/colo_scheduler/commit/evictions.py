"""Which nodes evicted what: such work avoids them for a while, in every scheduler that shares the work.

An end is heard by one of several schedulers, whichever; that an eviction was requested is heard by all, while the replica still
holds its place. One counts once, whichever is heard first.
"""

from collections.abc import Mapping
from typing import Final

from colo_common.events.effects import Effect
from colo_common.events.enforcement import PlacementRefused, ReplicaEnded
from colo_common.events.eviction import EvictionRequested
from colo_common.model.reasons import EndCause
from colo_scheduler.cluster.cluster import Cluster
from colo_scheduler.cluster.signals import kind_of
from colo_scheduler.commit.commit import load_rows
from colo_scheduler.commit.held import HeldAttempt, Over
from colo_scheduler.ledger.port import Attempt

__all__ = ["EvictionHistory"]

_UNKNOWN_MOST: Final = 1_000


class EvictionHistory:
    """`held`: what is held, as far as is known here. Evictions of what another scheduler placed wait for its row, at most 1,000."""

    def __init__(self, cluster: Cluster, held: Mapping[Attempt, HeldAttempt], over: Over) -> None:
        self._cluster = cluster
        self._held = held
        self._over = over
        self._unknown: dict[Attempt, str] = {}

    def requested(self, event: EvictionRequested, now_ms: int) -> list[Effect]:
        """A node is to lose a replica. The row of one that another scheduler placed lately is read for what it is."""
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
        """An attempt is over: an eviction, unless it was heard of already."""
        if not isinstance(event, ReplicaEnded) or event.cause is not EndCause.EVICTED:
            return
        attempt = (event.replica, event.attempt)
        held = self._held.get(attempt)
        if held is not None and attempt not in self._over:
            self._note(held, event.node, now_ms)

    def took(self, nodes: list[str], now_ms: int) -> None:
        """These rows were read."""
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
