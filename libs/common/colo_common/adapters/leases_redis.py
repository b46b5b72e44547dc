"""Leases of partitions in Redis, next to the rows whose writers they fence."""

from typing import Final

import redis.asyncio

from colo_common.adapters.lease_scripts import LEASE
from colo_common.adapters.redis_client import REDIS_ERRORS, redis_error
from colo_common.adapters.redis_scripts import Script, ScriptCalls
from colo_common.model.partition import Fence

__all__ = ["RedisLeases", "lease_prefix"]

_LEASE: Final = Script.of(LEASE)


def lease_prefix(service: str) -> str:
    """The beginning of the keys under which the leases of a service are kept."""
    return f"colo:v1:{service}"


class RedisLeases:
    """The leases under one prefix. `client` may be shared and is not closed here."""

    def __init__(self, client: redis.asyncio.Redis, *, prefix: str, min_replicas: int = 0) -> None:
        """`min_replicas`: as of ScriptCalls."""
        self._prefix = prefix
        self._calls = ScriptCalls(client, min_replicas=min_replicas)

    async def renew(self, owner: str, ttl_ms: int, partitions: int) -> tuple[Fence, ...]:
        """See Leases.renew. The owner's name has no spaces."""
        try:
            raw: list[int] = await self._calls.run(_LEASE, [self._prefix, owner, ttl_ms, partitions])
        except REDIS_ERRORS as error:
            raise redis_error(error, "lease partitions") from error
        return tuple(sorted(zip(raw[::2], raw[1::2], strict=True)))

    async def close(self) -> None:
        """Give back the connection of the calls."""
        await self._calls.close()
