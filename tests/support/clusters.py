"""Real clusters on the loopback address: NATS of three servers with routes, Redis as primary, replicas and sentinels.

A server can be killed (`kill`), started again on its files (`restart`), and asked who leads. Ports are chosen before the start,
since the servers must know one another; each server keeps its port over a restart.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import redis

from colo_cli.server_process import ServerProcess
from colo_cli.servers import NatsServer, RedisServer, SentinelServer, ServerMissing
from tests.support.ports import free_ports
from tests.support.servers import missing
from tests.support.waiting import eventually_blocking

__all__ = ["NatsCluster", "RedisSentinel", "nats_cluster", "redis_sentinel"]

PRIMARY: Final = "colo"
#: A sentinel that stood still for two seconds does nothing for half a minute after that.
START_S: Final = 120.0

S = TypeVar("S", bound=ServerProcess)


class Killable(Generic[S]):
    """Servers that can end without a word, one by one."""

    servers: list[S]

    def kill(self, number: int) -> None:
        """End this server (0 is the first, and the first primary) without a word; its files stay."""
        _kill(self.servers[number])

    def restart(self, number: int) -> None:
        """Start a killed server again on its files; returns when it takes connections. A former primary is a replica."""
        self.servers[number].start_blocking()


class NatsCluster(Killable[NatsServer]):
    """Three servers (or as many as asked for) with JetStream, each with a directory and ports of its own."""

    def __init__(
        self, directory: Path, *, size: int = 3, sync_always: bool = False, config: str = "", advertise: bool = True
    ) -> None:
        """`config` is added to the configuration of every server. Without `advertise` no client learns addresses from a server."""
        ports = free_ports(3 * size)
        routes = ", ".join(json.dumps(f"nats://127.0.0.1:{port}") for port in ports[size : 2 * size])
        self.servers = []
        self.monitor_urls = [f"http://127.0.0.1:{port}" for port in ports[2 * size :]]
        for number in range(size):
            text = (
                f"server_name: n{number + 1}\n"
                f"http: 127.0.0.1:{ports[2 * size + number]}\n"
                f"cluster {{ name: colo, listen: 127.0.0.1:{ports[size + number]}, routes: [{routes}]"
                f"{'' if advertise else ', no_advertise: true'} }}\n{config}"
            )
            place = directory / f"n{number + 1}"
            self.servers.append(NatsServer(directory=place, port=ports[number], sync_always=sync_always, config=text))
        self.url = ",".join(f"nats://127.0.0.1:{port}" for port in ports[:size])

    def start(self) -> None:
        """Return when every server follows the leader of JetStream."""
        for server in self.servers:
            server.start_blocking()
        self.wait_healthy()

    def stop(self) -> None:
        """Stop what runs."""
        for server in self.servers:
            server.stop_blocking(limit_ms=1_000)

    def wait_healthy(self) -> None:
        """Wait until all servers that run say that their JetStream is up to date."""
        eventually_blocking(
            lambda: all(self._is_healthy(number) for number in self.running()),
            "every NATS server is healthy",
            limit_s=START_S,
        )

    def running(self) -> tuple[int, ...]:
        """The servers that run."""
        return tuple(number for number, server in enumerate(self.servers) if server.is_running)

    def meta_leader(self) -> int:
        """The server that leads JetStream's own group."""
        return self._number(lambda: self._monitored("/jsz").get("meta_cluster", {}).get("leader", ""))

    def stream_leader(self, stream: str) -> int:
        """The server that leads this stream."""

        def name() -> str:
            accounts = self._monitored("/jsz?streams=true&leader-only=false").get("account_details", [])
            found = [each for account in accounts for each in account.get("stream_detail", [])]
            return next((str(each["cluster"].get("leader", "")) for each in found if each["name"] == stream), "")

        return self._number(name)

    def _number(self, name: Callable[[], str]) -> int:
        found: list[str] = []

        def is_known() -> bool:
            found[:] = [name()]
            # Until the others elect, they still name the one that was killed.
            return found[0].startswith("n") and int(found[0][1:]) - 1 in self.running()

        eventually_blocking(is_known, "a leader is elected", limit_s=START_S)
        return int(found[0][1:]) - 1

    def _monitored(self, path: str) -> dict[str, Any]:
        for number in self.running():
            with suppress(OSError, ValueError), self._opened(number, path) as reply:
                found: dict[str, Any] = json.load(reply)
                return found
        return {}

    def _is_healthy(self, number: int) -> bool:
        with suppress(OSError, ValueError), self._opened(number, "/healthz") as reply:
            return bool(reply.status == 200)
        return False

    def _opened(self, number: int, path: str) -> Any:
        return urllib.request.urlopen(self.monitor_urls[number] + path, timeout=2)


class RedisSentinel(Killable[RedisServer]):
    """A primary with an append-only file, its replicas, and sentinels; `url` names the sentinels."""

    def __init__(
        self,
        directory: Path,
        *,
        replicas: int = 1,
        sentinels: int = 1,
        down_after_ms: int = 1_000,
        ports: Sequence[int] = (),
        reached_at: Sequence[int] = (),
        source: str = "",
        arguments: Sequence[str] = (),
    ) -> None:
        """`arguments` are of every Redis.

        Where proxies stand before them, `ports` are those of the Redis servers and `reached_at` those that lead to them; `source`
        is the address from which the servers and sentinels connect to one another.
        """
        watching = free_ports(sentinels)
        self._ports = list(ports or free_ports(1 + replicas))
        self._reached_at = list(reached_at or self._ports)
        first = self._reached_at[0]
        self.servers = [
            RedisServer(
                directory=directory / f"r{number + 1}",
                port=port,
                appendfsync="everysec",
                arguments=(
                    *(("--bind-source-addr", source) if source else ()),
                    *("--replica-announce-ip", "127.0.0.1", "--replica-announce-port", str(self._reached_at[number])),
                    *arguments,
                    *(() if number == 0 else ("--replicaof", "127.0.0.1", str(first))),
                ),
            )
            for number, port in enumerate(self._ports)
        ]
        self.sentinels = [
            SentinelServer(
                directory=directory / f"s{number + 1}",
                port=port,
                primary=PRIMARY,
                primary_port=first,
                quorum=sentinels // 2 + 1,
                down_after_ms=down_after_ms,
                config=f"bind-source-addr {source}" if source else "",
            )
            for number, port in enumerate(watching)
        ]
        self.url = f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in watching)}/{PRIMARY}"

    def start(self) -> None:
        """Return when the replicas follow and the sentinels know them."""
        for server in (*self.servers, *self.sentinels):
            server.start_blocking()
        self.wait_healthy()

    def wait_healthy(self) -> None:
        """Wait until the sentinels know one another and see every replica follow the primary."""
        eventually_blocking(self._knows_all, "the sentinels know every replica", limit_s=START_S)

    def stop(self) -> None:
        """Stop what runs."""
        for server in (*self.sentinels, *self.servers):
            server.stop_blocking(limit_ms=1_000)

    def primary(self) -> int:
        """The server that a sentinel calls the primary now."""
        with _client(self.sentinels[0].port) as client:
            found: Any = client.sentinel_get_master_addr_by_name(PRIMARY)
        return self._reached_at.index(int(found[1]))

    def wait_primary(self, *, other_than: int) -> int:
        """Wait until the sentinels have made another server the primary and it says so itself; that server."""

        def is_other() -> bool:
            number = self.primary()
            if number == other_than:
                return False
            with suppress(redis.RedisError), _client(self._ports[number]) as client:
                return bool(client.info("replication")["role"] == "master")
            return False

        eventually_blocking(is_other, "another Redis is the primary", limit_s=START_S)
        return self.primary()

    def _knows_all(self) -> bool:
        for sentinel in self.sentinels:
            with suppress(redis.RedisError, KeyError), _client(sentinel.port) as client:
                found: Any = client.sentinel_master(PRIMARY)
                replicas: Any = client.sentinel_slaves(PRIMARY)
                linked = [each for each in replicas if each["master-link-status"] == "ok"]
                if found["num-other-sentinels"] == len(self.sentinels) - 1 and len(linked) == len(self.servers) - 1:
                    continue
            return False
        return True


@contextmanager
def nats_cluster(*, size: int = 3, sync_always: bool = False, config: str = "") -> Iterator[NatsCluster]:
    """A NATS cluster in a temporary directory, stopped and removed at the end."""
    with _directory("colo-nats-cluster-") as directory:
        cluster = NatsCluster(directory, size=size, sync_always=sync_always, config=config)
        with _started(cluster):
            yield cluster


@contextmanager
def redis_sentinel(*, replicas: int = 1, sentinels: int = 1) -> Iterator[RedisSentinel]:
    """Redis with replicas and sentinels in a temporary directory, stopped and removed at the end."""
    with _directory("colo-redis-sentinel-") as directory:
        cluster = RedisSentinel(directory, replicas=replicas, sentinels=sentinels)
        with _started(cluster):
            yield cluster


@contextmanager
def _started(cluster: NatsCluster | RedisSentinel) -> Iterator[None]:
    try:
        try:
            cluster.start()
        except ServerMissing as error:
            missing(str(error))
        yield
    finally:
        cluster.stop()


@contextmanager
def _directory(prefix: str) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _client(port: int) -> Iterator[redis.Redis]:
    client = redis.Redis(host="127.0.0.1", port=port, socket_timeout=2, decode_responses=True)
    try:
        yield client
    finally:
        client.close()


def _kill(server: ServerProcess) -> None:
    os.kill(server.pid, signal.SIGKILL)
    server.stop_blocking(limit_ms=5_000)
