"""What a closer look at nodes found against requests, for as long as nothing has changed there that might help.

A class that nobody takes is asked again whenever any node has more room; the nodes that did not change need not be looked at again.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from colo_scheduler.placement.fit import Rejection
from colo_scheduler.requests.request_class import RequestClass

__all__ = ["FitRejections"]

_CLASSES_MOST: Final = 64


class FitRejections:
    """For the classes asked last, at most 64: row -> (the node's growth when it refused, why)."""

    def __init__(self) -> None:
        self._kept: OrderedDict[RequestClass, dict[int, tuple[int, Rejection]]] = OrderedDict()

    def known(self, request: RequestClass, growth_of: Callable[[int], int]) -> dict[int, Rejection]:
        """The refusals that still hold, by row; others are forgotten."""
        kept = self._kept.get(request)
        if kept is None:
            return {}
        for row in [row for row, (capacity_generation, _) in kept.items() if capacity_generation != growth_of(row)]:
            del kept[row]
        return {row: rejection for row, (_, rejection) in kept.items()}

    def note(self, request: RequestClass, row: int, capacity_generation: int, rejection: Rejection) -> None:
        """The node refused the class."""
        kept = self._kept.setdefault(request, {})
        self._kept.move_to_end(request)
        if len(self._kept) > _CLASSES_MOST:
            self._kept.popitem(last=False)
        kept[row] = (capacity_generation, rejection)
