"""Which of the reservations that fit is used, and how nodes rank that have one.

The smallest order wins; without orders the one that the request fills most (koordinator-sh/koordinator:reservation/{nominator,
scoring}.go). Between equals the first one, so that the same input gives the same answer.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from colo_scheduler.reservations.amounts import Amounts, plus, room_left
from colo_scheduler.reservations.fit import NodeRoom, ReservationCapacity, offers_that_fit

__all__ = [
    "MOST_PREFERRED",
    "first_by_order",
    "node_scores",
    "nominate",
    "normalize",
    "order_of",
    "pre_allocation_score",
    "score",
]

MOST_PREFERRED: Final = 1000
"""The score of the node that holds the reservation of the smallest order, before scores are normalised to 100."""
_MOST: Final = 100
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_INT64_MOST: Final = (1 << 63) - 1


def order_of(text: str) -> int:
    """The order written in a label; 0, which says nothing, for any text that is no whole number of 64 bits."""
    if not _WHOLE_NUMBER.fullmatch(text):
        return 0
    order = int(text)
    return order if -_INT64_MOST - 1 <= order <= _INT64_MOST else 0


def score(request: Amounts, context: ReservationCapacity, *, reusable: Amounts | None = None) -> int:
    """0..100, fuller is better: the mean over what is reserved of 100 * (request + allocated) / allocatable, each rounded down.

    A resource that would be overfull counts as 0.
    """
    allocated = room_left(context.allocated, reusable) if reusable else context.allocated
    filled = plus(request, allocated)
    capacities = {name: amount for name, amount in context.allocatable.items() if amount > 0}
    if not capacities:
        return 0
    used = {name: filled.get(name, 0) for name in capacities}
    parts = [_MOST * used[name] // amount for name, amount in capacities.items() if used[name] <= amount]
    return sum(parts) // len(capacities)


def first_by_order(offers: Sequence[ReservationCapacity]) -> ReservationCapacity | None:
    """The one with the smallest order that is not 0, or None when none has one."""
    return min((context for context in offers if context.order != 0), key=lambda context: context.order, default=None)


def nominate(
    request: Amounts,
    room: NodeRoom,
    offers: Sequence[ReservationCapacity],
    *,
    has_affinity: bool,
    kept: str = "",
    only: str = "",
) -> ReservationCapacity | None:
    """The reservation to use on a node, None when none of the matched ones can be used.

    The only match of a request that must use a reservation is taken as it is. `kept` names an earlier nomination, which stays;
    `only` the one reservation that may be used.
    """
    if len(offers) == 1 and has_affinity:
        return offers[0]
    earlier = next((context for context in offers if kept and context.name == kept), None)
    if earlier is not None:
        return earlier
    fitting = offers_that_fit(request, room, offers, has_affinity=has_affinity, only=only)
    if len(fitting) < 2:
        return fitting[0] if fitting else None
    return first_by_order(fitting) or max(
        fitting, key=lambda context: score(request, context, reusable=room.reusable_in.get(context.name))
    )


def node_scores(nominated: Mapping[str, int], orders: Mapping[str, int]) -> dict[str, int]:
    """A score for each node, by name: that of its nominated reservation, 1000 for the node of the smallest order that is not 0."""
    ordered = [(order, node) for node, order in orders.items() if order != 0 and node in nominated]
    scores = dict(nominated)
    if ordered:
        scores[min(ordered)[1]] = MOST_PREFERRED
    return scores


def normalize(scores: Mapping[str, int]) -> dict[str, int]:
    """Stretch scores so that the largest becomes 100, rounded down; all 0 stay 0."""
    most = max(scores.values(), default=0)
    return {name: value * _MOST // most if most > 0 else value for name, value in scores.items()}


def pre_allocation_score(used: int) -> int:
    """The score of a node where a reservation would be placed over `used` running owners: 100 / (1 + used), rounded down."""
    return _MOST // (1 + used)
