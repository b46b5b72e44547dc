"""Writes down who changed something or was not let in: a fact on the bus, and a line in the log."""

import asyncio
from collections import OrderedDict
from typing import Final

import structlog
from msgspec import structs

from colo_common.events.audit import RequestAudited
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.service import Service
from colo_gateway.core import Audited
from colo_gateway.door.rate import AddressLimits

__all__ = ["Auditor"]

# A core that takes nothing for this long takes the next ones; the log line is written in any case.
_WAIT_S: Final = 2.0
# Refusals of one address that become facts: ten at once, then one in ten seconds. The others are counted.
_REFUSALS_PER_S: Final = 0.1
_REFUSALS_BURST: Final = 10.0
_ADDRESSES_MOST: Final = 10_000


class Auditor:
    """Hands each audited request to the gateway's core, which publishes it."""

    def __init__(self, service: Service, metrics: Metrics) -> None:
        self._service = service
        self._log = structlog.get_logger(source="audit")
        self._limits = AddressLimits(_REFUSALS_PER_S, _REFUSALS_BURST)
        self._alike: OrderedDict[str, int] = OrderedDict()
        self._lost = metrics.counter(
            "colo_gateway_audit_lost_total", "audited requests that are in the log alone, because the bus takes nothing"
        )

    async def changed(self, fact: RequestAudited) -> None:
        """Note a request of somebody who was let in."""
        await self._note(fact)

    async def refused(self, fact: RequestAudited, now_s: float) -> None:
        """Note a request of somebody who was not let in; very many of one address are only counted."""
        if self._limits.take(fact.address, now_s):
            self._alike[fact.address] = self._alike.pop(fact.address, 0) + 1
            if len(self._alike) > _ADDRESSES_MOST:
                self._alike.popitem(last=False)
            return
        await self._note(structs.replace(fact, alike=self._alike.pop(fact.address, 0)))

    async def of_server(self, fact: RequestAudited) -> None:
        """Note what a server of colo refused; whoever hears the server has counted what is alike."""
        await self._note(fact)

    async def _note(self, fact: RequestAudited) -> None:
        shown = {name: value for name in _LOGGED if (value := getattr(fact, name)) not in ("", 0)}
        self._log.info("audit", **shown)
        try:
            async with asyncio.timeout(_WAIT_S):
                await self._service.inject(Audited(fact=fact))
        except TimeoutError:
            self._lost.inc()


_LOGGED: Final = (
    "who", "how", "token", "role", "address", "request", "method", "path", "status", "reason", "tenant", "job", "node",
    "alike",
)  # fmt: skip
