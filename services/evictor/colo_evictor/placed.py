"""What is placed on one node, from placement events and from the scheduler's lists of holds."""

from collections.abc import Collection, Mapping

from colo_common.events.requests import HoldEntry
from colo_common.model.dropped_attempts import DroppedAttempts
from colo_common.model.placement import attempt_key

__all__ = ["Placed"]


class Placed:
    """The holds of a node by attempt. A dropped attempt is not taken again (the last 1,000 are remembered): lists may be older."""

    def __init__(self) -> None:
        self._holds: dict[str, HoldEntry] = {}
        self._taken_ms: dict[str, int] = {}
        self._dropped = DroppedAttempts()

    def take(self, hold: HoldEntry, now_ms: int) -> None:
        """Add the hold of an attempt, unless it is known or was dropped."""
        key = attempt_key(hold.replica, hold.attempt)
        if key not in self._holds and key not in self._dropped:
            self._holds[key] = hold
            self._taken_ms[key] = now_ms

    def drop(self, key: str) -> None:
        """Remove an attempt for good."""
        self._remove(key)
        self._dropped.add(key)

    def keep(self, keys: Collection[str], before_ms: int) -> None:
        """Remove the attempts that were taken before `before_ms` and are not in `keys`."""
        for key in [key for key, taken_ms in self._taken_ms.items() if taken_ms < before_ms and key not in keys]:
            self._remove(key)

    @property
    def holds(self) -> Mapping[str, HoldEntry]:
        """The holds by attempt."""
        return self._holds

    def get(self, key: str) -> HoldEntry | None:
        """The hold of an attempt, or None."""
        return self._holds.get(key)

    def __len__(self) -> int:
        return len(self._holds)

    def _remove(self, key: str) -> None:
        self._holds.pop(key, None)
        self._taken_ms.pop(key, None)
