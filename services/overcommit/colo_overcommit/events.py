"""The events of the overcommit core."""

from colo_common.events.effects import BusReachable, RequestReceived, StreamLost, Wake
from colo_common.events.eviction import EvictionFinished, EvictionRequested
from colo_common.events.external import ExternalCapacityChanged
from colo_common.events.node import AllocatableChanged, FreshnessChanged, NodeTopologyReported, NodeUsageSampled
from colo_common.events.placement import PlacementsDecided, PlacementsReleased
from colo_common.events.policy import PolicyChanged
from colo_common.events.requests import HoldsListed, HoldsReply
from colo_common.events.reservation import ReservationChanged
from colo_common.events.restriction import RestrictionsChanged
from colo_common.events.undecoded import Undecoded
from colo_common.model.partition import PartitionsHeld
from colo_overcommit.histories import HistoriesLoaded

__all__ = ["Event"]

Event = (
    NodeTopologyReported
    | NodeUsageSampled
    | Undecoded
    | PlacementsDecided
    | PlacementsReleased
    | ReservationChanged
    | HoldsReply
    | HoldsListed
    | RestrictionsChanged
    | PolicyChanged
    | EvictionRequested
    | EvictionFinished
    | AllocatableChanged
    | FreshnessChanged
    | PartitionsHeld
    | HistoriesLoaded
    | ExternalCapacityChanged
    | RequestReceived
    | StreamLost
    | BusReachable
    | Wake
)
