"""Koordinator's filter of reservations with its reasons in words, and what it assumes about pods that preemption would remove.

(koordinator-sh/koordinator:pkg/scheduler/plugins/reservation/{plugin,nominator,scoring}.go). Whether a request fits, and how full a
reservation gets, is computed by the scheduler's own functions; a service tells no reasons in these words, nor preempts for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from colo_common.model.reservation import AllocatePolicy
from colo_common.model.resource_list import CPU, MEMORY
from colo_scheduler.reservations.amounts import EPHEMERAL_STORAGE, REPLICAS, Amounts, plus, room_left
from colo_scheduler.reservations.fit import NodeRoom, ReservationCapacity, Short, fits_node, fits_reservation
from colo_scheduler.reservations.nominate import first_by_order, score

NOTHING_MATCHES: Final = "node(s) no reservations match reservation affinity"
NOTHING_MEETS: Final = "node(s) no reservation(s) to meet the requirements"
_NOTHING: Final[Amounts] = {}
_ENDLESS: Final = 1 << 62
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_INT64_MOST: Final = (1 << 63) - 1


class Preemptible(Struct, frozen=True, kw_only=True):
    """What would be free if pods left: on the node, and inside each reservation by name."""

    on_node: dict[str, int] = {}
    inside: dict[str, dict[str, int]] = {}

    def of(self, name: str) -> Amounts:
        """What would be free inside one reservation."""
        return self.inside.get(name, _NOTHING)


class Ignored(Struct, frozen=True, kw_only=True):
    """Resources that other parts of the system look after: by name, or by the part of a name before "/"."""

    names: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def has(self, name: str) -> bool:
        """Whether the resource is ignored; CPU, memory, ephemeral storage and the replica count never are."""
        if name in (CPU, MEMORY, EPHEMERAL_STORAGE, REPLICAS):
            return False
        group, slash, _ = name.partition("/")
        return name in self.names or (bool(slash) and group in self.groups)

    def leave_out(self, request: Amounts, room: NodeRoom) -> tuple[dict[str, int], NodeRoom]:
        """The same question with nothing of the ignored resources asked for, and no end of them on the node."""
        ignored = [name for name in request if self.has(name)]
        none, endless = dict.fromkeys(ignored, 0), dict.fromkeys(ignored, _ENDLESS)
        return {**request, **none}, replace(room, allocatable={**room.allocatable, **endless})


class Refused(Struct, frozen=True, kw_only=True):
    """Why no reservation helps and the node alone does not either."""

    reasons: tuple[str, ...]


class _Checked(Struct, frozen=True, kw_only=True):
    by_node: tuple[str, ...]
    by_reservation: tuple[Short, ...]

    @property
    def fits(self) -> bool:
        return not self.by_node and not self.by_reservation


NOBODY: Final = Preemptible()


def room_without(room: NodeRoom, deleted: Amounts) -> NodeRoom:
    """The node once these amounts were free: for it they count as what owners took from their reservations."""
    return replace(room, consumed=plus(room.consumed, deleted))


def offer_without(context: ReservationCapacity, deleted: Amounts) -> ReservationCapacity:
    """The reservation once these amounts of its owners were free."""
    return replace(
        context, allocated=room_left(context.allocated, deleted), owners=context.owners - deleted.get(REPLICAS, 0)
    )


def _check(
    request: Amounts,
    room: NodeRoom,
    context: ReservationCapacity,
    matched: int,
    preemptible: Preemptible,
    *,
    checks_node: bool,
) -> _Checked:
    inside = preemptible.of(context.name)
    deleted = plus(preemptible.on_node, inside)
    is_restricted = context.policy is AllocatePolicy.RESTRICTED
    return _Checked(
        by_node=fits_node(request, room_without(room, deleted), matched, left=context.left) if checks_node else (),
        by_reservation=fits_reservation(request, offer_without(context, inside)) if is_restricted else (),
    )


def refusal_of(
    request: Amounts,
    room: NodeRoom,
    offers: Sequence[ReservationCapacity],
    *,
    has_affinity: bool,
    only: str = "",
    skips_node: bool = False,
    preemptible: Preemptible = NOBODY,
) -> Refused | None:
    """None when the request may be placed on the node: through one of the matched reservations or, without affinity, beside them.

    `only` names the one reservation that may be used; reasons about it carry amounts. `skips_node` leaves the node's figures to
    someone else. Reasons about the node come first, each once, sorted; then those about reservations, in their order.
    """
    if has_affinity and not offers:
        return Refused(reasons=(NOTHING_MATCHES,))
    by_node: set[str] = set()
    by_reservation: list[str] = []
    for context in offers:
        if not has_affinity and not any(name in request for name in context.names):
            continue
        if only and context.name != only:
            continue
        checked = _check(request, room, context, len(offers), preemptible, checks_node=not skips_node)
        if checked.fits:
            return None
        by_node.update(checked.by_node)
        by_reservation += [
            short.sentence if only else short.sentence.partition(",")[0] for short in checked.by_reservation
        ]
    if has_affinity:
        reasons = [f"Insufficient {name} by node" for name in sorted(by_node)] + by_reservation
        return Refused(reasons=tuple(reasons) or (NOTHING_MEETS,))
    short_of_node = sorted(by_node) or fits_node(request, room_without(room, preemptible.on_node), len(offers))
    if not short_of_node:
        return None
    return Refused(reasons=tuple(f"Insufficient {name} by node" for name in short_of_node))


def nominate_preempting(
    request: Amounts,
    room: NodeRoom,
    offers: Sequence[ReservationCapacity],
    preemptible: Preemptible,
    *,
    has_affinity: bool,
    kept: str = "",
    only: str = "",
) -> ReservationCapacity | None:
    """`colo_scheduler.reservations.nominate.nominate` as if what is preemptible were free."""
    if len(offers) == 1 and has_affinity:
        return offers[0]
    earlier = next((context for context in offers if kept and context.name == kept), None)
    if earlier is not None:
        return earlier
    fitting = [
        context
        for context in offers
        if not (context.allocate_once and context.owners)
        and only in ("", context.name)
        and (has_affinity or any(name in request for name in context.names))
        and _check(request, room, context, len(offers), preemptible, checks_node=True).fits
    ]
    if len(fitting) < 2:
        return fitting[0] if fitting else None
    return first_by_order(fitting) or max(
        fitting, key=lambda context: score(request, offer_without(context, preemptible.of(context.name)))
    )


def order_of(text: str) -> int:
    """The order written in a label; 0, which says nothing, for any text that is no whole number of 64 bits."""
    if not _WHOLE_NUMBER.fullmatch(text):
        return 0
    order = int(text)
    return order if -_INT64_MOST - 1 <= order <= _INT64_MOST else 0


def normalize(scores: Mapping[str, int]) -> dict[str, int]:
    """Stretch scores so that the largest becomes 100, rounded down; all 0 stay 0."""
    most = max(scores.values(), default=0)
    return {name: value * 100 // most if most > 0 else value for name, value in scores.items()}
