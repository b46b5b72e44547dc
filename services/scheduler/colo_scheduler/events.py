"""What the scheduler's core hears, and the effects by which it asks the jobs service."""

from msgspec import Struct

from colo_common.events.effects import Conflict, RequestReceived, Wake
from colo_common.events.enforcement import NodeRecovered, PlacementRefused, ReplicaEnded
from colo_common.events.eviction import EvictionRequested
from colo_common.events.job import PlacementsRequested, ReplicasWithdrawn
from colo_common.events.node import AllocatableChanged, FreshnessChanged, NodeTopologyReported
from colo_common.events.placement import PlacementsReleased
from colo_common.events.requests import PendingReply
from colo_common.events.reservation import ReservationChanged
from colo_scheduler.ledger.port import (
    Attempt,
    HoldsReleased,
    LedgerAnswered,
    LedgerChanges,
    LedgerLoaded,
    LedgerRefused,
    LedgerRows,
)
from colo_scheduler.ledger.shards import ShardsHeld
from colo_scheduler.reservations.rows import JobsOver, ReservationsLoaded

__all__ = ["AskPending", "AskStarted", "Event", "LedgerEvent", "StartedKnown"]


class AskPending(Struct, frozen=True, kw_only=True):
    """Local effect: ask the jobs service for the waiting replicas again; some did not find room in the queue."""


class AskStarted(Struct, frozen=True, kw_only=True):
    """Local effect: ask the jobs service which of these a node has started; answered in parts by StartedKnown, some time later."""

    attempts: tuple[Attempt, ...]


class StartedKnown(Struct, frozen=True, kw_only=True):
    """Event of the shell: of what was asked for these have `started`, these are `over`, and these are `waiting` to be started.

    What the jobs service does not know is none of them.
    """

    started: tuple[Attempt, ...] = ()
    over: tuple[Attempt, ...] = ()
    waiting: tuple[Attempt, ...] = ()


LedgerEvent = LedgerAnswered | HoldsReleased | LedgerRows | LedgerLoaded | LedgerChanges | LedgerRefused

Event = (
    NodeTopologyReported
    | AllocatableChanged
    | FreshnessChanged
    | PlacementsRequested
    | ReplicasWithdrawn
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
    | StartedKnown
    | RequestReceived
    | Conflict
    | Wake
)
