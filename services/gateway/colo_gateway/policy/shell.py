"""The service of the colocation policy within the gateway's process: its subscription, and the reading of its row."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from colo_common.events.effects import Effect
from colo_common.events.policy import ApplyPolicy, GetPolicy, PolicyChanged, RollbackPolicy
from colo_common.model.invalid import InvariantBroken
from colo_common.ports import Bus, Clock, Store
from colo_common.runtime.core import Subscription
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.service import Service
from colo_gateway.policy.core import ROW_ID, ROW_KIND, PolicyCore, PolicyLoaded, PolicyRow, ReadPolicy
from colo_gateway.stored_row import read_row

__all__ = ["ANSWERS", "POLICY_HEARS", "policy_service", "read_policy"]

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

    async def load() -> Sequence[Struct]:
        return [await read_policy(store)]

    async def perform(effect: Effect) -> Sequence[Struct]:
        if not isinstance(effect, ReadPolicy):
            raise InvariantBroken("the policy performs no such effect", effect=type(effect).__name__)
        return await load()

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
        says_again=True,
    )


async def read_policy(store: Store) -> PolicyLoaded:
    """The stored row. Raises the store's errors, Refused for a row that cannot be read."""
    version, row = await read_row(store, ROW_KIND, ROW_ID, PolicyRow)
    return PolicyLoaded(version=version, row=row)
