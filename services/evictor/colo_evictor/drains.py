"""Drains: which replica leaves a node next because an operator drains it, or because the node takes no batch work any more."""

from typing import Final, Literal

from msgspec import Struct, structs

from colo_common.events.eviction import VictimRank
from colo_common.model.qos import PriorityBand
from colo_common.model.reasons import Reason
from colo_common.model.restriction import Restrictions
from colo_evictor.watched import BATCH_BANDS, WatchedNode

__all__ = ["Drain", "drain_of", "rank_leaving"]

_Order = tuple[int, int, str]
_COMPARED: Final[tuple[Literal["band", "priority", "name"], ...]] = ("band", "priority", "name")
_BANDS: Final = (PriorityBand.FREE, PriorityBand.BATCH, PriorityBand.MID, PriorityBand.PROD)


class Drain(Struct, frozen=True, kw_only=True):
    """Why work leaves the node. `batch_only`: online work stays. `grace_ms` None: each replica has its own."""

    reason: Reason
    by: str
    since_ms: int
    batch_only: bool
    grace_ms: int | None = None


def drain_of(name: str, node: WatchedNode, restrictions: Restrictions) -> Drain | None:
    """The drain of a node: by an operator, by a quiesce that evicts, or because it takes no batch work any more."""
    found = restrictions.drain_of(name)
    if found is not None:
        return Drain(
            reason=Reason.NODE_DRAINED,
            by=found.by or "an operator",
            since_ms=found.since_ms,
            batch_only=found.batch_only or found.evicts,
            grace_ms=found.grace_ms,
        )
    if node.withdrawn_ms is not None:
        return Drain(reason=Reason.COLOCATION_OFF, by=node.withdrawn_by, since_ms=node.withdrawn_ms, batch_only=True)
    return None


def rank_leaving(node: WatchedNode, drain: Drain, now_ms: int) -> tuple[VictimRank, ...]:
    """The replicas that are still to leave, in order: by band, free first and online work last, then priority, then name.

    A replica counts when its placement is known or the newest sample shows it; one that is on its way out does not.
    """
    rows = []
    for key in node.placed.holds.keys() | node.seen.keys():
        if key in node.terminating:
            continue
        placement, seen = node.placed.get(key), node.seen.get(key)
        band = placement.band if placement is not None else seen.band if seen is not None else PriorityBand.BATCH
        if drain.batch_only and band not in BATCH_BANDS:
            continue
        replica, _, attempt = key.rpartition("#")
        rank = VictimRank(
            replica=replica,
            attempt=int(attempt),
            priority=placement.priority if placement is not None else 0,
            used=seen.cpu_used_mcpu if seen is not None else 0,
            unit="mcpu",
            band=band,
            placed_ms=max(now_ms - placement.decided_at_ms, 0) if placement and placement.decided_at_ms else None,
        )
        rows.append(((_BANDS.index(band), rank.priority, replica), rank))
    rows.sort(key=lambda row: row[0])
    return tuple([structs.replace(rank, behind=_behind(rows[0][0], order)) for order, rank in rows])


def _behind(first: _Order, order: _Order) -> Literal["", "band", "priority", "name"]:
    return next((why for why, a, b in zip(_COMPARED, first, order, strict=True) if a != b), "")
