"""The node ledger of a simulated world: the memory twin, which may be away, and whose answers may get lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from colo_common.ports import PortError, Unavailable
from colo_scheduler.ledger.memory import MemoryLedger
from colo_scheduler.ledger.port import Attempt, NodeAnswer, NodeCommit, NodeRow, Released
from colo_scheduler.ledger.shards import Fence
from colo_sim.event_queue import EventQueue, at_once
from colo_sim.world_boot import Boot

__all__ = ["LedgerConnection", "WorldLedger"]


class WorldLedger:
    """What all schedulers write to. While `fault` is set every call raises it."""

    def __init__(self, event_queue: EventQueue) -> None:
        self.truth = MemoryLedger(lambda: event_queue.now_ms)
        self.fault: PortError | None = None

    def all_rows(self) -> tuple[NodeRow, ...]:
        """The truth, for those who judge."""
        return at_once(self.truth.rows(sorted(at_once(self.truth.changes()))))


class LedgerConnection:
    """The ledger port of one scheduler. In rough network_faults a call is done and raises Unavailable all the same.

    `written` is shown every answer to a commit, also one that is lost then.
    """

    def __init__(self, boot: Boot, ledger: WorldLedger, written: Callable[[Sequence[NodeAnswer]], None]) -> None:
        self._boot = boot
        self._ledger = ledger
        self._truth = ledger.truth
        self._written = written

    async def commit(
        self, reserves: Sequence[NodeCommit], fences: Sequence[Fence] = (), owner: str = ""
    ) -> tuple[NodeAnswer, ...]:
        """See Ledger.commit."""
        await self._go()
        answers = await self._truth.commit(reserves, fences, owner)
        self._written(answers)
        await self._come_back()
        return answers

    async def release(self, attempts: Sequence[Attempt]) -> tuple[Released, ...]:
        """See Ledger.release."""
        await self._go()
        released = await self._truth.release(attempts)
        await self._come_back()
        return released

    async def lease(self, owner: str, ttl_ms: int, shards: int) -> tuple[Fence, ...]:
        """See Ledger.lease."""
        await self._go()
        return await self._truth.lease(owner, ttl_ms, shards)

    async def confirm(self, attempts: Sequence[Attempt]) -> None:
        """See Ledger.confirm."""
        await self._go()
        await self._truth.confirm(attempts)

    async def rows(self, nodes: Sequence[str]) -> tuple[NodeRow, ...]:
        """See Ledger.rows."""
        await self._go()
        return await self._truth.rows(nodes)

    async def changes(self) -> Mapping[str, int]:
        """See Ledger.changes."""
        await self._go()
        return await self._truth.changes()

    async def floor(self) -> int:
        """See Ledger.floor."""
        await self._go()
        return await self._truth.floor()

    async def forget(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """See Ledger.forget."""
        await self._go()
        return await self._truth.forget(nodes)

    async def ready(self) -> str:
        """Empty when the ledger answers, else one sentence that says why not."""
        return "" if self._ledger.fault is None else str(self._ledger.fault)

    async def _go(self) -> None:
        await self._boot.trip("call the ledger")
        if self._ledger.fault is not None:
            raise self._ledger.fault

    async def _come_back(self) -> None:
        await self._boot.step("hear the ledger")
        if self._boot.chance.strikes("ledger_unsure"):
            raise Unavailable("the ledger's answer was lost")
