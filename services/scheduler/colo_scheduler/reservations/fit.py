"""Whether a request fits with the help of a reservation: on the node, and inside what the reservation has left.

Beyond the boundary: under `default` and `aligned` a request may use what the reservation has left and what is free on the node;
under `restricted` the named resources must come from the reservation alone. Figures as in
koordinator-sh/koordinator:pkg/scheduler/plugins/reservation/plugin.go:

    node:         request <= allocatable - (requested - left(this) - consumed(all matched) - reusable)
    reservation:  request <= reserved - withheld - max(0, consumed - reusable)
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from colo_common.model.reservation import AllocatePolicy
from colo_scheduler.reservations.amounts import CPU, EPHEMERAL_STORAGE, MEMORY, REPLICAS, Amounts, plus, room_left

__all__ = [
    "NOTHING_MATCHES",
    "NOTHING_MEETS",
    "IgnoredReservations",
    "NodeRoom",
    "ReservationCapacity",
    "ReservationRefused",
    "Short",
    "fits_node",
    "fits_reservation",
    "offers_that_fit",
    "policies_conflict",
    "refusal_of",
    "restricted_names",
]

NOTHING_MATCHES: Final = "node(s) no reservations match reservation affinity"
NOTHING_MEETS: Final = "node(s) no reservation(s) to meet the requirements"
_NOTHING: Final[Amounts] = {}


class ReservationCapacity(Struct, frozen=True, kw_only=True):
    """One reservation on a node, in numbers: `allocatable` is reserved, `allocated` of it is with owners, `withheld` is for nobody.

    `names` are the resources that it controls; `owners` how many use it now; `order`: a smaller one is used first, 0 says nothing.
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
        """What owners may still take: max(0, allocatable - allocated - withheld)."""
        return room_left(self.allocatable, plus(self.allocated, self.withheld))


class NodeRoom(Struct, frozen=True, kw_only=True):
    """A node in numbers: `requested` counts reservations and owners both, `consumed` is what owners took from the matched ones.

    `reusable` would be free if something left; `reusable_in` likewise, by reservation. `replicas` counts reservations too.
    `allocatable["pods"]` limits the count of replicas; without it there is no limit.
    """

    allocatable: dict[str, int]
    requested: dict[str, int]
    consumed: dict[str, int] = {}
    replicas: int = 0
    reusable: dict[str, int] = {}
    reusable_in: dict[str, dict[str, int]] = {}


class IgnoredReservations(Struct, frozen=True, kw_only=True):
    """Resources that other parts of the system look after: by name, or by the part of a name before "/"."""

    names: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def has(self, name: str) -> bool:
        """Whether the resource is ignored; CPU, memory, ephemeral storage and the replica count never are."""
        if name in (CPU, MEMORY, EPHEMERAL_STORAGE, REPLICAS):
            return False
        group, slash, _ = name.partition("/")
        return name in self.names or (bool(slash) and group in self.groups)


_NONE_IGNORED: Final = IgnoredReservations()


class Short(Struct, frozen=True, kw_only=True):
    """One resource of a reservation that is not enough: asked for, with owners, and what there is for owners in all."""

    name: str
    requested: int
    used: int
    capacity: int

    def sentence(self, *, with_amounts: bool) -> str:
        """The reason in words."""
        what = "Too many pods" if self.name == REPLICAS else f"Insufficient {self.name}"
        if not with_amounts:
            return f"Reservation(s) {what}"
        return f"Reservation(s) {what}, requested: {self.requested}, used: {self.used}, capacity: {self.capacity}"


class ReservationRefused(Struct, frozen=True, kw_only=True):
    """Why no reservation helps and the node alone does not either."""

    reasons: tuple[str, ...]


def restricted_names(reserved: Sequence[str], options: Sequence[str]) -> tuple[str, ...]:
    """The resources that a restricted reservation controls: those of `options` that it reserves; all, when there are none."""
    return tuple(name for name in reserved if name in options) or tuple(reserved)


def policies_conflict(new: AllocatePolicy, others: Sequence[AllocatePolicy]) -> bool:
    """Whether a reservation of this policy must not come to a node with the others."""
    return any(new is not other and AllocatePolicy.DEFAULT in (new, other) for other in others)


def fits_node(
    request: Amounts,
    room: NodeRoom,
    matched: int,
    *,
    left: Amounts = _NOTHING,
    reusable: Amounts = _NOTHING,
    ignored: IgnoredReservations = _NONE_IGNORED,
) -> tuple[str, ...]:
    """The resources that are short, none when the request fits. `matched` reservations do not count as replicas.

    CPU, memory and ephemeral storage are looked at even when they are not asked for: a node that has promised too much of one of
    them takes nothing more.
    """
    short: list[str] = []
    most = room.allocatable.get(REPLICAS)
    if most is not None and room.replicas - matched + 1 > most:
        short.append(REPLICAS)
    scalars = sorted(set(request) - {CPU, MEMORY, EPHEMERAL_STORAGE, REPLICAS})
    if not scalars and not any(request.get(name) for name in (CPU, MEMORY, EPHEMERAL_STORAGE)):
        return tuple(short)
    for name in (CPU, MEMORY, EPHEMERAL_STORAGE, *scalars):
        if ignored.has(name):
            continue
        used = room.requested.get(name, 0) - left.get(name, 0) - room.consumed.get(name, 0) - reusable.get(name, 0)
        if request.get(name, 0) > room.allocatable.get(name, 0) - used:
            short.append(name)
    return tuple(short)


def fits_reservation(
    request: Amounts,
    context: ReservationCapacity,
    *,
    reusable: Amounts = _NOTHING,
    ignored: IgnoredReservations = _NONE_IGNORED,
) -> tuple[Short, ...]:
    """What the reservation alone lacks, none when the request fits inside it. `reusable` would be free in it."""
    short: list[Short] = []
    if REPLICAS in context.allocatable:
        used = context.owners - reusable.get(REPLICAS, 0)
        if used + 1 > context.allocatable[REPLICAS]:
            short.append(Short(name=REPLICAS, requested=1, used=used, capacity=context.allocatable[REPLICAS]))
    for name in context.names:
        wanted = request.get(name, 0)
        if wanted == 0 or name == REPLICAS or ignored.has(name):
            continue
        used = max(0, context.allocated.get(name, 0) - reusable.get(name, 0))
        capacity = context.allocatable.get(name, 0) - context.withheld.get(name, 0)
        if wanted > capacity - used:
            short.append(Short(name=name, requested=wanted, used=used, capacity=capacity))
    return tuple(short)


class _Checked(Struct, frozen=True, kw_only=True):
    by_node: tuple[str, ...]
    by_reservation: tuple[Short, ...]

    @property
    def fits(self) -> bool:
        return not self.by_node and not self.by_reservation


def _check(
    request: Amounts,
    room: NodeRoom,
    context: ReservationCapacity,
    matched: int,
    ignored: IgnoredReservations,
    *,
    checks_node: bool,
) -> _Checked:
    inside: Mapping[str, int] = room.reusable_in.get(context.name, _NOTHING)
    by_node = (
        fits_node(request, room, matched, left=context.left, reusable=plus(room.reusable, inside), ignored=ignored)
        if checks_node
        else ()
    )
    by_reservation = (
        fits_reservation(request, context, reusable=inside, ignored=ignored)
        if context.policy is AllocatePolicy.RESTRICTED
        else ()
    )
    return _Checked(by_node=by_node, by_reservation=by_reservation)


def offers_that_fit(
    request: Amounts,
    room: NodeRoom,
    offers: Sequence[ReservationCapacity],
    *,
    has_affinity: bool,
    only: str = "",
    ignored: IgnoredReservations = _NONE_IGNORED,
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
        and _check(request, room, context, len(offers), ignored, checks_node=True).fits
    )


def refusal_of(
    request: Amounts,
    room: NodeRoom,
    offers: Sequence[ReservationCapacity],
    *,
    has_affinity: bool,
    only: str = "",
    skips_node: bool = False,
    ignored: IgnoredReservations = _NONE_IGNORED,
) -> ReservationRefused | None:
    """None when the request may be placed on the node: through one of the matched reservations or, without affinity, beside them.

    `only` names the one reservation that may be used; reasons about it carry amounts. `skips_node` leaves the node's figures to
    someone else. Reasons about the node come first, each once, sorted; then those about reservations, in their order.
    """
    if has_affinity and not offers:
        return ReservationRefused(reasons=(NOTHING_MATCHES,))
    by_node: set[str] = set()
    by_reservation: list[str] = []
    for context in offers:
        if not has_affinity and not any(name in request for name in context.names):
            continue
        if only and context.name != only:
            continue
        checked = _check(request, room, context, len(offers), ignored, checks_node=not skips_node)
        if checked.fits:
            return None
        by_node.update(checked.by_node)
        by_reservation += [short.sentence(with_amounts=bool(only)) for short in checked.by_reservation]
    if has_affinity:
        reasons = [f"Insufficient {name} by node" for name in sorted(by_node)] + by_reservation
        return ReservationRefused(reasons=tuple(reasons) or (NOTHING_MEETS,))
    short_of_node = sorted(by_node) or fits_node(request, room, len(offers), reusable=room.reusable, ignored=ignored)
    if not short_of_node:
        return None
    return ReservationRefused(reasons=tuple(f"Insufficient {name} by node" for name in short_of_node))
