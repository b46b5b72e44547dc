"""The service of the colocation policy within the gateway's process: its subscription, and the reading of its row."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Struct

from colo_common.events.effects import Effect
from colo_common.events.policy import ApplyPolicy, GetPolicy, PolicyChanged, RollbackPolicy
from colo_common.model.invalid import InvariantBroken
from colo_common.ports import Bus, Clock, PortError, Refused, Store
from colo_common.runtime.backoff import Backoff
from colo_common.runtime.core import Subscription
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.service import Service
from colo_gateway.policy.core import ROW_ID, ROW_KIND, PolicyCore, PolicyLoaded, PolicyRow, ReadPolicy

__all__ = ["ANSWERS", "POLICY_HEARS", "policy_service"]

POLICY_HEARS: Final = (Subscription(type=PolicyChanged, durable=False, replay=True),)
ANSWERS: Final = (GetPolicy, ApplyPolicy, RollbackPolicy)


def policy_service(
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
        if not isinstance(effect, ReadPolicy):
            raise InvariantBroken("the policy performs no such effect", effect=type(effect).__name__)
        backoff = Backoff(rng)
        # Until the store answers; the runtime cancels this when the service must end.
        while True:
            with suppress(PortError):
                return await load()
            await asyncio.sleep(backoff.next_s())

    async def load() -> Sequence[Struct]:
        row = await store.get(ROW_KIND, ROW_ID)
        if row is None:
            return [PolicyLoaded(version=0, row=PolicyRow())]
        try:
            return [PolicyLoaded(version=row.version, row=msgspec.json.decode(row.value, type=PolicyRow))]
        except msgspec.MsgspecError as error:
            raise Refused(f"{ROW_KIND}/{ROW_ID}: {error}") from error

    return Service(
        name="policy",
        core=PolicyCore(),
        bus=bus,
        store=store,
        clock=clock,
        subscriptions=POLICY_HEARS,
        answers=ANSWERS,
        perform=perform,
        load=load,
        metrics=metrics,
        boot_id=boot_id,
        seed=seed,
        puts_back=True,
    )
