"""The service of the restrictions within the gateway's process: its subscriptions, and the reading of its row."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from colo_common.events.effects import Effect
from colo_common.events.node import AllocatableChanged, FreshnessChanged, NodeTopologyReported
from colo_common.events.restriction import (
    LiftRestrictions,
    ListRestrictions,
    RestrictionsApplied,
    RestrictionsChanged,
    SetRestriction,
)
from colo_common.model.invalid import InvariantBroken
from colo_common.ports import Bus, Clock, Store
from colo_common.runtime.core import Subscription
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.service import Service
from colo_gateway.restrictions.core import (
    ROW_ID,
    ROW_KIND,
    LoadRestrictions,
    RestrictionCore,
    RestrictionRow,
    RestrictionsLoaded,
)
from colo_gateway.stored_row import read_row

__all__ = ["ANSWERS", "RESTRICTIONS_HEARS", "read_restrictions", "restrictions_service"]

RESTRICTIONS_HEARS: Final = (
    Subscription(type=RestrictionsChanged, durable=False, replay=True),
    Subscription(type=RestrictionsApplied, durable=False, replay=True),
    Subscription(type=NodeTopologyReported, durable=False, replay=True),
    Subscription(type=AllocatableChanged, durable=False, replay=True),
    Subscription(type=FreshnessChanged, durable=False),
)
ANSWERS: Final = (SetRestriction, LiftRestrictions, ListRestrictions)


def restrictions_service(
    bus: Bus,
    store: Store,
    clock: Clock,
    *,
    metrics: Metrics | None = None,
    boot_id: str = "",
    seed: int | None = None,
) -> Service:
    """The service on the given ports."""

    async def load() -> Sequence[Struct]:
        return [await read_restrictions(store)]

    async def perform(effect: Effect) -> Sequence[Struct]:
        if not isinstance(effect, LoadRestrictions):
            raise InvariantBroken("the restrictions perform no such effect", effect=type(effect).__name__)
        return await load()

    return Service(
        name="restrictions",
        core=RestrictionCore(),
        bus=bus,
        store=store,
        clock=clock,
        subscriptions=RESTRICTIONS_HEARS,
        answers=ANSWERS,
        perform=perform,
        load=load,
        metrics=metrics,
        boot_id=boot_id,
        seed=seed,
        puts_back=True,
        says_again=True,
    )


async def read_restrictions(store: Store) -> RestrictionsLoaded:
    """The stored row. Raises the store's errors, Refused for a row that cannot be read."""
    version, row = await read_row(store, ROW_KIND, ROW_ID, RestrictionRow)
    return RestrictionsLoaded(version=version, row=row)
