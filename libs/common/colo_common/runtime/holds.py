"""Keeps a service's view of the scheduler's holds true: reads the whole list at the start and every minute."""

import asyncio
from typing import Final

import structlog

from colo_common.events.requests import HoldEntry, HoldsListed, HoldsReply, ListHolds
from colo_common.ports import Bus, Clock, PortError, Unavailable
from colo_common.runtime.ask import ask
from colo_common.runtime.service import Service

__all__ = ["list_holds"]

_PAGE: Final = 1_000
_PAGES_MAX: Final = 1_000
_RETRY_S: Final = 0.5
_AGAIN_S: Final = 60.0


async def list_holds(
    bus: Bus, clock: Clock, service: Service, page: int = _PAGE, due: asyncio.Event | None = None
) -> None:
    """Read all holds from the scheduler, `page` of them a request, at once and every minute, until cancelled.

    With `due` only when that is set, and then until a list is complete.

    Each list is handed to the service's core as HoldsListed. Between two lists the holds come from placement events. Events before
    the consumer was made are missed, and an event that is delivered again after the release of its hold is wrong; the next list
    corrects both.
    """
    log = structlog.get_logger(service.name)
    waiting = False
    while True:
        if due is not None:
            await due.wait()
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
        if is_steady and due is not None:
            due.clear()
        await asyncio.sleep(_AGAIN_S if is_steady and due is None else _RETRY_S)


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
