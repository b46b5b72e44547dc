"""The subscriptions of the overcommit service, and the reconciliation of its holds with the scheduler's ledger."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from colo_common.events.fleet import GetFleet, GetNode
from colo_common.events.node import NodeTopologyReported, NodeUsageSampled
from colo_common.events.placement import PlacementsDecided, PlacementsReleased
from colo_common.events.requests import ExplainAllocatable, HoldEntry, HoldsReply, ListHolds, ListNodes
from colo_common.events.reservation import ReservationChanged
from colo_common.events.restriction import RestrictionsChanged
from colo_common.ports import Bus, Clock, PortError, Unavailable
from colo_common.runtime.ask import ask
from colo_common.runtime.core import Core, Subscription
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.service import Service
from colo_overcommit.fleet_guard import BusReachable
from colo_overcommit.held_by_batch import HoldsListed

__all__ = ["ANSWERS", "HEARS", "reconcile", "overcommit_service", "watch_bus"]

# Samples come every few seconds, so a short wait costs nothing, and messages that arrive together are handled as one cheaper batch.
_WAIT_MS: Final = 25

HEARS: Final = (
    Subscription(type=NodeTopologyReported, replay=True, may_wait_ms=_WAIT_MS),
    Subscription(type=NodeUsageSampled, may_wait_ms=_WAIT_MS),
    Subscription(type=PlacementsDecided, durable=False, may_wait_ms=_WAIT_MS),
    Subscription(type=PlacementsReleased, durable=False, may_wait_ms=_WAIT_MS),
    Subscription(type=ReservationChanged, durable=False, may_wait_ms=_WAIT_MS),
    Subscription(type=RestrictionsChanged, durable=False, replay=True),
)
ANSWERS: Final = (ListNodes, GetFleet, GetNode, ExplainAllocatable)
_PAGE: Final = 1_000
_PAGES_MAX: Final = 1_000
_RETRY_S: Final = 0.5
_AGAIN_S: Final = 60.0
_LISTEN_S: Final = 0.5


def overcommit_service(
    core: Core,
    bus: Bus,
    clock: Clock,
    *,
    metrics: Metrics | None = None,
    boot_id: str = "",
    seed: int | None = None,
    more_problems: Callable[[], Mapping[str, str]] | None = None,
) -> Service:
    """The service on the given ports; `reconcile` and `watch_bus` belong beside it."""
    return Service(
        name="overcommit",
        core=core,
        bus=bus,
        clock=clock,
        subscriptions=HEARS,
        answers=ANSWERS,
        metrics=metrics,
        boot_id=boot_id,
        seed=seed,
        more_problems=more_problems,
    )


async def watch_bus(bus: Bus, service: Service) -> None:
    """Tell the core when the bus goes away and when it is back, until cancelled."""
    was_reachable = True
    while True:
        is_reachable = not await bus.ready()
        if is_reachable != was_reachable:
            await service.inject(BusReachable(is_reachable=is_reachable))
            was_reachable = is_reachable
        await asyncio.sleep(_LISTEN_S)


async def reconcile(bus: Bus, clock: Clock, service: Service, page: int = _PAGE) -> None:
    """Read all holds from the scheduler, `page` of them a request, at once and every minute, until cancelled.

    Between two lists the holds come from placement events. Events before the consumer was made are missed, and an event that is
    delivered again after the release of its hold is wrong; the next list corrects both.
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
        await asyncio.sleep(_AGAIN_S if is_steady else _RETRY_S)


async def _all_holds(bus: Bus, size: int) -> tuple[tuple[HoldEntry, ...], bool]:
    """Read all pages. The second value is False when the total changed meanwhile: a hold may then be missing from the pages."""
    holds: list[HoldEntry] = []
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
