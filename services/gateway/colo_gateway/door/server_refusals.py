"""Logins that NATS and Redis refused become facts of the audit, as those that the gateway itself refused are."""

import asyncio
import secrets
from collections.abc import Callable
from typing import Final

import structlog

from colo_common.adapters.nats_access import NatsAccess
from colo_common.adapters.nats_refusals import listen_refusals
from colo_common.adapters.redis_refusals import RedisRefusals
from colo_common.events.audit import RequestAudited
from colo_common.ports import PortError, Refused, RefusedLogin
from colo_common.runtime.metrics import Metrics
from colo_gateway.door.audit import Auditor
from colo_gateway.door.refusal_tally import RefusalTally

__all__ = ["ServerRefusals"]

_TELL_EVERY_S: Final = 2.0
_LOOK_EVERY_S: Final = 10.0
# Redis gives no right to read its log; an administrator may give it.
_LOOK_AGAIN_S: Final = 60.0
#: The word with which a client of the server says who it is.
_VERBS: Final = {"nats": "CONNECT", "redis": "AUTH"}


class ServerRefusals:
    """Hears refusals of NATS, reads those of Redis, and has them written down: the first of an address within seconds, then one
    in a minute with the number of the others.
    """

    def __init__(self, auditor: Auditor, metrics: Metrics, at_ms: Callable[[], int]) -> None:
        self._auditor = auditor
        self._at_ms = at_ms
        self._tally = RefusalTally()
        self._log = structlog.get_logger(source="refused-logins")
        self._refused = metrics.counter(
            "colo_gateway_server_refusals_total",
            "logins that NATS and Redis refused, and commands of Redis",
            ("server",),
        )
        for server in _VERBS:
            self._refused.labels(server)

    async def hear_nats(self, access: NatsAccess, name: str) -> None:
        """Hear NATS until cancelled. `access` is of a user of the system account."""
        await listen_refusals(access, name, self._note)

    async def read_redis(self, log: RedisRefusals) -> None:
        """Read the log of Redis every few seconds, until cancelled."""
        logged = ""
        while True:
            wait_s = _LOOK_EVERY_S
            try:
                for refusal in await log.news():
                    self._note(refusal)
                logged = ""
            except PortError as error:
                # Whoever stores says that Redis is away.
                if isinstance(error, Refused):
                    wait_s = _LOOK_AGAIN_S
                    if str(error) != logged:
                        logged = str(error)
                        self._log.warning("refused-logins-unheard", error=logged)
            await asyncio.sleep(wait_s)

    async def tell(self) -> None:
        """Have what was refused written down, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_TELL_EVERY_S)
            for refusal in self._tally.take(loop.time()):
                await self._auditor.of_server(self._fact(refusal))

    def _note(self, refusal: RefusedLogin) -> None:
        self._refused.labels(refusal.server).inc(refusal.times)
        self._tally.note(refusal)

    def _fact(self, refusal: RefusedLogin) -> RequestAudited:
        return RequestAudited(
            at_ms=self._at_ms(),
            who=refusal.who or "unknown",
            how=refusal.server,
            method=_VERBS[refusal.server],
            path=refusal.server,
            status=403 if refusal.is_known else 401,
            address=refusal.address,
            request=secrets.token_hex(8),
            reason=refusal.why,
            alike=refusal.times - 1,
        )
