"""The subscriptions of the evictor, and the loading of its rows at the start."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import structlog
from msgspec import Struct

from colo_common.events.enforcement import ReplicaEnded
from colo_common.events.node import FreshnessChanged, NodeTopologyReported, NodeUsageSampled
from colo_common.events.placement import PlacementsDecided, PlacementsReleased
from colo_common.events.restriction import RestrictionsChanged
from colo_common.ports import Bus, Clock, Store
from colo_common.runtime.core import Core, Subscription
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.service import Service
from colo_evictor.core import ROW_KIND, EvictorRowsLoaded, StoredNode
from colo_evictor.watched import EvictorRow

__all__ = ["HEARS", "evictor_service", "load_rows"]

HEARS: Final = (
    Subscription(type=NodeTopologyReported, replay=True),
    Subscription(type=NodeUsageSampled),
    Subscription(type=FreshnessChanged, durable=False),
    Subscription(type=PlacementsDecided, durable=False),
    Subscription(type=PlacementsReleased, durable=False),
    Subscription(type=ReplicaEnded),
    Subscription(type=RestrictionsChanged, durable=False, replay=True),
)


def evictor_service(
    core: Core,
    bus: Bus,
    store: Store,
    clock: Clock,
    *,
    metrics: Metrics | None = None,
    boot_id: str = "",
    seed: int | None = None,
    more_problems: Callable[[], Mapping[str, str]] | None = None,
) -> Service:
    """The service on the given ports; `list_holds` belongs beside it."""
    return Service(
        name="evictor",
        core=core,
        bus=bus,
        store=store,
        clock=clock,
        subscriptions=HEARS,
        load=lambda: load_rows(store),
        metrics=metrics,
        boot_id=boot_id,
        seed=seed,
        more_problems=more_problems,
    )


async def load_rows(store: Store) -> Sequence[Struct]:
    """Load the terminating victims and cool-downs of an earlier run. A row that cannot be read is logged and left in the store."""
    rows = []
    for row in await store.load(ROW_KIND):
        try:
            rows.append(
                StoredNode(node=row.id, version=row.version, row=msgspec.json.decode(row.value, type=EvictorRow))
            )
        except msgspec.MsgspecError as error:
            structlog.get_logger("evictor").error("row-unreadable", row=row.id, error=str(error))
    return [EvictorRowsLoaded(rows=tuple(rows))]
