"""The service of the restrictions within the gateway's process: its subscriptions, and the reading of its row."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec
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
from colo_common.ports import Bus, Clock, PortError, Refused, Store
from colo_common.runtime.backoff import Backoff
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
    rng = random.Random(seed)

    async def perform(effect: Effect) -> Sequence[Struct]:
        if not isinstance(effect, LoadRestrictions):
            raise InvariantBroken("the restrictions perform no such effect", effect=type(effect).__name__)
        backoff = Backoff(rng)
        # Until the store answers; the runtime cancels this when the service must end.
        while True:
            with suppress(PortError):
                return await load()
            await asyncio.sleep(backoff.next_s())

    async def load() -> Sequence[Struct]:
        return [await read_restrictions(store)]

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
    )


async def read_restrictions(store: Store) -> RestrictionsLoaded:
    """The stored row. Raises the store's errors, Refused for a row that cannot be read."""
    row = await store.get(ROW_KIND, ROW_ID)
    if row is None:
        return RestrictionsLoaded(version=0, row=RestrictionRow())
    try:
        return RestrictionsLoaded(version=row.version, row=msgspec.json.decode(row.value, type=RestrictionRow))
    except msgspec.MsgspecError as error:
        raise Refused(f"{ROW_KIND}/{ROW_ID}: {error}") from error
