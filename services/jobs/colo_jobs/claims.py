"""Nodes that say once more that they run an attempt which waits for a place here.

Its decision and its start may have been missed, or it is a leftover of a job that was lost and came back under its id, for which no
place is held. The ledger says which: the attempt is believed where it holds the place there, and stopped everywhere else.
"""

from colo_common.events.enforcement import ReplicaStarted
from colo_jobs.index import Key

__all__ = ["Claims"]


class Claims:
    """What the nodes said, until the ledger is listed; of several nodes that name one attempt each is kept."""

    def __init__(self) -> None:
        self._facts: dict[Key, dict[str, ReplicaStarted]] = {}

    def note(self, key: Key, fact: ReplicaStarted) -> bool:
        """Keep what a node says of a waiting replica; whether the ledger is to be asked, because nothing was kept yet."""
        is_first = not self._facts
        self._facts.setdefault(key, {})[fact.node] = fact
        return is_first

    def take(self) -> dict[Key, tuple[ReplicaStarted, ...]]:
        """All that is kept, now that the ledger was listed."""
        facts, self._facts = self._facts, {}
        return {key: tuple([by_node[node] for node in sorted(by_node)]) for key, by_node in facts.items()}
