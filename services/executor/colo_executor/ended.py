"""The memory of the attempts that ended on this node, bounded."""

from colo_common.events.enforcement import PlacementRefused, ReplicaEnded

__all__ = ["Ended"]


class Ended:
    """The last `kept` attempts that ended or were refused; the oldest is forgotten first."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._facts: dict[tuple[str, int], ReplicaEnded | PlacementRefused] = {}
        self._highest: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._facts)

    def add(self, fact: ReplicaEnded | PlacementRefused) -> None:
        """Remember how an attempt ended; the first fact about an attempt stays."""
        key = (fact.replica, fact.attempt)
        if key in self._facts:
            return
        self._facts[key] = fact
        self._highest[fact.replica] = max(fact.attempt, self._highest.get(fact.replica, 0))
        while len(self._facts) > self._kept:
            replica, attempt = next(iter(self._facts))
            del self._facts[replica, attempt]
            if self._highest.get(replica) == attempt:
                del self._highest[replica]

    def fact(self, replica: str, attempt: int) -> ReplicaEnded | PlacementRefused | None:
        """The end of the attempt, None when it is not remembered."""
        return self._facts.get((replica, attempt))

    def highest(self, replica: str) -> int:
        """The highest remembered attempt of the replica; 0 without one."""
        return self._highest.get(replica, 0)
