"""What the overcommit core hears, and how it catches up with what is held when it starts."""

import asyncio
from typing import Final

import structlog

from colo_common.events.node import NodeTopologyReported, NodeUsageSampled
from colo_common.events.placement import PlacementReleased, PlacementsDecided
from colo_common.events.requests import ExplainAllocatable, HoldsReply, ListHolds, ListNodes
from colo_common.ports import Bus, PortError
from colo_common.runtime.ask import ask
from colo_common.runtime.core import Hearing
from colo_common.runtime.service import Service

__all__ = ["ANSWERS", "HEARS", "catch_up"]

HEARS: Final = (
    Hearing(type=NodeTopologyReported, replay=True),
    Hearing(type=NodeUsageSampled),
    Hearing(type=PlacementsDecided, durable=False),
    Hearing(type=PlacementReleased, durable=False),
)
ANSWERS: Final = (ListNodes, ExplainAllocatable)
_PAGE: Final = 500
_RETRY_S: Final = 0.5


async def catch_up(bus: Bus, service: Service) -> None:
    """Ask the scheduler for everything that is held, page by page, until it answered; then return.

    Placements that are decided meanwhile are heard live: taking a hold twice changes nothing. A hold that is released between
    two pages is dropped by its PlacementReleased, which comes after the page that showed it.
    """
    log = structlog.get_logger("overcommit")
    offset = 0
    waiting = False
    while True:
        try:
            page = await ask(bus, ListHolds(offset=offset, limit=_PAGE))
        except PortError as error:
            if not waiting:
                log.info("waits-for-scheduler", why=str(error))
            waiting = True
            await asyncio.sleep(_RETRY_S)
            continue
        if not isinstance(page, HoldsReply):
            log.warning("holds-refused", why=str(page))
            return
        await service.inject(page)
        offset += len(page.holds)
        if not page.holds or offset >= page.total:
            log.info("caught-up", holds=offset)
            return
