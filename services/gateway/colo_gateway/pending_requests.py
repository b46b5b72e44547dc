"""The requests to a core that keeps one row: those whose write may still be refused, and those that must be decided again."""

from collections import OrderedDict
from typing import Final

from colo_common.events.effects import RequestReceived

__all__ = ["PendingRequests"]

_WRITING_MOST: Final = 64


class PendingRequests:
    """Requests by the version of the row that their write expects: the conflict of a refused write names that version.

    The newest 64 are kept. A write that is not refused is never reported, so the older ones are forgotten in turn; a request
    that was forgotten and is refused afterwards gets no reply, and its client asks again.
    """

    def __init__(self) -> None:
        self._writing: OrderedDict[int, RequestReceived] = OrderedDict()
        self._refused: list[RequestReceived] = []

    def writing(self, expected: int, request: RequestReceived) -> None:
        """A request was answered by a write that expects this version of the row."""
        self._writing[expected] = request
        if len(self._writing) > _WRITING_MOST:
            self._writing.popitem(last=False)

    def refused(self, expected: int) -> None:
        """The store refused the write that expected this version: its request, if there is one, is decided again."""
        if (request := self._writing.pop(expected, None)) is not None:
            self._refused.append(request)

    def take_refused(self) -> list[RequestReceived]:
        """The requests to decide again, oldest first; they are handed over once."""
        refused, self._refused = self._refused, []
        return refused
