"""Leases of partitions in Redis, next to the rows whose writers they fence."""

import asyncio
from collections.abc import Sequence
from typing import Final

import redis.asyncio

from colo_common.adapters.lease_scripts import LEASE
from colo_common.adapters.redis_client import REDIS_ERRORS, redis_error
from colo_common.adapters.redis_scripts import Argument, Script, ScriptCalls
from colo_common.model.partition import BusReach, Fence
from colo_common.ports import OtherPartitions

__all__ = ["RedisLeases", "lease_prefix"]

_LEASE: Final = Script.of(LEASE)
#: Stands where the first partition would in the answer of the script.
_OTHER_NUMBER: Final = -1


def lease_prefix(service: str) -> str:
    """The beginning of the keys under which the leases of a service are kept."""
    return f"colo:v1:{service}"


class RedisLeases:
    """The leases under one prefix. `client` may be shared and is not closed here."""

    def __init__(self, client: redis.asyncio.Redis, *, prefix: str, min_replicas: int = 0) -> None:
        """`min_replicas`: as of ScriptCalls."""
        self._prefix = prefix
        # The newest fence that was ever seen, and since when (s of the event loop) the store knows only older ones.
        self._known_fence = 0
        self._lost_since_s: float | None = None
        self._calls = ScriptCalls(client, min_replicas=min_replicas)

    async def renew(
        self,
        owner: str,
        ttl_ms: int,
        partitions: int,
        held: Sequence[Fence] = (),
        reach: BusReach = BusReach.UNSURE,
    ) -> tuple[Fence, ...]:
        """See Leases.renew. The owner's name has no spaces."""
        now_s = asyncio.get_running_loop().time()
        if self._lost_since_s is not None and now_s - self._lost_since_s > 2 * ttl_ms / 1_000:
            # Nobody who held something is left.
            self._known_fence = 0
        named = " ".join(f"{partition} {fence}" for partition, fence in held)
        arguments: list[Argument] = [self._prefix, owner, ttl_ms, partitions, named, self._known_fence, reach.value]
        try:
            raw: list[int] = await self._calls.run(_LEASE, arguments)
        except REDIS_ERRORS as error:
            raise redis_error(error, "lease partitions") from error
        *pairs, newest = raw
        if pairs[:1] == [_OTHER_NUMBER]:
            raise OtherPartitions(pairs[1], partitions)
        if newest >= self._known_fence:
            self._known_fence, self._lost_since_s = newest, None
        elif self._lost_since_s is None:
            self._lost_since_s = now_s
        return tuple(sorted(zip(pairs[::2], pairs[1::2], strict=True)))

    async def close(self) -> None:
        """Give back the connection of the calls."""
        await self._calls.close()
