"""The Store port of one simulated process: the world's store behind calls with latency."""

from __future__ import annotations

from collections.abc import Sequence

from colo_common.adapters.store_memory import MemoryStore
from colo_common.events.effects import Write
from colo_common.model.partition import Fence
from colo_common.ports import Row
from colo_sim.world_boot import Boot

__all__ = ["StoreConnection"]


class StoreConnection:
    """Calls the store that all processes share. The process may die before and after a call."""

    def __init__(self, boot: Boot, truth: MemoryStore) -> None:
        self._boot = boot
        self._truth = truth

    async def get(self, kind: str, id_: str) -> Row | None:
        """See Store.get."""
        await self._boot.call("call the store")
        return await self._truth.get(kind, id_)

    async def load(self, kind: str) -> tuple[Row, ...]:
        """See Store.load."""
        await self._boot.call("call the store")
        return await self._truth.load(kind)

    async def write(self, writes: Sequence[Write]) -> None:
        """See Store.write."""
        await self._boot.call("call the store")
        await self._truth.write(writes)
        await self._boot.step("receive from the store")

    async def write_fenced(self, writes: Sequence[Write], service: str, fences: Sequence[Fence]) -> None:
        """See FencedStore.write_fenced."""
        await self._boot.call("call the store")
        await self._truth.write_fenced(writes, service, fences)
        await self._boot.step("receive from the store")

    async def identity(self) -> str:
        """See Store.identity."""
        return await self._truth.identity()

    async def ready(self) -> str:
        """See Store.ready."""
        return await self._truth.ready()

    async def close(self) -> None:
        """There is nothing to close."""
