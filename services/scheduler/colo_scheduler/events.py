"""All events that the scheduler's core takes: bus facts, answers of the ledger and the jobs service, requests and the clock."""

from colo_common.events.effects import Conflict, FactsMissed, RequestReceived, StoreLost, Wake
from colo_common.events.enforcement import NodeRecovered, PlacementRefused, ReplicaEnded
from colo_common.events.eviction import EvictionRequested
from colo_common.events.job import MidPlacementsRequested, PlacementsRequested, ReplicasWithdrawn
from colo_common.events.node import AllocatableChanged, FreshnessChanged, NodeTopologyReported
from colo_common.events.placement import PlacementsReleased
from colo_common.events.policy import PolicyChanged
from colo_common.events.replayed import Replayed
from colo_common.events.requests import PendingReply
from colo_common.events.reservation import ReservationChanged
from colo_common.events.restriction import RestrictionsChanged
from colo_common.model.partition import PartitionsHeld
from colo_scheduler.commit.jobs_asked import StartedKnown
from colo_scheduler.ledger.port import (
    HoldsReleased,
    LedgerAnswered,
    LedgerChanges,
    LedgerCompared,
    LedgerLoaded,
    LedgerRefused,
    LedgerRows,
)
from colo_scheduler.reservations.rows import JobsOver, ReservationsLoaded

__all__ = ["Event", "LedgerEvent"]


LedgerEvent = (
    LedgerAnswered | HoldsReleased | LedgerRows | LedgerLoaded | LedgerCompared | LedgerChanges | LedgerRefused
)

Event = (
    NodeTopologyReported
    | AllocatableChanged
    | FreshnessChanged
    | Replayed
    | PlacementsRequested
    | MidPlacementsRequested
    | ReplicasWithdrawn
    | ReplicaEnded
    | PlacementRefused
    | EvictionRequested
    | NodeRecovered
    | PendingReply
    | PlacementsReleased
    | RestrictionsChanged
    | PolicyChanged
    | LedgerEvent
    | PartitionsHeld
    | ReservationsLoaded
    | ReservationChanged
    | JobsOver
    | StartedKnown
    | RequestReceived
    | Conflict
    | StoreLost
    | FactsMissed
    | Wake
)
