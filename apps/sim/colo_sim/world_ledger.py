"""The node ledger of a simulated world: the memory twin, which may be away, and whose answers may get lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from colo_common.ports import PortError, Unavailable
from colo_scheduler.ledger.memory import MemoryLedger
from colo_scheduler.ledger.port import Attempt, NodeAnswer, NodeCommit, NodeRow, Released
from colo_scheduler.ledger.shards import Fence
from colo_sim.event_queue import at_once
from colo_sim.world_bus import WorldBus

__all__ = ["WorldLedger"]

Written = Callable[[Sequence[NodeAnswer]], None]


class WorldLedger:
    """While `fault` is set every call raises it. In rough network_faults a call is done and raises Unavailable all the same."""

    def __init__(self, bus: WorldBus) -> None:
        self.truth = MemoryLedger(lambda: bus.event_queue.now_ms)
        self.fault: PortError | None = None
        self._bus = bus

    def commit(
        self, reserves: Sequence[NodeCommit], fences: Sequence[Fence], owner: str, written: Written
    ) -> tuple[NodeAnswer, ...]:
        """See Ledger.commit. `written` is called at once, also where the answer is lost then."""
        self._check()
        answers = at_once(self.truth.commit(reserves, fences, owner))
        written(answers)
        self._lose()
        return answers

    def release(self, attempts: Sequence[Attempt]) -> tuple[Released, ...]:
        """See Ledger.release."""
        self._check()
        released = at_once(self.truth.release(attempts))
        self._lose()
        return released

    def lease(self, owner: str, ttl_ms: int, shards: int) -> tuple[Fence, ...]:
        """See Ledger.lease."""
        self._check()
        return at_once(self.truth.lease(owner, ttl_ms, shards))

    def confirm(self, attempts: Sequence[Attempt]) -> None:
        """See Ledger.confirm."""
        self._check()
        at_once(self.truth.confirm(attempts))

    def rows(self, nodes: Sequence[str]) -> tuple[NodeRow, ...]:
        """See Ledger.rows."""
        self._check()
        return at_once(self.truth.rows(nodes))

    def changes(self) -> dict[str, int]:
        """See Ledger.changes."""
        self._check()
        return dict(at_once(self.truth.changes()))

    def floor(self) -> int:
        """See Ledger.floor."""
        self._check()
        return at_once(self.truth.floor())

    def all_rows(self) -> tuple[NodeRow, ...]:
        """The truth, for those who judge."""
        return at_once(self.truth.rows(sorted(at_once(self.truth.changes()))))

    def _check(self) -> None:
        if self.fault is not None:
            raise self.fault

    def _lose(self) -> None:
        if self._bus.strikes(self._bus.network_faults.ledger_unsure):
            raise Unavailable("the ledger's answer was lost")
