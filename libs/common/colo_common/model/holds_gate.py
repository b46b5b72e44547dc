"""The start gate of a service that must know what is held before it acts."""

from typing import Final

__all__ = ["HoldsGate"]

_UNSTEADY_LISTS: Final = 3


class HoldsGate:
    """Closed until the scheduler's holds are listed; once open it stays open."""

    def __init__(self, *, is_open: bool = False) -> None:
        self.is_open = is_open
        self._unsteady = 0

    def listed(self, *, is_complete: bool) -> bool:
        """Take note of a list of holds; True when the gate opens with it.

        Under constant change no list is complete. What one of three lists lacks is in another, or was published meanwhile.
        """
        if self.is_open:
            return False
        self._unsteady += not is_complete
        self.is_open = is_complete or self._unsteady >= _UNSTEADY_LISTS
        return self.is_open
