"""Places that reservations hold, as decisions about owners see them: the book, and uses that the ledger has not confirmed.

An owner gets its reservation's place first: what the reservation has left, if it fits inside; else, unless the reservation is
restricted, that together with what is free on the node. Of several the one is taken that comes first by order, else the fuller.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from msgspec import structs

from colo_common.events.job import PlacementRequest
from colo_common.model.placement import Placement
from colo_scheduler.cluster.pool import pool_of
from colo_scheduler.cluster.snapshot import View
from colo_scheduler.ledger.port import Attempt
from colo_scheduler.placement.decide import Choice
from colo_scheduler.placement.verdicts import open_to
from colo_scheduler.requests.request_class import RequestClass
from colo_scheduler.reservations.amounts import CPU, MEMORY
from colo_scheduler.reservations.book import ReservationBook
from colo_scheduler.reservations.fit import NodeRoom, ReservationCapacity
from colo_scheduler.reservations.lifecycle import ReservationPhase
from colo_scheduler.reservations.nominate import node_scores, nominate, score
from colo_scheduler.reservations.owner_fit import choose_for_owner
from colo_scheduler.reservations.owners import Claimant, claimant_of
from colo_scheduler.reservations.remainder import Remainder, remainder_of
from colo_scheduler.reservations.reservation import offer_of

__all__ = ["NODES_MOST", "ReservationSnapshot", "Taken", "left_of", "serve"]

NODES_MOST: Final = 256
"""So many nodes with reservations are looked at for one owner, the first by name."""


class Taken(NamedTuple):
    """An owner and the place that it takes of a reservation."""

    placement_request: PlacementRequest
    choice: Choice
    reservation: str


class ReservationSnapshot:
    """The book and, over it, the uses under way. A fork is for trials: what is used there is used nowhere else."""

    def __init__(self, book: ReservationBook) -> None:
        self.book = book
        self.under_way: dict[str, dict[Attempt, Placement]] = {}

    def fork(self) -> "ReservationSnapshot":
        """Places of its own that start as these are."""
        other = ReservationSnapshot(self.book.fork())
        other.under_way = {name: dict(uses) for name, uses in self.under_way.items()}
        return other

    def use(self, placement: Placement) -> None:
        """This owner takes its place, as far as is known here."""
        attempt = (placement.replica, placement.attempt)
        self.under_way.setdefault(placement.reservation, {})[attempt] = placement

    def settle(self, name: str, attempt: Attempt) -> Placement | None:
        """A use is under way no more: it stands in the book now, or came to nothing. None when it was not."""
        uses = self.under_way.get(name, {})
        placement = uses.pop(attempt, None)
        if not uses:
            self.under_way.pop(name, None)
        return placement

    # ---- reads

    def remainder(self, name: str) -> Remainder | None:
        """What is held in the reservation's own name; None when it holds no place."""
        found = self.book.find(name)
        if found is None or found.phase is not ReservationPhase.AVAILABLE or found.place is None:
            return None
        return remainder_of(found.place, self._owners(name))

    def placement(self, name: str) -> Placement | None:
        """The same as the placement of the replica that stands for it."""
        found, left = self.book.find(name), self.remainder(name)
        if found is None or found.place is None or left is None:
            return None
        return left_of(found.place, left)

    def _owners(self, name: str) -> tuple[Placement, ...]:
        return (*self.book.owners(name), *self.under_way.get(name, {}).values())

    def offers(
        self, claimant: Claimant, placement_request: PlacementRequest, now_ms: int
    ) -> dict[str, list[ReservationCapacity]]:
        """What the owner may use, by node; only of the pool that it is placed in."""
        by_node: dict[str, list[ReservationCapacity]] = {}
        for match in self.book.matching(claimant, now_ms):
            found = self.book.find(match.name)
            if found is None or pool_of(found.spec.band) is not pool_of(placement_request.band):
                continue
            context = match.context
            if match.name in self.under_way:
                if found.spec.allocate_once:
                    continue
                context = offer_of(found.spec, self._owners(match.name))
            if match.node in by_node or len(by_node) < NODES_MOST:
                by_node.setdefault(match.node, []).append(context)
        return by_node

    def find(self, view: View, request: RequestClass, placement_request: PlacementRequest) -> Taken | None:
        """The place that the owner takes now, None when no reservation has one for it."""
        claimant = claimant_of(placement_request)
        by_node = self.offers(claimant, placement_request, view.now_ms)
        if not by_node:
            return None
        passing = open_to(view, request).passing
        found: dict[str, tuple[ReservationCapacity, Choice]] = {}
        for name, offers in by_node.items():
            row = view.rows.get(name)
            if row is not None and passing[row] and (place := self._on_node(view, row, request, claimant, offers)):
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
        self, view: View, row: int, request: RequestClass, claimant: Claimant, offers: list[ReservationCapacity]
    ) -> tuple[ReservationCapacity, Choice] | None:
        if request.is_detailed and not view.inventory_index.agrees[row]:
            return None
        numbers = view.pools[pool_of(request.band)].rows[row]
        whole = {CPU: numbers.whole_cpu, MEMORY: numbers.whole_memory}
        free = {CPU: sum(numbers.cpu), MEMORY: sum(numbers.memory)}
        room = NodeRoom(allocatable=whole, requested={name: whole[name] - free[name] for name in whole})
        named = claimant.reservation
        # A place of which nothing is left draws nobody to its node who has not named it.
        rest = [context for context in offers if named or self._has_left(context.name)]
        while (context := nominate(claimant.request, room, rest, has_affinity=bool(named), only=named)) is not None:
            choice = self._choose(view, row, request, context)
            if choice is not None:
                return context, choice
            rest = [other for other in rest if other is not context]
        return None

    def _has_left(self, name: str) -> bool:
        left = self.remainder(name)
        return left is not None and any((left.cpu_mcpu, left.memory_bytes, left.cpus, left.devices, left.huge_pages))

    def _choose(self, view: View, row: int, request: RequestClass, context: ReservationCapacity) -> Choice | None:
        left, found = self.remainder(context.name), self.book.find(context.name)
        if left is None or found is None or found.place is None:
            return None
        return choose_for_owner(view, row, request, context, found.place, left)


def serve(
    places: ReservationSnapshot,
    view: View,
    request: RequestClass,
    placement_requests: Sequence[PlacementRequest],
    take: Callable[[Taken], None],
) -> tuple[list[Taken], list[PlacementRequest]]:
    """Give the wants that own a reservation its place, in order; `take` makes view and places hold each. The others come back."""
    served: list[Taken] = []
    others: list[PlacementRequest] = []
    for placement_request in placement_requests:
        taken = places.find(view, request, placement_request)
        if taken is None:
            others.append(placement_request)
            continue
        take(taken)
        served.append(taken)
    return served, others


def left_of(place: Placement, left: Remainder) -> Placement:
    """The placement with only what is left of it."""
    return structs.replace(
        place,
        zones=left.zones,
        cpu_mcpu=left.cpu_mcpu,
        memory_bytes=left.memory_bytes,
        cpus=left.cpus,
        devices=left.devices,
        huge_pages=left.huge_pages,
    )
