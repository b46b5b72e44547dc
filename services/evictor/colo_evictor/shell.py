"""The subscriptions of the evictor, and the loading of its rows at the start."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import structlog
from msgspec import Struct

from colo_common.events.effects import Effect
from colo_common.events.enforcement import ReplicaEnded
from colo_common.events.eviction import EvictionRequested
from colo_common.events.node import FreshnessChanged, NodeTopologyReported, NodeUsageSampled
from colo_common.events.placement import PlacementsDecided, PlacementsReleased
from colo_common.events.policy import PolicyChanged
from colo_common.events.restriction import RestrictionsChanged
from colo_common.model.invalid import InvariantBroken
from colo_common.ports import Bus, Clock, Row, Store
from colo_common.runtime.core import Core, Subscription
from colo_common.runtime.lease_keeper import LeaseKeeper
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.service import Service
from colo_evictor.stored import (
    BUDGET_ID,
    BUDGET_KIND,
    ROW_KIND,
    BudgetLoaded,
    BudgetRecorded,
    BudgetRow,
    ConfirmBudget,
    EvictorRowReloaded,
    EvictorRowsLoaded,
    LoadEvictorRows,
    ReloadBudget,
    ReloadEvictorRow,
    StoredNode,
)
from colo_evictor.watched import EvictorRow

__all__ = ["HEARS", "HEARS_SHARED", "evictor_service", "load_rows"]

HEARS: Final = (
    Subscription(type=NodeTopologyReported, replay=True),
    Subscription(type=NodeUsageSampled),
    Subscription(type=FreshnessChanged, durable=False),
    Subscription(type=PlacementsDecided, durable=False),
    Subscription(type=PlacementsReleased, durable=False),
    Subscription(type=ReplicaEnded),
    Subscription(type=RestrictionsChanged, durable=False, replay=True),
    Subscription(type=PolicyChanged, durable=False, replay=True),
)
#: Of what ended while nobody listened: longer than a victim that has ended counts as terminating, and a bound on the start.
_ENDS_SINCE_S: Final = 120
_ENDS_MOST: Final = 100_000
#: Where several instances share the work each hears every end: it may get the node whose victim ended, also one that ended shortly
#: before the instance began. Samples are decoded by one.
HEARS_SHARED: Final = (
    *(subscription for subscription in HEARS if subscription.type not in (ReplicaEnded, NodeUsageSampled)),
    Subscription(type=NodeUsageSampled, undecoded=True),
    Subscription(type=ReplicaEnded, durable=False, since_s=_ENDS_SINCE_S, since_most=_ENDS_MOST),
    Subscription(type=EvictionRequested, durable=False),
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
    leases: LeaseKeeper | None = None,
    is_shared: bool = False,
) -> Service:
    """The service on the given ports; `list_holds` belongs beside it.

    With `leases` it serves for one term, and `store` must name its fences. `is_shared`: several instances hold a part of the nodes
    each, and read the rows of those when they get them.
    """
    return Service(
        name="evictor",
        core=core,
        bus=bus,
        store=store,
        clock=clock,
        subscriptions=HEARS_SHARED if is_shared else HEARS,
        load=None if is_shared else lambda: load_rows(store),
        perform=lambda effect: read_again(store, effect),
        metrics=metrics,
        boot_id=boot_id,
        seed=seed,
        more_problems=more_problems,
        leases=leases,
        ends_with_lease=leases is not None,
        puts_back=True,
    )


async def load_rows(store: Store, partitions: tuple[int, ...] = ()) -> Sequence[Struct]:
    """Load the terminating victims and cool-downs of an earlier run. A row that cannot be read is logged and left in the store."""
    rows = [_stored(row) for row in await store.load(ROW_KIND)]
    return [EvictorRowsLoaded(rows=tuple(row for row in rows if row is not None), partitions=partitions)]


async def read_again(store: Store, effect: Effect) -> Sequence[Struct]:
    """Perform the effects of the core's own: read rows or the shared budget again."""
    match effect:
        case ReloadEvictorRow(node=node):
            return [await _reloaded(store, node)]
        case LoadEvictorRows(partitions=partitions):
            return await load_rows(store, partitions)
        case ReloadBudget():
            return [await _budget(store)]
        case ConfirmBudget():
            return [BudgetRecorded()]
        case _:
            raise InvariantBroken("the evictor performs no such effect", effect=type(effect).__name__)


async def _budget(store: Store) -> BudgetLoaded:
    row = await store.get(BUDGET_KIND, BUDGET_ID)
    if row is None:
        return BudgetLoaded(version=0, row=BudgetRow())
    try:
        return BudgetLoaded(version=row.version, row=msgspec.json.decode(row.value, type=BudgetRow))
    except msgspec.MsgspecError as error:
        structlog.get_logger("evictor").error("row-unreadable", row=row.id, error=str(error))
        return BudgetLoaded(version=row.version, row=BudgetRow())


async def _reloaded(store: Store, node: str) -> EvictorRowReloaded:
    row = await store.get(ROW_KIND, node)
    if row is None:
        return EvictorRowReloaded(node=node)
    # Without the version of a row that cannot be read nobody could ever write that node again.
    stored = _stored(row) or StoredNode(node=row.id, version=row.version, row=EvictorRow())
    return EvictorRowReloaded(node=node, stored=stored)


def _stored(row: Row) -> StoredNode | None:
    try:
        return StoredNode(node=row.id, version=row.version, row=msgspec.json.decode(row.value, type=EvictorRow))
    except msgspec.MsgspecError as error:
        structlog.get_logger("evictor").error("row-unreadable", row=row.id, error=str(error))
        return None
