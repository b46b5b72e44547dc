"""The lab's NATS and Redis: its own, or those whose URL was given; and the port of the gateway."""

import os
import socket
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from colo_cli.lab_options import LabOptions
from colo_cli.server_process import ServerProcess
from colo_cli.servers import NatsServer, RedisServer
from colo_common.adapters.nats_streams import delete_streams, refuse_used_streams
from colo_common.model.invalid import InvalidInput

__all__ = ["LabServers"]

_GATEWAY_PORT: Final = 8088


class LabServers:
    """Started on entry, stopped on exit. What was given is neither started nor stopped, but emptied of the lab's own data."""

    def __init__(self, options: LabOptions, directory: Path) -> None:
        self._options = options
        self._nats = None if options.nats_url else NatsServer(directory=directory / "nats")
        self._redis = None if options.redis_url else RedisServer(directory=directory / "redis")
        self.gateway_port = 0

    async def __aenter__(self) -> Self:
        self.gateway_port = _free_port(self._options.port)
        if self._redis is None:
            await _refuse_used_redis(self._options.redis_url)
        if self._nats is None:
            await refuse_used_streams(self._options.nats_url)
        for server in (self._nats, self._redis):
            if server is not None:
                await server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._redis is None:
            await _empty_redis(self._options.redis_url)
        if self._nats is None:
            await delete_streams(self._options.nats_url)
        for server in (self._nats, self._redis):
            if server is not None:
                await server.stop()

    @property
    def nats_url(self) -> str:
        """Where NATS is."""
        return self._options.nats_url or _of(self._nats).url

    @property
    def redis_url(self) -> str:
        """Where Redis is."""
        return self._options.redis_url or _of(self._redis).url

    @property
    def gateway_url(self) -> str:
        """Where the gateway will be."""
        return f"http://127.0.0.1:{self.gateway_port}"

    def cpu_s(self) -> dict[str, float]:
        """CPU time of the lab's own servers."""
        return {name: _cpu_s(server.pid) for name, server in self._own()}

    def rss_bytes(self) -> dict[str, int]:
        """Resident memory of the lab's own servers."""
        return {name: _rss_bytes(server.pid) for name, server in self._own()}

    def _own(self) -> list[tuple[str, ServerProcess]]:
        pairs: tuple[tuple[str, ServerProcess | None], ...] = (
            ("nats-server", self._nats),
            ("redis-server", self._redis),
        )
        return [(name, server) for name, server in pairs if server is not None]


def _of(server: ServerProcess | None) -> ServerProcess:
    if server is None:
        raise InvalidInput("lab", "has neither a server nor its address", None)
    return server


def _free_port(wanted: int) -> int:
    """The wanted port (InvalidInput when it is taken), else 8088 when it is free, else any free one."""
    for port in (wanted,) if wanted else (_GATEWAY_PORT, 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                if wanted:
                    raise InvalidInput(
                        "port", f"must be a port this program may listen on: {error.strerror}", port
                    ) from error
                continue
            taken: int = probe.getsockname()[1]
            return taken
    raise InvalidInput("port", "no port is free on the loopback address", wanted)


async def _refuse_used_redis(url: str) -> None:
    """A lab must not mix its data with a real colo's."""
    from colo_common.adapters.redis_client import redis_client

    client = redis_client(url, name="colo-lab")
    try:
        async for _key in client.scan_iter(match="colo:*", count=1000):
            raise InvalidInput("redis_url", "holds data of another colo; give an empty database", url)
    except OSError as error:
        raise InvalidInput("redis_url", f"must be a Redis that answers: {error}", url) from error
    finally:
        await client.aclose()


async def _empty_redis(url: str) -> None:
    from colo_common.adapters.redis_client import redis_client

    client = redis_client(url, name="colo-lab")
    try:
        async for key in client.scan_iter(match="colo:*", count=1000):
            await client.delete(key)
    finally:
        await client.aclose()


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0
