"""Which of the fitting reservations is used, and how nodes with a nominated reservation rank.

The smallest order wins; without orders the reservation that the request fills most (koordinator-sh/koordinator:reservation/
{nominator,scoring}.go). Ties go to the first one, so that the same input gives the same result.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from colo_scheduler.reservations.amounts import Amounts, plus
from colo_scheduler.reservations.fit import NodeRoom, ReservationCapacity, offers_that_fit

__all__ = [
    "MOST_PREFERRED",
    "first_by_order",
    "node_scores",
    "nominate",
    "pre_allocation_score",
    "score",
]

MOST_PREFERRED: Final = 1000
"""The score of the node that holds the reservation of the smallest order, before scores are normalised to 100."""
_MOST: Final = 100


def score(request: Amounts, context: ReservationCapacity) -> int:
    """0..100, fuller is better: the mean over reserved resources of 100 * (request + allocated) / allocatable, each rounded down.

    A resource that would be overfull counts as 0.
    """
    filled = plus(request, context.allocated)
    capacities = {name: amount for name, amount in context.allocatable.items() if amount > 0}
    if not capacities:
        return 0
    used = {name: filled.get(name, 0) for name in capacities}
    parts = [_MOST * used[name] // amount for name, amount in capacities.items() if used[name] <= amount]
    return sum(parts) // len(capacities)


def first_by_order(offers: Sequence[ReservationCapacity]) -> ReservationCapacity | None:
    """The reservation with the smallest order that is not 0, or None when all orders are 0."""
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
    """The reservation to use on a node, None when no matched reservation can be used.

    The only match of a request that must use a reservation is returned as it is. `kept` names an earlier nomination, which stays;
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
    return first_by_order(fitting) or max(fitting, key=lambda context: score(request, context))


def node_scores(nominated: Mapping[str, int], orders: Mapping[str, int]) -> dict[str, int]:
    """A score for each node, by name: its nominated reservation's score, 1000 for the node of the smallest order that is not 0."""
    ordered = [(order, node) for node, order in orders.items() if order != 0 and node in nominated]
    scores = dict(nominated)
    if ordered:
        scores[min(ordered)[1]] = MOST_PREFERRED
    return scores


def pre_allocation_score(used: int) -> int:
    """The score of a node where a reservation would be placed over `used` running owners: 100 / (1 + used), rounded down."""
    return _MOST // (1 + used)
