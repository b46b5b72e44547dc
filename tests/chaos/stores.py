"""The servers of a run: one NATS and one Redis, or three NATS servers and a Redis with a replica and a sentinel."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import nats
import redis.asyncio

from colo_cli.server_process import ServerProcess
from colo_cli.servers import NatsServer, RedisServer
from tests.chaos.disk import Disk
from tests.chaos.proxy import Proxy
from tests.support.clusters import NatsCluster, RedisSentinel
from tests.support.ports import free_ports
from tests.support.servers import STREAM_DISK_BYTES, made_streams
from tests.support.waiting import eventually

__all__ = ["Clusters", "Single", "Stores", "rewrite_aof"]

_REPLICAS: Final = 3
#: Where a Redis and the sentinel connect from, by which a proxy tells them from processes.
_SERVERS_FROM: Final = "127.0.0.2"
# One that began while the disk was full may still fail.
_REWRITES_MOST: Final = 3
_REWRITTEN_S: Final = 30.0


class Stores(Protocol):
    """The servers by name, each with a disk of its own.

    `proxied` are the servers between which and a process a network can be cut, by the store that they are of. `nats_url` and
    `redis_url` are the addresses without proxies, `environment` is what services need to know of such servers.
    """

    servers: dict[str, ServerProcess]
    disks: dict[str, Disk]
    proxied: Mapping[str, tuple[str, ...]]
    nats_url: str
    redis_url: str
    environment: Mapping[str, str]

    def port_of(self, name: str) -> int: ...
    def url_of(self, store: str, ports: Mapping[str, int]) -> str: ...
    async def start(self) -> None: ...
    async def settle(self) -> None: ...
    async def stop(self) -> None: ...
    async def wait_healthy(self) -> None: ...
    async def leader(self, what: str) -> str: ...
    async def can_empty(self, name: str) -> bool: ...
    async def split(self, hold_s: float) -> None: ...


class Single:
    """One server of each, which syncs its append-only file every second. All streams share `stream_disk_bytes`."""

    def __init__(self, directory: Path, stream_disk_bytes: int = STREAM_DISK_BYTES) -> None:
        self._stream_disk_bytes = stream_disk_bytes
        self.disks = {name: Disk(directory / f"{name}-disk") for name in ("nats", "redis")}
        self._ports = {name: free_ports(1)[0] for name in self.disks}
        nats, redis = (self.disks[name].path / "data" for name in ("nats", "redis"))
        self.servers: dict[str, ServerProcess] = {
            "nats": NatsServer(directory=nats, port=self._ports["nats"]),
            "redis": RedisServer(directory=redis, port=self._ports["redis"], appendfsync="everysec"),
        }
        self.proxied: Mapping[str, tuple[str, ...]] = {"nats": ("nats",), "redis": ("redis",)}
        self.nats_url = f"nats://127.0.0.1:{self._ports['nats']}"
        self.redis_url = f"redis://127.0.0.1:{self._ports['redis']}/0"
        self.environment: Mapping[str, str] = {}

    def port_of(self, name: str) -> int:
        """Where the server listens."""
        return self._ports[name]

    def url_of(self, store: str, ports: Mapping[str, int]) -> str:
        """The address of a store, on these ports instead of the servers'."""
        return f"nats://127.0.0.1:{ports['nats']}" if store == "nats" else f"redis://127.0.0.1:{ports['redis']}/0"

    async def start(self) -> None:
        """Start all."""
        for server in self.servers.values():
            await server.start()
        await made_streams(self.nats_url, disk_bytes=self._stream_disk_bytes)

    async def settle(self) -> None:
        """One server keeps every stream."""

    async def stop(self) -> None:
        """Stop all."""
        for server in self.servers.values():
            await server.stop()

    async def wait_healthy(self) -> None:
        """A server that takes connections has nobody to wait for."""

    async def leader(self, what: str) -> str:
        """The only one."""
        return "redis" if what == "redis" else "nats"

    async def can_empty(self, name: str) -> bool:
        """Nobody else has what is on its disk."""
        return False

    async def split(self, hold_s: float) -> None:
        """There is one Redis."""


class Clusters:
    """Streams on three servers, and writes of Redis that count when the replica has them.

    Between one process and Redis no network can be cut here: the sentinel tells everybody the same proxy, which can cut a Redis off
    from the other one and the sentinel, and from nobody else.
    """

    def __init__(self, directory: Path) -> None:
        names = {
            **{f"nats-{number}": f"nats/n{number}" for number in (1, 2, 3)},
            "redis-1": "redis/r1",
            "redis-2": "redis/r2",
        }
        self.disks = {name: Disk(directory / place) for name, place in names.items()}
        self._nats = NatsCluster(directory / "nats", advertise=False)
        ports = free_ports(4)
        self._before_redis = {
            f"redis-{number}": Proxy("127.0.0.1", port, listens_at=reached_at)
            for number, (port, reached_at) in enumerate(zip(ports[:2], ports[2:], strict=True), start=1)
        }
        self._redis = RedisSentinel(directory / "redis", ports=ports[:2], reached_at=ports[2:], source=_SERVERS_FROM)
        self.servers: dict[str, ServerProcess] = {
            **{f"nats-{number}": server for number, server in enumerate(self._nats.servers, start=1)},
            **{f"redis-{number}": server for number, server in enumerate(self._redis.servers, start=1)},
        }
        self.proxied: Mapping[str, tuple[str, ...]] = {"nats": ("nats-1", "nats-2", "nats-3")}
        self.nats_url = self._nats.url
        self.redis_url = self._redis.url
        self.environment: Mapping[str, str] = {"COLO_STREAM_REPLICAS": str(_REPLICAS)}

    def port_of(self, name: str) -> int:
        """Where the server listens."""
        number = int(name.rpartition("-")[2]) - 1
        return int(self._nats.url.split(",")[number].rpartition(":")[2])

    def url_of(self, store: str, ports: Mapping[str, int]) -> str:
        """The address of a store, on these ports instead of the servers'."""
        if store == "redis":
            return self._redis.url
        return ",".join(f"nats://127.0.0.1:{ports[name]}" for name in self.proxied["nats"])

    async def start(self) -> None:
        """Start all, and wait until they know one another."""
        for proxy in self._before_redis.values():
            await proxy.start()
        for server in (*self.servers.values(), *self._redis.sentinels):
            await server.start()
        await self.wait_healthy()
        await made_streams(self.nats_url, replicas=_REPLICAS)

    async def settle(self) -> None:
        """Have every stream that services made kept by three servers, as an operator does."""
        client = await nats.connect(self.nats_url.split(","))
        try:
            js = client.jetstream(timeout=10.0)
            for stream in await js.streams_info():
                if stream.config.num_replicas != _REPLICAS:
                    stream.config.num_replicas = _REPLICAS
                    await js.update_stream(stream.config)
        finally:
            await client.close()
        await self.wait_healthy()

    async def stop(self) -> None:
        """Stop all, the sentinels first."""
        for server in (*self._redis.sentinels, *self.servers.values()):
            await server.stop()
        for proxy in self._before_redis.values():
            await proxy.close()

    async def wait_healthy(self) -> None:
        """Wait until every server has caught up: only then the loss of the next one costs nothing."""
        await asyncio.to_thread(self._nats.wait_healthy)
        await asyncio.to_thread(self._redis.wait_healthy)

    async def leader(self, what: str) -> str:
        """The server that leads a stream, or JetStream ("nats"), or the primary of Redis ("redis")."""
        if what == "redis":
            return f"redis-{await asyncio.to_thread(self._redis.primary) + 1}"
        if what == "nats":
            return f"nats-{await asyncio.to_thread(self._nats.meta_leader) + 1}"
        return f"nats-{await asyncio.to_thread(self._nats.stream_leader, what) + 1}"

    async def can_empty(self, name: str) -> bool:
        """Whether another Redis has what is on the disk of this one, which does not run: waits until it is the primary."""
        if name.startswith("nats"):
            return False
        await asyncio.to_thread(partial(self._redis.wait_primary, other_than=int(name.rpartition("-")[2]) - 1))
        return True

    async def split(self, hold_s: float) -> None:
        """Cut the primary of Redis off from the other one and the sentinel for so long; returns when it follows the new one."""
        proxy = self._before_redis[await self.leader("redis")]
        proxy.cut(source=_SERVERS_FROM)
        try:
            await asyncio.sleep(hold_s)
        finally:
            proxy.heal()
        await self.wait_healthy()


async def rewrite_aof(server: ServerProcess) -> None:
    """Have a Redis write its append-only file anew, as the runbook of a full disk says."""
    async with redis.asyncio.from_url(server.url) as client:
        for _ in range(_REWRITES_MOST):
            with suppress(redis.ResponseError):  # One is under way; the next one begins after it.
                await client.bgrewriteaof()
            await eventually(partial(_is_at_rest, client), "the file is rewritten", limit_s=_REWRITTEN_S)
            if (await client.info("persistence"))["aof_last_bgrewrite_status"] == "ok":
                return
    raise OSError(f"{server.url} does not rewrite its file although its disk has room")


async def _is_at_rest(client: redis.asyncio.Redis) -> bool:
    info: Any = await client.info("persistence")
    return not (info["aof_rewrite_in_progress"] or info["aof_rewrite_scheduled"])
