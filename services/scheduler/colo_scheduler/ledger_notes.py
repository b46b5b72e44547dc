"""What the ledger is to be told besides new places: those that are free again, and those whose order a node has carried out."""

from typing import Final

from colo_common.events.effects import Effect
from colo_scheduler.ledger import CALL_MAX, Attempt, ConfirmHolds, ReleaseHolds

__all__ = ["LedgerNotes"]

#: What started is written so much later, many at once. What ended before that is released and needs nothing else; after a crash
#: the orders of the others are sent once more, which changes nothing on their nodes.
_CONFIRM_AFTER_MS: Final = 1_000


class LedgerNotes:
    """Each attempt once, in the order in which they came; a place is free again at the next `take`."""

    def __init__(self) -> None:
        self._ended: dict[Attempt, None] = {}
        self._started: dict[Attempt, None] = {}
        #: When `take` gives what started; None while nothing did.
        self.confirm_at_ms: int | None = None

    @property
    def is_hurried(self) -> bool:
        """Whether a place is to be released."""
        return bool(self._ended)

    def ended(self, attempt: Attempt) -> None:
        """Its place is to be released."""
        self._started.pop(attempt, None)
        self._ended[attempt] = None

    def started(self, attempt: Attempt, now_ms: int) -> None:
        """Its order was carried out."""
        self._started[attempt] = None
        if self.confirm_at_ms is None:
            self.confirm_at_ms = now_ms + _CONFIRM_AFTER_MS

    def take(self, now_ms: int) -> list[Effect]:
        """What ended since the last call and, now and then, what started and has not ended since, in calls of CALL_MAX."""
        effects: list[Effect] = [ReleaseHolds(attempts=attempts) for attempts in _calls(self._ended)]
        self._ended.clear()
        if self.confirm_at_ms is not None and now_ms >= self.confirm_at_ms:
            effects += [ConfirmHolds(attempts=attempts) for attempts in _calls(self._started)]
            self._started.clear()
            self.confirm_at_ms = None
        return effects


def _calls(attempts: dict[Attempt, None]) -> list[tuple[Attempt, ...]]:
    each = list(attempts)
    return [tuple(each[at : at + CALL_MAX]) for at in range(0, len(each), CALL_MAX)]
