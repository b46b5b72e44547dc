"""Whether a request fits with the help of a reservation: on the node, and inside the reservation's remaining amounts.

Beyond the boundary: under `default` and `aligned` a request may use the reservation's remaining amounts and the node's free
amounts; under `restricted` the named resources must come from the reservation alone. Figures as in
koordinator-sh/koordinator:pkg/scheduler/plugins/reservation/plugin.go:

    node:         request <= allocatable - (requested - left(this) - consumed(all matched))
    reservation:  request <= reserved - withheld - consumed
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from colo_common.model.reservation import AllocatePolicy
from colo_common.model.resource_list import CPU, MEMORY
from colo_scheduler.reservations.amounts import EPHEMERAL_STORAGE, REPLICAS, Amounts, plus, room_left

__all__ = [
    "NodeRoom",
    "ReservationCapacity",
    "Short",
    "fits_node",
    "fits_reservation",
    "offers_that_fit",
    "policies_conflict",
    "restricted_names",
]

_NOTHING: Final[Amounts] = {}


class ReservationCapacity(Struct, frozen=True, kw_only=True):
    """One reservation's amounts on a node: `allocatable` is reserved, owners hold `allocated` of it, `withheld` is for no owner.

    `names` are the resources that it controls; `owners` how many use it now; `order`: the smallest is used first, 0 means none.
    """

    name: str
    policy: AllocatePolicy = AllocatePolicy.DEFAULT
    names: tuple[str, ...] = ()
    allocatable: dict[str, int] = {}
    allocated: dict[str, int] = {}
    withheld: dict[str, int] = {}
    owners: int = 0
    allocate_once: bool = True
    order: int = 0

    @property
    def left(self) -> dict[str, int]:
        """The amounts open to further owners: max(0, allocatable - allocated - withheld)."""
        return room_left(self.allocatable, plus(self.allocated, self.withheld))


class NodeRoom(Struct, frozen=True, kw_only=True):
    """A node's amounts: `requested` counts reservations and owners both, `consumed` is the owners' part of matched reservations.

    `replicas` counts reservations too. `allocatable["pods"]` limits the count of replicas; without it there is no limit.
    """

    allocatable: dict[str, int]
    requested: dict[str, int]
    consumed: dict[str, int] = {}
    replicas: int = 0


class Short(Struct, frozen=True, kw_only=True):
    """A resource short in a reservation: the requested amount with the owners' amounts, and the whole amount for owners."""

    name: str
    requested: int
    used: int
    capacity: int

    @property
    def sentence(self) -> str:
        """The reason in words."""
        what = "Too many pods" if self.name == REPLICAS else f"Insufficient {self.name}"
        return f"Reservation(s) {what}, requested: {self.requested}, used: {self.used}, capacity: {self.capacity}"


def restricted_names(reserved: Sequence[str], options: Sequence[str]) -> tuple[str, ...]:
    """The resources that a restricted reservation controls: those of `options` that it reserves; if none, all."""
    return tuple(name for name in reserved if name in options) or tuple(reserved)


def policies_conflict(new: AllocatePolicy, others: Sequence[AllocatePolicy]) -> bool:
    """Whether a reservation of this policy must not be placed on a node with the others."""
    return any(new is not other and AllocatePolicy.DEFAULT in (new, other) for other in others)


def fits_node(request: Amounts, room: NodeRoom, matched: int, *, left: Amounts = _NOTHING) -> tuple[str, ...]:
    """The resources that are short, none when the request fits. `matched` reservations do not count as replicas.

    CPU, memory and ephemeral storage are tested even when they are not requested: a node that has promised too much of one of these
    resources takes nothing more.
    """
    short: list[str] = []
    most = room.allocatable.get(REPLICAS)
    if most is not None and room.replicas - matched + 1 > most:
        short.append(REPLICAS)
    scalars = sorted(set(request) - {CPU, MEMORY, EPHEMERAL_STORAGE, REPLICAS})
    if not scalars and not any(request.get(name) for name in (CPU, MEMORY, EPHEMERAL_STORAGE)):
        return tuple(short)
    for name in (CPU, MEMORY, EPHEMERAL_STORAGE, *scalars):
        used = room.requested.get(name, 0) - left.get(name, 0) - room.consumed.get(name, 0)
        if request.get(name, 0) > room.allocatable.get(name, 0) - used:
            short.append(name)
    return tuple(short)


def fits_reservation(request: Amounts, context: ReservationCapacity) -> tuple[Short, ...]:
    """The resources of which the reservation alone has too little, none when the request fits inside it."""
    short: list[Short] = []
    if REPLICAS in context.allocatable and context.owners + 1 > context.allocatable[REPLICAS]:
        most = context.allocatable[REPLICAS]
        short.append(Short(name=REPLICAS, requested=1, used=context.owners, capacity=most))
    for name in context.names:
        wanted = request.get(name, 0)
        if wanted == 0 or name == REPLICAS:
            continue
        used = context.allocated.get(name, 0)
        capacity = context.allocatable.get(name, 0) - context.withheld.get(name, 0)
        if wanted > capacity - used:
            short.append(Short(name=name, requested=wanted, used=used, capacity=capacity))
    return tuple(short)


def offers_that_fit(
    request: Amounts,
    room: NodeRoom,
    offers: Sequence[ReservationCapacity],
    *,
    has_affinity: bool,
    only: str = "",
) -> tuple[ReservationCapacity, ...]:
    """The matched reservations that this request can use, in their order: unused when they allow one use, and large enough.

    A reservation that shares no resource with the request is left out, unless the request must come from a reservation.
    """
    return tuple(
        context
        for context in offers
        if not (context.allocate_once and context.owners)
        and only in ("", context.name)
        and (has_affinity or any(name in request for name in context.names))
        and not fits_node(request, room, len(offers), left=context.left)
        and not (context.policy is AllocatePolicy.RESTRICTED and fits_reservation(request, context))
    )
