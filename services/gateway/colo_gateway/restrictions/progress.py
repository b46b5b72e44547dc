"""Which nodes have followed the last quiesce or its end, and how fast."""

from collections.abc import Sequence
from typing import Final

from colo_common.events.restriction import QuiesceProgress, RestrictionsApplied, RestrictionsChanged

__all__ = ["QuiesceFollower"]

_MISSING_MOST: Final = 100
_FAILED_MOST: Final = 10
_MS_US: Final = 1_000


class QuiesceFollower:
    """Keeps the newest confirmation of each node."""

    def __init__(self) -> None:
        self._revision = 0
        self._sent_us = 0
        self._applied: dict[str, RestrictionsApplied] = {}
        self._first_us: dict[str, int] = {}

    def begin(self, revision: int) -> None:
        """Follow this revision from now on."""
        if revision > self._revision:
            self._revision, self._sent_us = revision, 0
            self._first_us.clear()
            for node, applied in self._applied.items():
                if applied.revision >= revision:
                    self._first_us[node] = applied.sent_us

    def published(self, event: RestrictionsChanged) -> None:
        """Note when the followed revision was sent."""
        if event.revision == self._revision and not self._sent_us:
            self._sent_us = event.sent_us

    def applied(self, event: RestrictionsApplied) -> None:
        """Note a node's confirmation."""
        known = self._applied.get(event.node)
        if known is not None and known.revision > event.revision:
            return
        self._applied[event.node] = event
        if self._revision and event.revision >= self._revision:
            self._first_us.setdefault(event.node, event.sent_us)

    def progress(self, nodes: Sequence[str]) -> QuiesceProgress | None:
        """The progress over these nodes; None before the first quiesce."""
        if not self._revision:
            return None
        confirmed = [node for node in nodes if node in self._first_us]
        missing = [node for node in nodes if node not in self._first_us]
        slowest_us = (
            max([self._first_us[node] - self._sent_us for node in confirmed], default=0) if self._sent_us else 0
        )
        failed = [f"{node}: {sentence}" for node in confirmed for sentence in self._applied[node].failed]
        return QuiesceProgress(
            revision=self._revision,
            nodes=len(nodes),
            confirmed=len(confirmed),
            suspended=sum(self._applied[node].suspended for node in confirmed),
            slowest_ms=max(0, -(-slowest_us // _MS_US)),
            missing=tuple(missing[:_MISSING_MOST]),
            failed=tuple(failed[:_FAILED_MOST]),
        )
