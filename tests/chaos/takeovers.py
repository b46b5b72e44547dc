"""How long a takeover takes: from the beginning of a fault until other instances hold all that the struck one held.

The leases are read where they are kept, and nothing is written there. Which instance an owner of leases is, the gateway tells.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from redis.exceptions import RedisError

from colo_common.adapters.leases_redis import lease_prefix
from tests.audit.recorder import redis_at
from tests.chaos.cluster import ChaosCluster
from tests.chaos.shape import LEASED

__all__ = ["PROMISED_S", "TAKEN_WITHIN_S", "Holding", "Takeover", "Takeovers", "holding_of", "taken_over"]

#: What an instance's share needs to move: its lease of 5 s, and the third of a lease after which the others look again.
PROMISED_S: Final = 10.0
#: More fails a run: twice the promise, since processes of a busy machine wait for a CPU.
TAKEN_WITHIN_S: Final = 20.0
_LOOK_S: Final = 0.1
#: Where the leases of a service are kept: those of the scheduler beside its ledger.
_PREFIXES: Final = {service: lease_prefix("ledger" if service == "scheduler" else service) for service in LEASED}

#: Owner and fence, by partition.
Leases = Mapping[int, tuple[str, int]]


class Holding(Struct, frozen=True, kw_only=True):
    """What an instance holds: partitions of its service, under the name that it has among the owners of leases."""

    service: str
    owner: str
    partitions: frozenset[int]


class Takeover(Struct, frozen=True, kw_only=True):
    """The seconds until other instances held all that one of this service held; `is_done` says whether they do at all."""

    service: str
    took_s: float
    is_done: bool = True

    def __str__(self) -> str:
        how = f"taken over after {self.took_s:.2f} s" if self.is_done else f"NOT TAKEN OVER in {self.took_s:.0f} s"
        return f"{self.service}: {how}"

    @property
    def is_late(self) -> bool:
        """Whether it took longer than even a busy machine explains."""
        return not self.is_done or self.took_s > TAKEN_WITHIN_S


class Takeovers:
    """Reads the leases of a cluster that runs."""

    def __init__(self, cluster: ChaosCluster) -> None:
        self._cluster = cluster
        self._redis: Any = redis_at(cluster.stores.redis_url)

    async def close(self) -> None:
        """Close the connection."""
        await self._redis.aclose()

    async def holdings(self, services: Sequence[Mapping[str, Any]]) -> dict[str, Holding]:
        """Who holds what, by the names of instances: `services` is what the gateway says of them.

        Left out is who holds nothing, and who is just giving something up or getting it.
        """
        names = {pid: name for name, pid in self._cluster.pids().items()}
        found = {}
        for entry in services:
            if entry["service"] not in _PREFIXES:
                continue
            leases = await self.leases(entry["service"])
            for instance in entry["instances"]:
                holding = holding_of(instance, leases)
                if holding is not None and instance["pid"] in names:
                    found[names[instance["pid"]]] = holding
        return found

    async def leases(self, service: str) -> Leases:
        """The owner and the fence of each leased partition; none while the store does not answer."""
        try:
            rows: dict[bytes, bytes] = await self._redis.hgetall(f"{_PREFIXES[service]}:leases")
        except (RedisError, OSError, TimeoutError):
            return {}
        split = {int(partition): row.decode().split(" ") for partition, row in rows.items()}
        return {partition: (owner, int(fence)) for partition, (owner, fence, _) in split.items()}

    async def of(self, holding: Holding) -> Takeover:
        """The takeover of this from now on. Returns when it is done, or late."""
        return await taken_over(holding, lambda: self.leases(holding.service))


def holding_of(instance: Mapping[str, Any], leases: Leases) -> Holding | None:
    """What an instance holds that says so of itself; None where the leases do not say the same, or it holds nothing."""
    held = frozenset(instance.get("held", ()))
    rows = [leases[partition] for partition in held if partition in leases]
    owners = {owner for owner, _ in rows}
    # The answer may be of a moment ago: an instance is known in the leases by its highest fence.
    if len(rows) < len(held) or len(owners) != 1 or max(fence for _, fence in rows) != instance.get("fence"):
        return None
    return Holding(service=instance["service"], owner=owners.pop(), partitions=held)


async def taken_over(holding: Holding, leases: Callable[[], Awaitable[Leases]], look_s: float = _LOOK_S) -> Takeover:
    """Look until each partition has had another owner: one that moves on was taken over when it first moved."""
    begun_s = time.monotonic()
    left = set(holding.partitions)
    while True:
        now = await leases()
        left = {partition for partition in left if partition not in now or now[partition][0] == holding.owner}
        took_s = time.monotonic() - begun_s
        if not left or took_s > TAKEN_WITHIN_S:
            return Takeover(service=holding.service, took_s=took_s, is_done=not left)
        await asyncio.sleep(look_s)
