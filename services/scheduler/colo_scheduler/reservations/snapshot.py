"""The places of reservations, as decisions about owners see them: the book, and uses that the ledger has not confirmed."""

from typing import Final

from msgspec import structs

from colo_common.events.job import PlacementRequest
from colo_common.model.placement import Attempt, Placement
from colo_scheduler.cluster.pool import pool_of
from colo_scheduler.reservations.book import ReservationBook
from colo_scheduler.reservations.fit import ReservationCapacity
from colo_scheduler.reservations.lifecycle import ReservationPhase
from colo_scheduler.reservations.owners import Claimant
from colo_scheduler.reservations.remainder import Remainder, remainder_of
from colo_scheduler.reservations.reservation import offer_of

__all__ = ["NODES_MOST", "ReservationSnapshot", "left_of"]

NODES_MOST: Final = 256
"""The most nodes with reservations that are tried for one owner, the first by name."""


class ReservationSnapshot:
    """The book and, over it, the uses in flight. A fork is for trials: a use in a fork is used nowhere else."""

    def __init__(self, book: ReservationBook) -> None:
        self.book = book
        self.under_way: dict[str, dict[Attempt, Placement]] = {}

    def fork(self) -> "ReservationSnapshot":
        """An independent snapshot with the same content."""
        other = ReservationSnapshot(self.book.fork())
        other.under_way = {name: dict(uses) for name, uses in self.under_way.items()}
        return other

    def use(self, placement: Placement) -> None:
        """Add an owner's use that the ledger has not confirmed."""
        attempt = (placement.replica, placement.attempt)
        self.under_way.setdefault(placement.reservation, {})[attempt] = placement

    def settle(self, name: str, attempt: Attempt) -> Placement | None:
        """Remove and return a use in flight, because the book has it or it was refused; None when there was none."""
        uses = self.under_way.get(name, {})
        placement = uses.pop(attempt, None)
        if not uses:
            self.under_way.pop(name, None)
        return placement

    # ---- reads

    def remainder(self, name: str) -> Remainder | None:
        """The part held in the reservation's own name; None when it holds no place."""
        found = self.book.find(name)
        if found is None or found.phase is not ReservationPhase.AVAILABLE or found.place is None:
            return None
        return remainder_of(found.place, self._owners(name))

    def placement(self, name: str) -> Placement | None:
        """The remainder as the placement of the replica that stands for the reservation."""
        found, left = self.book.find(name), self.remainder(name)
        if found is None or found.place is None or left is None:
            return None
        return left_of(found.place, left)

    def _owners(self, name: str) -> tuple[Placement, ...]:
        return (*self.book.owners(name), *self.under_way.get(name, {}).values())

    def offers(
        self, claimant: Claimant, placement_request: PlacementRequest, now_ms: int
    ) -> dict[str, list[ReservationCapacity]]:
        """The reservations that the owner may use, by node; only of the pool in which it is placed."""
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

    def has_left(self, name: str) -> bool:
        """Whether the reservation holds a part that no owner has."""
        left = self.remainder(name)
        return left is not None and any((left.cpu_mcpu, left.memory_bytes, left.cpus, left.devices, left.huge_pages))


def left_of(place: Placement, left: Remainder) -> Placement:
    """The placement with the amounts of the remainder only."""
    return structs.replace(
        place,
        zones=left.zones,
        cpu_mcpu=left.cpu_mcpu,
        memory_bytes=left.memory_bytes,
        cpus=left.cpus,
        devices=left.devices,
        huge_pages=left.huge_pages,
    )
