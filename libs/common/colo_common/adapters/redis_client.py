"""Makes Redis clients with the limits that colo relies on, and translates their errors into errors of the ports."""

from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

import redis.asyncio
import redis.exceptions
from redis.asyncio.connection import AbstractConnection, SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff

from colo_common.adapters.nats_access import secret_of, without_password
from colo_common.adapters.redis_access import RedisAccess, SentinelAddress
from colo_common.adapters.redis_identity import IDENTITY
from colo_common.adapters.redis_tls import ManagedTlsConnection, TlsConnection
from colo_common.model.invalid import InvalidInput
from colo_common.ports import PortError, Refused, Unavailable

__all__ = ["ANSWER_WITHIN_S", "REDIS_ERRORS", "ask_for_primary", "redis_client", "redis_error", "redis_identity"]

# Errors that the library's calls raise for a server or network failure.
REDIS_ERRORS: Final = (redis.exceptions.RedisError, OSError, TimeoutError)

# The limit for a connection or an answer.
ANSWER_WITHIN_S: Final = 5.0

_CONNECTIONS_MAX: Final = 16
# Behind sentinels no caller waits for a connection: the library has no such pool. More than a process ever uses at once.
_SENTINEL_CONNECTIONS_MAX: Final = 64
# How long one sentinel may take to say who the primary is, before the next one is asked.
_SENTINEL_WITHIN_S: Final = 1.0
# Answers of a server on its way to another state: a primary that lost its replicas or became one, a replica without primary, and
# a server whose losses are being looked for (`redis_identity`).
_NOT_NOW: Final = ("NOREPLICAS", "READONLY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "UNBLOCKED", "BEGANAGAIN")


def redis_client(server: str | RedisAccess, *, name: str) -> redis.asyncio.Redis:
    """A client of a server, or of the primary that sentinels name; a plain address is one without files. Connects at its first use.

    At most 16 connections (more callers wait), behind sentinels 64; 5 s for a connection or an answer. The library retries
    nothing: a compare-and-set that is sent again after a lost answer would meet its own write, so the caller decides. After a
    failover the next call finds the new primary, also after one that the old primary lives through, where it has refused a write
    (`ask_for_primary`). Raises InvalidInput for an address or a file that breaks a rule.
    """
    access = RedisAccess(url=server) if isinstance(server, str) else server
    options: dict[str, Any] = {
        "client_name": name,
        "socket_timeout": ANSWER_WITHIN_S,
        "health_check_interval": 15,
        "retry": Retry(NoBackoff(), 0),
        **access.options(),
    }
    if not access.url.startswith("unix://"):
        options |= {"socket_connect_timeout": ANSWER_WITHIN_S, "socket_keepalive": True}
    sentinel = access.sentinel()
    if sentinel is not None:
        return redis.asyncio.Redis.from_pool(_sentinel_pool(access, sentinel, options))
    options |= {"max_connections": _CONNECTIONS_MAX, "timeout": ANSWER_WITHIN_S}
    # The library takes credentials from one place alone.
    url = without_password(access.url) if access.password_file else access.url
    try:
        pool = redis.asyncio.BlockingConnectionPool.from_url(url, **options)
    except ValueError as error:
        raise InvalidInput("redis_url", str(error), access.shown) from error
    if pool.connection_class is SSLConnection:
        pool.connection_class = TlsConnection
    return redis.asyncio.Redis.from_pool(pool)


class _SentinelPool(SentinelConnectionPool):
    """The library's pool, all of whose connections lead to one primary, the one that the sentinels named last.

    A primary that is cut off from them goes on answering. The library keeps a connection to it that was in use when the next one
    was found, and a row that is read there may be one that does not count. When all connections are closed, so are those to the
    sentinels.
    """

    async def release(self, connection: AbstractConnection) -> None:
        if (getattr(connection, "host", None), getattr(connection, "port", None)) != self.master_address:
            await connection.disconnect()
        await super().release(connection)

    async def ask(self) -> None:
        """Have every call from now on ask the sentinels first."""
        self.master_address = None
        await self.disconnect(inuse_connections=False)

    async def disconnect(self, inuse_connections: bool = True) -> None:
        await super().disconnect(inuse_connections)
        if inuse_connections:
            for sentinel in self.sentinel_manager.sentinels:
                await sentinel.aclose()


def _sentinel_pool(access: RedisAccess, address: SentinelAddress, options: dict[str, Any]) -> SentinelConnectionPool:
    to_sentinel: dict[str, Any] = {
        "socket_timeout": _SENTINEL_WITHIN_S,
        "socket_connect_timeout": _SENTINEL_WITHIN_S,
        "retry": Retry(NoBackoff(), 0),
        "password": secret_of("redis_sentinel_password_file", access.sentinel_password_file) or None,
        **{key: value for key, value in options.items() if key.startswith("ssl_")},
    }
    if address.is_tls:
        to_sentinel["ssl"] = True
        options = {**options, "connection_class": ManagedTlsConnection}
    manager = Sentinel(  # type: ignore[no-untyped-call]
        list(address.sentinels), sentinel_kwargs=to_sentinel
    )
    if address.is_tls:
        for sentinel in manager.sentinels:
            sentinel.connection_pool.connection_class = TlsConnection
    return _SentinelPool(  # type: ignore[no-untyped-call]
        address.primary,
        manager,
        db=address.db,
        max_connections=_SENTINEL_CONNECTIONS_MAX,
        **(options if access.password_file else {"username": address.user, "password": address.password, **options}),
    )


async def ask_for_primary(client: redis.asyncio.Redis) -> None:
    """Have the next calls ask the sentinels who the primary is; without sentinels nothing happens.

    For whoever was told by a server that its write does not count: another one may be the primary, which the old one does not know.
    """
    if isinstance(client.connection_pool, _SentinelPool):
        with suppress(*REDIS_ERRORS):
            await client.connection_pool.ask()


def redis_error(error: BaseException, doing: str) -> PortError:
    """Refused where the server said no (out of memory, no rights, a failed snapshot), else Unavailable."""
    # What each sentinel answered follows as the library's own text of objects.
    first, _, _ = str(error).partition(" : <")
    sentence = f"{doing}: {first or type(error).__name__}"
    if isinstance(error, redis.exceptions.ReadOnlyError) or str(error).startswith(_NOT_NOW):
        return Unavailable(sentence)
    if isinstance(error, redis.exceptions.ResponseError) and not isinstance(error, redis.exceptions.BusyLoadingError):
        return Refused(sentence)
    if isinstance(error, redis.exceptions.AuthenticationError):
        return Refused(sentence)
    return Unavailable(sentence)


async def redis_identity(client: redis.asyncio.Redis) -> str:
    """A random number beside the data, made where it is missing, and the run of the server that answers.

    It changes when the data was emptied, when the server started again, and when another one took over.
    """
    try:
        async with client.pipeline(transaction=False) as pipe:
            pipe.set(IDENTITY, uuid4().hex, nx=True)
            pipe.get(IDENTITY)
            # In one word the library does not take the answer apart: of some thirty lines one is wanted.
            pipe.execute_command("INFO server")
            _, number, server = await pipe.execute()
    except REDIS_ERRORS as error:
        raise redis_error(error, "look whether Redis is the same") from error
    _, _, rest = server.partition(b"run_id:")
    return f"{number.decode()} in run {rest.split(maxsplit=1)[0].decode()}"
