"""The store port of one simulated process: the world's store behind a call that takes a moment."""

from __future__ import annotations

from collections.abc import Sequence

from colo_common.adapters.store_memory import MemoryStore
from colo_common.events.effects import Write
from colo_common.ports import Row
from colo_sim.world_boot import Boot

__all__ = ["StoreConnection"]


class StoreConnection:
    """The same rows for every process. A process may die on the way there and on the way back."""

    def __init__(self, boot: Boot, truth: MemoryStore) -> None:
        self._boot = boot
        self._truth = truth

    async def get(self, kind: str, id_: str) -> Row | None:
        """See Store.get."""
        await self._boot.trip("call the store")
        return await self._truth.get(kind, id_)

    async def load(self, kind: str) -> tuple[Row, ...]:
        """See Store.load."""
        await self._boot.trip("call the store")
        return await self._truth.load(kind)

    async def write(self, writes: Sequence[Write]) -> None:
        """See Store.write."""
        await self._boot.trip("call the store")
        await self._truth.write(writes)
        await self._boot.step("hear the store")

    async def ready(self) -> str:
        """See Store.ready."""
        return await self._truth.ready()

    async def close(self) -> None:
        """Nothing to leave."""
