"""What estimators have learned outlives the process in a real Redis: another instance promises the same at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from colo_common.adapters.store_redis import RedisStore
from colo_common.events.effects import Publish
from colo_common.events.node import AllocatableChanged
from colo_common.ports import Unavailable
from colo_overcommit.core import OvercommitCore
from colo_overcommit.estimators.steps import STEP_MS
from colo_overcommit.histories import ROW_KIND
from colo_overcommit.history_store import HistoryRows
from colo_overcommit.policy import OvercommitPolicy
from tests.support.builders import a_node, a_sample
from tests.support.manual_clock import ManualClock
from tests.support.waiting import eventually

POLICY = OvercommitPolicy(estimator="peak")


@pytest.fixture
async def store(redis_url: str) -> AsyncIterator[RedisStore]:
    real = RedisStore.of(redis_url, name="histories")
    yield real
    await real.close()


def sampled(core: OvercommitCore, node: str, step: int, mcpu: int) -> AllocatableChanged | None:
    at_ms = step * STEP_MS
    effects = core.handle(a_sample(node, seq=step, at_ms=at_ms, zones=((mcpu, 8), (mcpu, 8))), at_ms)
    facts = [effect.fact for effect in effects if isinstance(effect, Publish)]
    return next((fact for fact in facts if isinstance(fact, AllocatableChanged)), None)


async def test_another_instance_promises_what_the_one_before_it_promised(store: RedisStore) -> None:
    node = f"n-{uuid4().hex}"
    core, clock = OvercommitCore(POLICY), ManualClock(0)
    core.handle(a_node(node), 0)
    last = None
    for step in range(1, 40):
        last = sampled(core, node, step, 2_000 + step % 7 * 500) or last
    assert last is not None
    clock.advance(39 * STEP_MS)
    keeper = asyncio.create_task(HistoryRows(store).keep(core, clock, STEP_MS))
    try:
        await eventually(lambda: store.get(ROW_KIND, node), "the row of the node")
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
    assert not core.due_histories(clock.now_ms(), 0, 10), "what was stored is not due again before the next step"

    successor = OvercommitCore(POLICY)
    for event in await HistoryRows(store).load():
        successor.handle(event, clock.now_ms())  # type: ignore[arg-type]
    successor.handle(a_node(node), clock.now_ms())
    # A collector's samples go on; two of them make the node fresh.
    of_it = None
    for seq in (40, 41):
        at_ms = 39 * STEP_MS + seq
        use = 2_000 + 39 % 7 * 500
        effects = successor.handle(a_sample(node, seq=seq, at_ms=at_ms, zones=((use, 8), (use, 8))), at_ms)
        facts = [effect.fact for effect in effects if isinstance(effect, Publish)]
        of_it = next((fact for fact in facts if isinstance(fact, AllocatableChanged)), of_it)
    assert of_it is not None
    assert of_it.zones == last.zones
    empty = OvercommitCore(POLICY)
    empty.handle(a_node(node), 0)
    fresh = [sampled(empty, node, step, use) for step in (40, 41)][-1]
    assert fresh is not None
    assert fresh.batch_cpu_mcpu > last.batch_cpu_mcpu, "without its history it would promise more"


async def test_a_store_that_is_away_is_tried_again_and_holds_nothing_up(store: RedisStore) -> None:
    class Away:
        """Refuses the first writes."""

        refusals = 2

        async def write(self, writes) -> None:
            if self.refusals:
                self.refusals -= 1
                raise Unavailable("away")
            await store.write(writes)

    node = f"n-{uuid4().hex}"
    core, clock = OvercommitCore(POLICY), ManualClock(0)
    core.handle(a_node(node), 0)
    for step in (1, 2):
        sampled(core, node, step, 4_000)
    clock.advance(2 * STEP_MS)
    away = Away()
    keeper = asyncio.create_task(HistoryRows(away).keep(core, clock, STEP_MS))  # type: ignore[arg-type]
    try:
        await eventually(lambda: store.get(ROW_KIND, node), "the row of the node")
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
    assert away.refusals == 0, "it was tried until the store was back"
