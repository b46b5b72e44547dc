"""The attempts that gave up what they held."""

from typing import Final

__all__ = ["DroppedAttempts"]

_KEPT: Final = 1_000


class DroppedAttempts:
    """The keys of the last 1,000 dropped attempts: an attempt holds once, and messages and lists come out of order."""

    def __init__(self) -> None:
        self._keys: dict[str, None] = {}

    def add(self, key: str) -> None:
        """Remember an attempt; above 1,000 the one that was dropped first is forgotten."""
        self._keys[key] = None
        if len(self._keys) > _KEPT:
            del self._keys[next(iter(self._keys))]

    def __contains__(self, key: str) -> bool:
        return key in self._keys
