"""Rows of histories are compared by a count: clocks of machines have no say in which one is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
import structlog

from colo_common.adapters.leases_memory import MemoryLeases
from colo_common.adapters.store_memory import MemoryStore
from colo_common.events.effects import Write
from colo_common.ports import StoreConflict
from colo_common.runtime.lease_keeper import LeaseKeeper
from colo_common.runtime.term import HeldStore
from colo_overcommit.core import OvercommitCore
from colo_overcommit.estimators.steps import STEP_MS
from colo_overcommit.histories import ROW_KIND, decode_history
from colo_overcommit.history_store import HistoryRows
from colo_overcommit.policy import OvercommitPolicy
from tests.support.builders import a_node, a_sample
from tests.support.manual_clock import ManualClock
from tests.support.vloop import run_virtual

POLICY = OvercommitPolicy(estimator="peak")
HOUR_MS = 3_600_000


class Learned:
    """A core that has learned of a node until this step, and its rows; its clock is off by so much."""

    def __init__(self, store: MemoryStore | HeldStore, off_ms: int = 0) -> None:
        self.core = OvercommitCore(POLICY)
        self.core.handle(a_node("n1"), 0)
        self.clock = ManualClock(HOUR_MS + off_ms)
        self.rows = HistoryRows(store)
        self._seq = 0

    def learn(self, step: int) -> None:
        self.clock.advance(STEP_MS)
        self._seq += 1
        self.core.handle(a_sample("n1", seq=self._seq, at_ms=step * STEP_MS), self.clock.now_ms())

    async def keep(self, for_s: float = 5) -> None:
        task = asyncio.create_task(self.rows.keep(self.core, self.clock, 1))
        await asyncio.sleep(for_s)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    @property
    def due(self) -> Sequence[str]:
        return list(self.core.due_histories(self.clock.now_ms() + STEP_MS, 1, 10))


async def stored_step(store: MemoryStore) -> int:
    row = await store.get(ROW_KIND, "n1")
    history = decode_history(row.value) if row is not None else None
    return history.at_ms // STEP_MS if history is not None else 0


def test_an_instance_whose_clock_was_ahead_keeps_nobody_from_storing() -> None:
    async def story() -> None:
        store = MemoryStore()
        ahead, successor = Learned(store, off_ms=HOUR_MS), Learned(store)
        ahead.learn(3)
        await ahead.keep()
        assert await stored_step(store) == 3
        for event in await successor.rows.load():
            successor.core.handle(event, successor.clock.now_ms())  # type: ignore[arg-type]
        for step in (4, 5):
            successor.learn(step)
            await successor.keep()
            assert await stored_step(store) == step
        # Also where the row was written after it was read.
        ahead.learn(6)
        await ahead.keep()
        assert await stored_step(store) == 6

    run_virtual(story())


def test_a_row_of_an_earlier_version_whose_count_was_a_time_is_written_over() -> None:
    async def story() -> None:
        store = MemoryStore()
        await store.write([Write(kind=ROW_KIND, id="n1", value=b"{}", expect=1_700_000_000)])
        one = Learned(store)
        one.learn(3)
        await one.keep()
        assert await stored_step(store) == 3

    run_virtual(story())


def test_rows_that_another_version_wrote_are_told_once() -> None:
    async def story() -> None:
        store = MemoryStore()
        later = b'{"version": 9, "at_ms": 0, "of_later": []}'
        await store.write([Write(kind=ROW_KIND, id=name, value=later, expect=0) for name in ("n1", "n2")])
        one = Learned(store)
        for event in await one.rows.load():
            one.core.handle(event, one.clock.now_ms())  # type: ignore[arg-type]
        with structlog.testing.capture_logs() as lines:
            await one.keep()
        assert [(line["event"], line["rows"]) for line in lines] == [("histories-unreadable", 2)]
        # Nobody learned anything yet: they stay as they are.
        assert [row.value for row in await store.load(ROW_KIND)] == [later, later]

    run_virtual(story())


def test_what_is_refused_does_not_count_as_stored() -> None:
    class Refuses(MemoryStore):
        """As a store of which another instance has the partition."""

        async def write(self, writes: Sequence[Write]) -> None:
            raise StoreConflict(writes[0].kind, writes[0].id, writes[0].expect, writes[0].expect)

    async def story() -> None:
        one = Learned(Refuses())
        one.learn(3)
        await one.keep()
        assert one.due == ["n1"]

    run_virtual(story())


@pytest.mark.parametrize("partitions", [4])
def test_who_lost_the_node_stores_nothing_over_its_new_holder(partitions: int) -> None:
    async def story() -> None:
        store, leases = MemoryStore(), MemoryLeases()
        store.leases["overcommit"] = leases
        keeper = LeaseKeeper(leases, "one", partitions)
        await keeper.renew()
        keeper.term = keeper.held
        one, other = Learned(HeldStore(store, "overcommit", keeper, (ROW_KIND,))), Learned(store)
        one.learn(3)
        await one.keep()
        assert await stored_step(store) == 3
        leases.lose((1 << partitions) - 1)
        other.learn(5)
        await other.keep()
        one.learn(4)
        await one.keep()
        assert await stored_step(store) == 5

    run_virtual(story())


def test_a_machine_whose_clock_is_set_back_is_stored_all_the_same() -> None:
    async def story() -> None:
        store = MemoryStore()
        one = Learned(store)
        for step in (30, 18):
            one.learn(step)
            await one.keep()
        assert not one.due
        row = await store.get(ROW_KIND, "n1")
        assert row is not None
        assert row.version == 2

    run_virtual(story())
