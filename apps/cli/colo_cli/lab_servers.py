"""The lab's NATS and Redis servers, which it starts unless the user gave a URL, and the port of the gateway."""

import asyncio
import shutil
import socket
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from colo_cli.lab_options import LabOptions
from colo_cli.lab_usage import cpu_s, rss_bytes
from colo_cli.server_process import ServerProcess
from colo_cli.servers import NatsServer, RedisServer
from colo_common.adapters.nats_access import NatsAccess
from colo_common.adapters.nats_stream_config import StreamWish
from colo_common.adapters.nats_streams import delete_streams, make_streams, refuse_used_streams
from colo_common.model.invalid import InvalidInput
from colo_common.ports import PortError

__all__ = ["LabServers"]

_GATEWAY_PORT: Final = 8088
#: The disk of the streams of a lab; of a small disk half of what is free.
_DISK_MOST_BYTES: Final = 8 << 30
_PROBE_KEY: Final = "colo:lab:probe"


class LabServers:
    """The servers start on entry and stop on exit. A given server is neither; the lab removes its own data from it on exit."""

    def __init__(self, options: LabOptions, directory: Path) -> None:
        self._options = options
        self._directory = directory
        self._nats = (
            None if options.nats_url else NatsServer(directory=directory / "nats", port=options.nats_port or None)
        )
        self._redis = None if options.redis_url else RedisServer(directory=directory / "redis")
        self.gateway_port = 0
        self._claim: socket.socket | None = None

    async def __aenter__(self) -> Self:
        self.gateway_port, self._claim = _free_port(self._options.port)
        try:
            if self._redis is None:
                await _refuse_used_redis(self._options.redis_url)
            if self._nats is None:
                await _refuse_used_nats(self._options.nats_url)
            await asyncio.gather(*(server.start() for _, server in self._own()))
            await make_streams(
                NatsAccess(url=self.nats_url), StreamWish(disk_bytes=_disk_bytes(self._directory)), upgrade=False
            )
        except BaseException:
            await self._stop_own()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._redis is None:
                await _empty_redis(self._options.redis_url)
            if self._nats is None:
                await delete_streams(NatsAccess(url=self._options.nats_url))
        except PortError as problem:
            # The lab is over and its verdict stands; the owner of the server must still learn of the data.
            sys.stderr.write(f"colo: the lab's data could not be removed: {problem}\n")
        finally:
            await self._stop_own()

    async def _stop_own(self) -> None:
        """Stop the lab's own servers at the same time, each within its own limit, and give the gateway's port to other labs."""
        if self._claim is not None:
            self._claim.close()
        await asyncio.gather(*(server.stop() for _, server in self._own()))

    @property
    def nats_url(self) -> str:
        """The URL of NATS."""
        return self._options.nats_url or _of(self._nats).url

    @property
    def redis_url(self) -> str:
        """The URL of Redis."""
        return self._options.redis_url or _of(self._redis).url

    @property
    def gateway_url(self) -> str:
        """The URL of the gateway, before it has started too."""
        return f"http://127.0.0.1:{self.gateway_port}"

    def cpu_s(self) -> dict[str, float]:
        """CPU time of the lab's own servers."""
        return {name: cpu_s(server.pid) for name, server in self._own()}

    def rss_bytes(self) -> dict[str, int]:
        """Resident memory of the lab's own servers."""
        return {name: rss_bytes(server.pid) for name, server in self._own()}

    def _own(self) -> list[tuple[str, ServerProcess]]:
        pairs: tuple[tuple[str, ServerProcess | None], ...] = (
            ("nats-server", self._nats),
            ("redis-server", self._redis),
        )
        return [(name, server) for name, server in pairs if server is not None]


def _disk_bytes(directory: Path) -> int:
    return min(_DISK_MOST_BYTES, shutil.disk_usage(directory).free // 2)


def _of(server: ServerProcess | None) -> ServerProcess:
    if server is None:
        raise InvalidInput("lab", "has neither a server nor its address", None)
    return server


def _free_port(wanted: int) -> tuple[int, socket.socket]:
    """The wanted port (InvalidInput when it is taken), else 8088 when it is free, else any free one, and the claim to it.

    The gateway listens seconds later: until the claim is closed, or this process ends, no other lab of this machine takes the port.
    """
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
        claim = _claimed(taken)
        if claim is not None:
            return taken, claim
        if wanted:
            raise InvalidInput("port", "must be a port that no other lab of this machine has", port)
    raise InvalidInput("port", "no port is free on the loopback address", wanted)


def _claimed(port: int) -> socket.socket | None:
    """The lab's claim to a port, a name that lives as long as the socket; None when another lab has it."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        claim.bind(f"\0colo-lab-{port}")
    except OSError:
        claim.close()
        return None
    return claim


async def _refuse_used_nats(url: str) -> None:
    """Raise InvalidInput, naming the option, when the NATS server has streams of another colo or does not answer."""
    try:
        await refuse_used_streams(NatsAccess(url=url))
    except PortError as error:
        raise InvalidInput("nats_url", f"must be a NATS server with JetStream that answers: {error}", url) from error


async def _refuse_used_redis(url: str) -> None:
    """Raise InvalidInput, naming the option, when the Redis database has data of another colo or refuses writes."""
    from colo_common.adapters.redis_client import REDIS_ERRORS, redis_client

    client = redis_client(url, name="colo-lab")
    try:
        async for _key in client.scan_iter(match="colo:*", count=1000):
            raise InvalidInput("redis_url", "holds data of another colo; give an empty database", url)
        await client.set(_PROBE_KEY, "1")
        await client.delete(_PROBE_KEY)
    except REDIS_ERRORS as error:
        raise InvalidInput("redis_url", f"must be a Redis that answers and takes writes: {error}", url) from error
    finally:
        await client.aclose()


async def _empty_redis(url: str) -> None:
    """Remove the lab's rows. Raises PortError when the server refuses."""
    from colo_common.adapters.redis_client import REDIS_ERRORS, redis_client, redis_error

    client = redis_client(url, name="colo-lab")
    try:
        async for key in client.scan_iter(match="colo:*", count=1000):
            await client.delete(key)
    except REDIS_ERRORS as error:
        raise redis_error(error, f"empty {url}") from error
    finally:
        await client.aclose()
