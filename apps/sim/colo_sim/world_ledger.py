"""The node ledger of a simulated world: the memory twin, which may be unavailable, and whose answers may be lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from colo_common.adapters.leases_memory import MemoryLeases
from colo_common.model.partition import BusReach, Fence
from colo_common.model.placement import Attempt
from colo_common.ports import PortError, Unavailable
from colo_scheduler.ledger.memory import MemoryLedger
from colo_scheduler.ledger.port import NodeAnswer, NodeCommit, NodeRow, Released
from colo_sim.event_queue import EventQueue, at_once
from colo_sim.world_boot import Boot

__all__ = ["LeaseConnection", "LedgerConnection", "WorldLedger"]


class WorldLedger:
    """The ledger that all schedulers write to. While `fault` is set every call raises it."""

    def __init__(self, event_queue: EventQueue) -> None:
        self.truth = MemoryLedger(lambda: event_queue.now_ms)
        self.fault: PortError | None = None

    def all_rows(self) -> tuple[NodeRow, ...]:
        """All rows, read without faults; for invariant checks."""
        return at_once(self.truth.rows(sorted(at_once(self.truth.changes()))))


class LeaseConnection:
    """The Leases port of one process: the memory twin over the network of the world."""

    def __init__(self, boot: Boot, leases: MemoryLeases, fault: Callable[[], PortError | None]) -> None:
        self._boot = boot
        self._leases = leases
        self._fault = fault

    async def renew(
        self,
        owner: str,
        ttl_ms: int,
        partitions: int,
        held: Sequence[Fence] = (),
        reach: BusReach = BusReach.UNSURE,
    ) -> tuple[Fence, ...]:
        """See Leases.renew."""
        await self._boot.call("call the leases")
        fault = self._fault()
        if fault is not None:
            raise fault
        return await self._leases.renew(owner, ttl_ms, partitions, held, reach)


class LedgerConnection:
    """The Ledger port of one scheduler. With network faults a call may take effect and still raise Unavailable.

    `written` is called with every answer to a commit, also with one that is then lost.
    """

    def __init__(self, boot: Boot, ledger: WorldLedger, written: Callable[[Sequence[NodeAnswer]], None]) -> None:
        self._boot = boot
        self._ledger = ledger
        self._truth = ledger.truth
        self._written = written
        self.leases = LeaseConnection(boot, ledger.truth.leases, lambda: ledger.fault)

    async def commit(
        self, commits: Sequence[NodeCommit], fences: Sequence[Fence] = (), owner: str = "", compared: str = ""
    ) -> tuple[NodeAnswer, ...]:
        """See Ledger.commit."""
        await self._send_call()
        answers = await self._truth.commit(commits, fences, owner, compared)
        self._written(answers)
        await self._receive_answer()
        return answers

    async def release(self, attempts: Sequence[Attempt], nodes: Sequence[str] = ()) -> tuple[Released, ...]:
        """See Ledger.release."""
        await self._send_call()
        released = await self._truth.release(attempts, nodes)
        await self._receive_answer()
        return released

    async def confirm(self, attempts: Sequence[Attempt]) -> None:
        """See Ledger.confirm."""
        await self._send_call()
        await self._truth.confirm(attempts)

    async def rows(self, nodes: Sequence[str]) -> tuple[NodeRow, ...]:
        """See Ledger.rows."""
        await self._send_call()
        return await self._truth.rows(nodes)

    async def changes(self) -> Mapping[str, int]:
        """See Ledger.changes."""
        await self._send_call()
        return await self._truth.changes()

    async def floor(self) -> int:
        """See Ledger.floor."""
        await self._send_call()
        return await self._truth.floor()

    async def forget(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """See Ledger.forget."""
        await self._send_call()
        return await self._truth.forget(nodes)

    async def put_back(self, rows: Sequence[NodeRow], floor: int) -> None:
        """See Ledger.put_back."""
        await self._send_call()
        await self._truth.put_back(rows, floor)

    async def identity(self) -> str:
        """See Ledger.identity."""
        await self._send_call()
        return await self._truth.identity()

    async def ready(self) -> str:
        """See Ledger.ready."""
        return "" if self._ledger.fault is None else str(self._ledger.fault)

    async def _send_call(self) -> None:
        await self._boot.call("call the ledger")
        if self._ledger.fault is not None:
            raise self._ledger.fault

    async def _receive_answer(self) -> None:
        await self._boot.step("receive from the ledger")
        if self._boot.chance.strikes("ledger_unsure"):
            raise Unavailable("the ledger's answer was lost")
