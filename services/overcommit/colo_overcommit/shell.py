"""What the overcommit core hears, and how it keeps in step with what is held."""

import asyncio
from typing import Final

import structlog

from colo_common.events.node import NodeTopologyReported, NodeUsageSampled
from colo_common.events.placement import PlacementsDecided, PlacementsReleased
from colo_common.events.requests import ExplainAllocatable, Hold, HoldsReply, ListHolds, ListNodes
from colo_common.events.reservation import ReservationChanged
from colo_common.ports import Bus, Clock, PortError, Unavailable
from colo_common.runtime.ask import ask
from colo_common.runtime.core import Core, Subscription
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.service import Service
from colo_overcommit.held_by_batch import HoldsListed

__all__ = ["ANSWERS", "HEARS", "reconcile", "overcommit_service"]

# Nothing here is urgent beside a period of seconds, and what came in one moment is taken in, and told, at a fraction of the cost.
_WAIT_MS: Final = 25

HEARS: Final = (
    Subscription(type=NodeTopologyReported, replay=True, may_wait_ms=_WAIT_MS),
    Subscription(type=NodeUsageSampled, may_wait_ms=_WAIT_MS),
    Subscription(type=PlacementsDecided, durable=False, may_wait_ms=_WAIT_MS),
    Subscription(type=PlacementsReleased, durable=False, may_wait_ms=_WAIT_MS),
    Subscription(type=ReservationChanged, durable=False, may_wait_ms=_WAIT_MS),
)
ANSWERS: Final = (ListNodes, ExplainAllocatable)
_PAGE: Final = 1_000
_PAGES_MAX: Final = 1_000
_RETRY_S: Final = 0.5
_AGAIN_S: Final = 60.0


def overcommit_service(
    core: Core, bus: Bus, clock: Clock, *, metrics: Metrics | None = None, boot_id: str = "", seed: int | None = None
) -> Service:
    """The service on the given ports; `reconcile` belongs beside it."""
    return Service(
        name="overcommit",
        core=core,
        bus=bus,
        clock=clock,
        hears=HEARS,
        answers=ANSWERS,
        metrics=metrics,
        boot_id=boot_id,
        seed=seed,
    )


async def reconcile(bus: Bus, clock: Clock, service: Service, page: int = _PAGE) -> None:
    """Ask the scheduler for everything that is held, `page` of it in one request, at once and every minute, until cancelled.

    Between two lists placements are heard live, and some are missed: those of the moment before the consumer was made, and
    those that come again after their release. The list heals both.
    """
    log = structlog.get_logger("overcommit")
    waiting = False
    while True:
        asked_at_ms = clock.now_ms()
        try:
            holds, is_steady = await _all_holds(bus, page)
        except PortError as error:
            if not waiting:
                log.info("waits-for-scheduler", why=str(error))
            waiting = True
            await asyncio.sleep(_RETRY_S)
            continue
        if waiting:
            log.info("caught-up", holds=len(holds))
        waiting = False
        await service.inject(HoldsListed(holds=holds, asked_at_ms=asked_at_ms if is_steady else 0))
        await asyncio.sleep(_AGAIN_S)


async def _all_holds(bus: Bus, size: int) -> tuple[tuple[Hold, ...], bool]:
    """Every page, and whether the list kept its length meanwhile: if not, a hold may have slipped between two pages."""
    holds: list[Hold] = []
    totals: set[int] = set()
    for _ in range(_PAGES_MAX):
        page = await ask(bus, ListHolds(offset=len(holds), limit=size))
        if not isinstance(page, HoldsReply):
            raise Unavailable(f"ask for what is held: {page}")
        totals.add(page.total)
        holds += page.holds
        if not page.holds or len(holds) >= page.total:
            return tuple(holds), len(totals) == 1
    return tuple(holds), False
