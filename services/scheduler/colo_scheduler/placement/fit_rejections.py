"""The rejections of the exact fit, each kept until its node can hold more.

A class that no node takes is decided again whenever any node can hold more; the nodes that did not change are not tried again.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from colo_scheduler.placement.fit import Rejection
from colo_scheduler.requests.request_class import RequestClass

__all__ = ["FitRejections"]

_CLASSES_MOST: Final = 64


class FitRejections:
    """For the classes decided last, at most 64: row -> (the node's capacity generation at the rejection, the rejection)."""

    def __init__(self) -> None:
        self._kept: OrderedDict[RequestClass, dict[int, tuple[int, Rejection]]] = OrderedDict()

    def known(self, request: RequestClass, growth_of: Callable[[int], int]) -> dict[int, Rejection]:
        """The rejections that still hold, by row; others are deleted."""
        kept = self._kept.get(request)
        if kept is None:
            return {}
        for row in [row for row, (capacity_generation, _) in kept.items() if capacity_generation != growth_of(row)]:
            del kept[row]
        return {row: rejection for row, (_, rejection) in kept.items()}

    def note(self, request: RequestClass, row: int, capacity_generation: int, rejection: Rejection) -> None:
        """Keep the node's rejection of the class."""
        kept = self._kept.setdefault(request, {})
        self._kept.move_to_end(request)
        if len(self._kept) > _CLASSES_MOST:
            self._kept.popitem(last=False)
        kept[row] = (capacity_generation, rejection)
