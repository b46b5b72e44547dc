"""Which senders of orders to this node were replaced: the newest term that gave orders of each kind.

Where the jobs are divided among instances, each partition of them has terms of its own. A term of another number of partitions is
of a time before or after: all terms of that time are lower, or higher, than all of this one.
"""

import re
from collections.abc import Iterable
from typing import Final

from colo_common.model.invalid import InvalidInput
from colo_common.model.partition import PARTITIONS_MAX

__all__ = ["ORDER_PATTERN", "OrderTerms", "order_of"]

#: Of the name of who gives orders.
ORDER_PATTERN: Final = r"^(?P<kind>stop|evict)(-(?P<partition>[0-9]{1,3})-of-(?P<partitions>[0-9]{1,3}))?$"
_ORDER: Final = re.compile(ORDER_PATTERN)


def order_of(kind: str, partition: int, partitions: int) -> str:
    """The name of who gives such orders: "stop", or "stop-2-of-4" for one partition. Raises InvalidInput for one that cannot be."""
    if partitions == 1 and not partition:
        return kind
    if not 1 < partitions <= PARTITIONS_MAX:
        raise InvalidInput("partitions", f"must be from 1 to {PARTITIONS_MAX}", partitions)
    if partition >= partitions:
        raise InvalidInput("partition", f"must be below {partitions}, the number of partitions", partition)
    return f"{kind}-{partition}-of-{partitions}"


class OrderTerms:
    """The newest term by the name of who gives the orders, of one number of partitions for each kind of order."""

    def __init__(self, known: Iterable[tuple[str, int]] = ()) -> None:
        self._newest: dict[str, int] = {}
        for order, generation in known:
            self.note(order, generation)

    def items(self) -> list[tuple[str, int]]:
        """All of them, by name."""
        return sorted(self._newest.items())

    def least(self, order: str) -> int:
        """The lowest term that an order of this sender may have."""
        kind, partitions = _parts(order)
        others = [
            generation
            for other, generation in self._newest.items()
            if _parts(other)[0] == kind and _parts(other)[1] != partitions
        ]
        return max([self._newest.get(order, 0), *others])

    def note(self, order: str, generation: int) -> bool:
        """Take a term; those of another number of partitions are over then. Whether it is newer than what was known."""
        if generation <= self.least(order):
            return False
        kind, partitions = _parts(order)
        for other in tuple(self._newest):
            its_kind, its_partitions = _parts(other)
            if its_kind == kind and its_partitions != partitions:
                del self._newest[other]
        self._newest[order] = generation
        return True


def _parts(order: str) -> tuple[str, int]:
    """The kind of the order, and the number of partitions. Raises InvalidInput for what is no such name."""
    match = _ORDER.match(order)
    if match is None:
        raise InvalidInput("order", "must be a kind of order, or that of one partition", order)
    return match["kind"], int(match["partitions"] or 1)
