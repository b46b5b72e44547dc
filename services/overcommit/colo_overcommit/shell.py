"""The subscriptions of the overcommit service."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog
from msgspec import Struct

from colo_common.events.effects import Effect
from colo_common.events.eviction import EvictionFinished, EvictionRequested
from colo_common.events.external import ClearExternalCapacity, ExternalCapacityChanged, SetExternalCapacity
from colo_common.events.fleet import GetFleet, GetNode
from colo_common.events.node import AllocatableChanged, FreshnessChanged, NodeTopologyReported, NodeUsageSampled
from colo_common.events.placement import PlacementsDecided, PlacementsReleased
from colo_common.events.policy import PolicyChanged, PreviewPolicy
from colo_common.events.requests import ExplainAllocatable, ListNodes
from colo_common.events.reservation import ReservationChanged
from colo_common.events.restriction import RestrictionsChanged
from colo_common.model.invalid import InvariantBroken
from colo_common.ports import Bus, Clock, PortError
from colo_common.runtime.core import Core, Subscription
from colo_common.runtime.lease_keeper import LeaseKeeper
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.service import Service
from colo_overcommit.histories import LoadHistories
from colo_overcommit.history_store import HistoryRows

__all__ = ["ANSWERS", "HEARS", "HEARS_RISK", "HEARS_SHARED", "overcommit_service"]

# Samples come every few seconds, so a short wait costs nothing, and messages that arrive together are handled as one cheaper batch.
_WAIT_MS: Final = 25

HEARS: Final = (
    Subscription(type=NodeTopologyReported, replay=True, may_wait_ms=_WAIT_MS),
    Subscription(type=NodeUsageSampled, may_wait_ms=_WAIT_MS),
    Subscription(type=PlacementsDecided, durable=False, may_wait_ms=_WAIT_MS),
    Subscription(type=PlacementsReleased, durable=False, may_wait_ms=_WAIT_MS),
    Subscription(type=ReservationChanged, durable=False, may_wait_ms=_WAIT_MS),
    Subscription(type=RestrictionsChanged, durable=False, replay=True),
    Subscription(type=PolicyChanged, durable=False, replay=True),
    Subscription(type=ExternalCapacityChanged, durable=False, replay=True),
    # A node that was lost before this start is not one more that falls silent.
    Subscription(type=FreshnessChanged, durable=False, replay=True, may_wait_ms=_WAIT_MS),
)
#: With risk control also how long evictions take, and the margins that the instance before this one published last.
HEARS_RISK: Final = (
    *HEARS,
    Subscription(type=EvictionRequested, durable=False),
    Subscription(type=EvictionFinished, durable=False),
    Subscription(type=AllocatableChanged, durable=False, replay=True, may_wait_ms=_WAIT_MS),
)
#: Where several instances share the work each takes over what the others published last, and decodes the samples of its own nodes.
HEARS_SHARED: Final = (
    Subscription(type=NodeUsageSampled, may_wait_ms=_WAIT_MS, undecoded=True),
    Subscription(type=AllocatableChanged, durable=False, replay=True, may_wait_ms=_WAIT_MS),
)
ANSWERS: Final = (
    ListNodes,
    GetFleet,
    GetNode,
    ExplainAllocatable,
    PreviewPolicy,
    SetExternalCapacity,
    ClearExternalCapacity,
)


def overcommit_service(
    core: Core,
    bus: Bus,
    clock: Clock,
    *,
    metrics: Metrics | None = None,
    boot_id: str = "",
    seed: int | None = None,
    more_problems: Callable[[], Mapping[str, str]] | None = None,
    leases: LeaseKeeper | None = None,
    has_risk: bool = False,
    is_shared: bool = False,
    histories: HistoryRows | None = None,
) -> Service:
    """The service on the given ports; `list_holds` and `tell_bus` belong beside it. `has_risk`: its policy has risk control on.

    `is_shared`: several instances hold a part of the nodes each. In the store of `histories` is also which message
    ended an instance.
    """

    async def perform(effect: Effect) -> Sequence[Struct]:
        if not isinstance(effect, LoadHistories):
            raise InvariantBroken("overcommit performs no such effect", effect=type(effect).__name__)
        if histories is None:
            return ()
        try:
            return await histories.load(effect.partitions)
        except PortError as error:
            structlog.get_logger("overcommit").warning("histories-not-loaded", error=str(error))
            return ()

    hears = HEARS_RISK if has_risk else HEARS
    if is_shared:
        hears = tuple({each.type: each for each in (*hears, *HEARS_SHARED)}.values())
    return Service(
        name="overcommit",
        core=core,
        bus=bus,
        clock=clock,
        subscriptions=hears,
        answers=ANSWERS,
        metrics=metrics,
        boot_id=boot_id,
        seed=seed,
        more_problems=more_problems,
        leases=leases,
        ends_with_lease=leases is not None,
        says_again=True,
        load=None if histories is None else histories.load,
        perform=perform,
        trials=None if histories is None else histories.store,
    )
