"""Chooses the reservation in whose place an owner is placed.

An owner is placed in its reservation first: in the remainder, if it fits inside; else, unless the reservation is restricted, in the
remainder and the node's free capacity together. Of several reservations the first by order is used, else the fuller.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from colo_common.events.job import PlacementRequest
from colo_scheduler.cluster.pool import pool_of
from colo_scheduler.cluster.snapshot import View
from colo_scheduler.placement.decide import Choice
from colo_scheduler.placement.verdicts import open_to
from colo_scheduler.requests.request_class import RequestClass
from colo_scheduler.reservations.amounts import CPU, MEMORY
from colo_scheduler.reservations.fit import NodeRoom, ReservationCapacity
from colo_scheduler.reservations.nominate import node_scores, nominate, score
from colo_scheduler.reservations.owner_fit import choose_for_owner
from colo_scheduler.reservations.owners import Claimant, claimant_of
from colo_scheduler.reservations.snapshot import ReservationSnapshot

__all__ = ["Taken", "serve"]


class Taken(NamedTuple):
    """An owner and its place in a reservation."""

    placement_request: PlacementRequest
    choice: Choice
    reservation: str


def serve(
    places: ReservationSnapshot,
    view: View,
    request: RequestClass,
    placement_requests: Sequence[PlacementRequest],
    take: Callable[[Taken], None],
) -> tuple[list[Taken], list[PlacementRequest]]:
    """Place the owners among the requests, in order; `take` makes view and places hold each. Returns them and the rest."""
    served: list[Taken] = []
    others: list[PlacementRequest] = []
    for placement_request in placement_requests:
        taken = _find_for_owner(places, view, request, placement_request)
        if taken is None:
            others.append(placement_request)
            continue
        take(taken)
        served.append(taken)
    return served, others


def _find_for_owner(
    places: ReservationSnapshot, view: View, request: RequestClass, placement_request: PlacementRequest
) -> Taken | None:
    """The owner's place now, None when no reservation has one for it."""
    claimant = claimant_of(placement_request)
    by_node = places.offers(claimant, placement_request, view.now_ms)
    if not by_node:
        return None
    passing = open_to(view, request).passing
    found: dict[str, tuple[ReservationCapacity, Choice]] = {}
    for name, offers in by_node.items():
        row = view.rows.get(name)
        if row is not None and passing[row] and (place := _on_node(places, view, row, request, claimant, offers)):
            found[name] = place
    if not found:
        return None
    scores = node_scores(
        {name: score(claimant.request, context) for name, (context, _) in found.items()},
        {name: context.order for name, (context, _) in found.items()},
    )
    context, choice = found[min(found, key=lambda name: (-scores[name], name))]
    return Taken(placement_request, choice._replace(reservation=context.name), context.name)


def _on_node(
    places: ReservationSnapshot,
    view: View,
    row: int,
    request: RequestClass,
    claimant: Claimant,
    offers: list[ReservationCapacity],
) -> tuple[ReservationCapacity, Choice] | None:
    if request.is_detailed and not view.inventory_index.agrees[row]:
        return None
    numbers = view.pools[pool_of(request.band)].rows[row]
    whole = {CPU: numbers.whole_cpu, MEMORY: numbers.whole_memory}
    free = {CPU: sum(numbers.cpu), MEMORY: sum(numbers.memory)}
    room = NodeRoom(allocatable=whole, requested={name: whole[name] - free[name] for name in whole})
    named = claimant.reservation
    # A reservation without a remainder attracts only owners that name it to its node.
    rest = [context for context in offers if named or places.has_left(context.name)]
    while (context := nominate(claimant.request, room, rest, has_affinity=bool(named), only=named)) is not None:
        choice = _choose(places, view, row, request, context)
        if choice is not None:
            return context, choice
        rest = [other for other in rest if other is not context]
    return None


def _choose(
    places: ReservationSnapshot, view: View, row: int, request: RequestClass, context: ReservationCapacity
) -> Choice | None:
    left, found = places.remainder(context.name), places.book.find(context.name)
    if left is None or found is None or found.place is None:
        return None
    return choose_for_owner(view, row, request, context, found.place, left)
