"""Makes Redis clients with the limits that colo relies on, and translates their errors into errors of the ports."""

from typing import Any, Final

import redis.asyncio
import redis.exceptions
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from colo_common.model.invalid import InvalidInput
from colo_common.ports import PortError, Refused, Unavailable

__all__ = ["ANSWER_WITHIN_S", "REDIS_ERRORS", "redis_client", "redis_error"]

# Errors that the library's calls raise for a server or network failure.
REDIS_ERRORS: Final = (redis.exceptions.RedisError, OSError, TimeoutError)

# The limit for a connection or an answer.
ANSWER_WITHIN_S: Final = 5.0

_CONNECTIONS_MAX: Final = 16
_SCHEMES: Final = ("redis://", "rediss://", "unix://")


def redis_client(url: str, *, name: str) -> redis.asyncio.Redis:
    """A client of redis://, rediss:// or unix:// (unix:///run/redis.sock?db=0); connects at its first use.

    At most 16 connections (more callers wait), 5 s for a connection or an answer. The library retries nothing: a
    compare-and-set that is sent again after a lost answer would meet its own write, so the caller decides. Raises InvalidInput for
    another scheme.
    """
    if not url.startswith(_SCHEMES):
        raise InvalidInput("redis_url", f"must begin with one of {', '.join(_SCHEMES)}", url)
    options: dict[str, Any] = {
        "client_name": name,
        "max_connections": _CONNECTIONS_MAX,
        "timeout": ANSWER_WITHIN_S,
        "socket_timeout": ANSWER_WITHIN_S,
        "health_check_interval": 15,
        "retry": Retry(NoBackoff(), 0),
    }
    if not url.startswith("unix://"):
        options |= {"socket_connect_timeout": ANSWER_WITHIN_S, "socket_keepalive": True}
    try:
        pool = redis.asyncio.BlockingConnectionPool.from_url(url, **options)
    except ValueError as error:
        raise InvalidInput("redis_url", str(error), url) from error
    return redis.asyncio.Redis.from_pool(pool)


def redis_error(error: BaseException, doing: str) -> PortError:
    """Refused where the server said no (read-only, out of memory, no rights, a failed snapshot), else Unavailable."""
    sentence = f"{doing}: {str(error) or type(error).__name__}"
    if isinstance(error, redis.exceptions.ResponseError) and not isinstance(error, redis.exceptions.BusyLoadingError):
        return Refused(sentence)
    if isinstance(error, redis.exceptions.AuthenticationError):
        return Refused(sentence)
    return Unavailable(sentence)
