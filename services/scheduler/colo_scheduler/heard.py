"""What the scheduler's core hears, and the effect by which it asks to hear what waits."""

from msgspec import Struct

from colo_common.events.effects import Asked, Conflict, Wake
from colo_common.events.enforcement import NodeRecovered, PlacementRefused, ReplicaEnded, ReplicaStarted
from colo_common.events.eviction import EvictionRequested
from colo_common.events.job import ReplicasWanted, ReplicasWithdrawn
from colo_common.events.node import AllocatableChanged, FreshnessChanged, NodeTopologyReported
from colo_common.events.placement import PlacementsReleased
from colo_common.events.requests import PendingReply
from colo_common.events.reservation import ReservationChanged
from colo_scheduler.ledger import (
    HoldsReleased,
    LedgerAnswered,
    LedgerChanges,
    LedgerLoaded,
    LedgerRefused,
    LedgerRows,
)
from colo_scheduler.reservation_rows import JobsOver, ReservationsLoaded
from colo_scheduler.shards import ShardsHeld

__all__ = ["AskPending", "Event", "LedgerEvent"]


class AskPending(Struct, frozen=True, kw_only=True):
    """Local effect: ask the jobs service for the waiting replicas again; some did not find room in the queue."""


LedgerEvent = LedgerAnswered | HoldsReleased | LedgerRows | LedgerLoaded | LedgerChanges | LedgerRefused

Event = (
    NodeTopologyReported
    | AllocatableChanged
    | FreshnessChanged
    | ReplicasWanted
    | ReplicasWithdrawn
    | ReplicaStarted
    | ReplicaEnded
    | PlacementRefused
    | EvictionRequested
    | NodeRecovered
    | PendingReply
    | PlacementsReleased
    | LedgerEvent
    | ShardsHeld
    | ReservationsLoaded
    | ReservationChanged
    | JobsOver
    | Asked
    | Conflict
    | Wake
)
