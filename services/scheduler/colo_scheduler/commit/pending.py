"""Asks the jobs service for the waiting replicas, in a task of its own, whenever that is due, until the service answers."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from msgspec import Struct

from colo_common.events.requests import PendingReplicas, PendingReply, Refusal
from colo_common.ports import Bus, PortError, Unavailable
from colo_common.runtime.ask import ask
from colo_common.runtime.backoff import Backoff

__all__ = ["PAGE", "Pending"]

#: The number of replicas in one request.
PAGE: Final = 500
_PAGES_MAX: Final = 1_000
_ROUNDS: Final = 3


class Pending:
    """Fetches the placement requests that the jobs service lists as pending."""

    def __init__(self, bus: Bus, rng: random.Random, page: int = PAGE) -> None:
        """`page`: the number of replicas in one request."""
        self._page_size = page
        self._bus = bus
        self._rng = rng
        self._is_due = asyncio.Event()
        self._compare_holds = False
        self._log = structlog.get_logger("scheduler")

    def ask(self, *, compare_holds: bool = False) -> None:
        """Ask soon; returns at once. `compare_holds`: see PendingReplicas; said until the jobs service has heard it."""
        self._compare_holds = self._compare_holds or compare_holds
        self._is_due.set()

    async def keep(self, inject: Callable[[Struct], Awaitable[None]]) -> None:
        """Ask whenever that is due, and inject the answers, until cancelled."""
        backoff = Backoff(self._rng)
        is_away = False
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            compare_holds, self._compare_holds = self._compare_holds, False
            try:
                pages = await self._pages(compare_holds=compare_holds)
            except PortError as error:
                self._compare_holds = self._compare_holds or compare_holds
                if not is_away:
                    self._log.warning("jobs-away", error=str(error))
                is_away = True
                self._is_due.set()
                await asyncio.sleep(backoff.next_s())
                continue
            is_away = False
            backoff.reset()
            count = sum(len(page.placement_requests) for page in pages)
            self._log.info("pending-asked", placement_requests=count)
            for page in pages:
                await inject(page)

    async def _pages(self, *, compare_holds: bool) -> list[PendingReply]:
        """All waiting replicas, of each partition of the jobs."""
        pages = await self._pages_of(0, compare_holds=compare_holds)
        for partition in range(1, pages[0].partitions):
            pages += await self._pages_of(partition, compare_holds=compare_holds)
        return pages

    async def _pages_of(self, partition: int, *, compare_holds: bool) -> list[PendingReply]:
        """Those of one. Pages shift while replicas are placed: if the total changed, all are read again, 3 times in all."""
        pages: list[PendingReply] = []
        for _ in range(_ROUNDS):
            first = len(pages)
            offset = 0
            for _ in range(_PAGES_MAX):
                page = await self._page(offset, partition, compare_holds=compare_holds and not pages)
                pages.append(page)
                offset += len(page.placement_requests)
                if not page.placement_requests or offset >= page.total:
                    break
            if pages[first].total == pages[-1].total:
                break
        return pages

    async def _page(self, offset: int, partition: int, *, compare_holds: bool) -> PendingReply:
        asked = PendingReplicas(
            offset=offset,
            limit=self._page_size,
            has_mid_tier=True,
            compare_holds=compare_holds,
            partition=partition,
        )
        answer = await ask(self._bus, asked)
        if isinstance(answer, PendingReply):
            return answer
        rule = str(answer) if isinstance(answer, Refusal) else f"answered with {type(answer).__name__}"
        raise Unavailable(f"ask for the waiting replicas: {rule}")
