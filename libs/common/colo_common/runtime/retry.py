"""Retries the calls of a port with growing waits, and logs one line when it becomes unavailable and one when it is back."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import structlog
from prometheus_client import Counter

from colo_common.ports import PortError
from colo_common.runtime.backoff import Backoff

__all__ = ["ShuttingDown", "Retrier"]


class ShuttingDown(Exception):
    """The service shuts down and there is no time for another retry."""


class Retrier:
    """Retries of one port of one service. `problem` is empty while the port works, else the sentence of its last failure.

    `since_s` is the time of the event loop at which the problem began.
    """

    def __init__(self, port: str, rng: random.Random, retries: Counter, shutting_down: asyncio.Event) -> None:
        self.problem = ""
        self.since_s = 0.0
        self._port = port
        self._backoff = Backoff(rng)
        self._retries = retries.labels(port)
        self._shutting_down = shutting_down
        self._log = structlog.get_logger(source="service").bind(port=port)

    async def until_done(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Run `attempt` until it raises no PortError. Raises ShuttingDown when the service shuts down first."""
        while True:
            try:
                await attempt()
            except PortError as error:
                await self.failed(error)
            else:
                self.worked()
                return

    async def failed(self, error: PortError) -> None:
        """Note a failure and wait before the next try. Raises ShuttingDown when the service shuts down."""
        self._retries.inc()
        if not self.problem:
            self.since_s = asyncio.get_running_loop().time()
            self._log.warning("port-away", error=str(error))
        self.problem = str(error) or type(error).__name__
        if self._shutting_down.is_set():
            raise ShuttingDown(self.problem)
        try:
            async with asyncio.timeout(self._backoff.next_s()):
                await self._shutting_down.wait()
        except TimeoutError:
            return
        raise ShuttingDown(self.problem)

    def worked(self) -> None:
        """Note a success."""
        if self.problem:
            self._log.info("port-back", was=self.problem)
            self.problem = ""
            self._backoff.reset()
