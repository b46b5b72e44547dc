"""A Redis primary, two replicas and a sentinel, with proxies between them: a network that is cut where it makes two primaries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import redis.asyncio

from colo_cli.servers import ServerMissing
from tests.chaos.proxy import Proxy
from tests.support.clusters import START_S, RedisSentinel
from tests.support.ports import free_ports
from tests.support.servers import in_a_thread, missing
from tests.support.waiting import eventually

__all__ = ["SplitRedis", "split_redis"]

#: Where the servers connect from, by which a proxy tells them from clients.
_SERVERS: Final = "127.0.0.2"
_DOWN_AFTER_MS: Final = 500
#: A sentinel looks at everything as often as this, and corrects what is not as it should be after four times the second one. It
#: stands still for no longer than the last one after this machine did.
_PERIODS_MS: Final = {"info-period": 200, "publish-period": 200, "ask-period": 200, "tilt-period": 1_000}
#: With two replicas the new primary still has one.
_REPLICAS: Final = 2


class SplitRedis:
    """The first server is the primary when it starts, the others are its replicas.

    Each server is reached through a proxy, by the others, the sentinel and clients alike, and the sentinel names the proxies.
    `near_url` is for clients that a cut leaves with the first server, `far_url` for those that it leaves with the sentinel.
    """

    def __init__(self, directory: Path, arguments: Sequence[str] = ()) -> None:
        """`arguments` are of every Redis."""
        self._directory = directory
        self._arguments = arguments
        self._proxies: list[Proxy] = []
        self._to_sentinel: Proxy | None = None
        self.far_url = self.near_url = ""

    async def start(self) -> None:
        """Return when the replicas follow and the sentinel knows them."""
        ports = free_ports(1 + _REPLICAS)
        self._proxies = [Proxy("127.0.0.1", port) for port in ports]
        for proxy in self._proxies:
            await proxy.start()
        self._redis = RedisSentinel(
            self._directory,
            replicas=_REPLICAS,
            down_after_ms=_DOWN_AFTER_MS,
            ports=ports,
            reached_at=[proxy.port for proxy in self._proxies],
            source=_SERVERS,
            arguments=("--repl-diskless-sync-delay", "0", *self._arguments),
        )
        # In this thread, since a server ends with the thread that started it.
        for server in (*self._redis.servers, *self._redis.sentinels):
            await server.start()
        sentinel = self._redis.sentinels[0]
        self._to_sentinel = Proxy("127.0.0.1", sentinel.port)
        await self._to_sentinel.start()
        self.far_url = self._redis.url
        self.near_url = self.far_url.replace(str(sentinel.port), str(self._to_sentinel.port))
        async with redis.asyncio.from_url(sentinel.url) as client:
            periods = (word for period in _PERIODS_MS.items() for word in period)
            await client.execute_command("SENTINEL DEBUG", *periods)
        await in_a_thread(self._redis.wait_healthy)

    async def stop(self) -> None:
        """End the servers and the proxies."""
        await in_a_thread(self._redis.stop)
        for proxy in (*self._proxies, self._to_sentinel):
            if proxy is not None:
                await proxy.close()

    async def cut(self) -> int:
        """Cut the first server and the near clients from the other servers and the sentinel.

        Returns when another server is a primary as well: its number, 0 is the first server.
        """
        assert self._to_sentinel is not None
        self._proxies[0].cut(source=_SERVERS)
        self._to_sentinel.cut()
        return await in_a_thread(partial(self._redis.wait_primary, other_than=0))

    async def heal(self) -> None:
        """Return when the first server is a replica that has what the new one has."""
        for proxy in (*self._proxies, self._to_sentinel):
            assert proxy is not None
            proxy.heal()
        await eventually(self._is_replica, "the old primary follows the new one", limit_s=START_S)
        await in_a_thread(self._redis.wait_healthy)

    async def _is_replica(self) -> bool:
        # Who becomes a replica ends its connections.
        with suppress(redis.RedisError):
            async with self.server(0) as client:
                found: Any = await client.info("replication")
            return bool(found["role"] == "slave" and found["master_link_status"] == "up")
        return False

    def server(self, number: int) -> redis.asyncio.Redis:
        """A client of this server itself, which no cut touches."""
        return redis.asyncio.Redis.from_url(self._redis.servers[number].url)


@asynccontextmanager
async def split_redis(*arguments: str) -> AsyncIterator[SplitRedis]:
    """Such servers in a temporary directory, stopped and removed at the end; `arguments` are of every Redis."""
    with TemporaryDirectory(prefix="colo-split-redis-") as directory:
        split = SplitRedis(Path(directory), arguments)
        try:
            try:
                await split.start()
            except ServerMissing as error:
                missing(str(error))
            yield split
        finally:
            await split.stop()
