"""A primary of Redis that is cut off from its replicas and the sentinel, and not from its clients: what it takes counts nowhere."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec import Struct

from colo_common.adapters.leases_redis import RedisLeases, lease_prefix
from colo_common.adapters.redis_client import redis_client
from colo_common.adapters.store_redis import RedisStore, key_of_kind
from colo_common.events.effects import Write
from colo_common.model.partition import Fence
from colo_common.ports import Fenced, StoreConflict, Unavailable
from colo_common.runtime.lease_keeper import LeaseKeeper
from colo_common.runtime.metrics import Metrics, ServiceMetrics
from colo_common.runtime.record import Recorder
from colo_common.runtime.retry import Retrier
from colo_common.runtime.term import HeldStore
from tests.support.split_redis import SplitRedis, split_redis
from tests.support.waiting import LIMIT_S, eventually

pytestmark = [pytest.mark.server, pytest.mark.failover]

SERVICE = "test"
TTL_MS = 1_000
#: What colo-stack sets in Redis, with a shorter time.
REFUSES_ALONE = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "1")


class Instance(Struct):
    """An instance of a service: its lease, its rows, and the way in which it writes these."""

    keeper: LeaseKeeper
    rows: RedisStore
    recorder: Recorder
    retrier: Retrier

    async def holds(self) -> tuple[Fence, ...]:
        """Ask for the partition; what is held then. A term begins with what is held first."""
        await self.keeper.renew()
        held = self.keeper.held if self.keeper.is_current else ()
        self.keeper.term = self.keeper.term or held
        return held

    async def write(self, id_: str) -> None:
        """Write a new row under the term, as often as it takes."""
        assert await self.recorder.record([[row(id_)]]) == [None]

    async def write_once(self, id_: str) -> None:
        """Write a new row under the term. Raises Unavailable where that does not count."""
        await HeldStore(self.rows, SERVICE, self.keeper).write([row(id_)])

    async def identity(self) -> str:
        """Who the store is; empty while it cannot be reached."""
        try:
            return await self.rows.identity()
        except Unavailable:
            return ""


def row(id_: str) -> Write:
    return Write(kind=SERVICE, id=id_, value=b"v", expect=0)


@asynccontextmanager
async def instance(url: str, name: str, *, min_replicas: int) -> AsyncIterator[Instance]:
    """An instance that knows the sentinel by this address."""
    client = redis_client(url, name=name)
    leases = RedisLeases(client, prefix=lease_prefix(SERVICE), min_replicas=min_replicas)
    rows = RedisStore(client, min_replicas=min_replicas)
    keeper = LeaseKeeper(leases, name, 1, TTL_MS)
    metrics = ServiceMetrics(Metrics(), SERVICE)
    retrier = Retrier("store", random.Random(0), metrics.retries, asyncio.Event())
    yield Instance(keeper, rows, Recorder(HeldStore(rows, SERVICE, keeper), retrier, metrics), retrier)
    await leases.close()
    await rows.close()


async def ids(split: SplitRedis, number: int) -> set[str]:
    """The rows that this server has."""
    async with split.server(number) as client:
        return {id_.decode() for id_ in await client.hkeys(key_of_kind(SERVICE))}


@pytest.mark.parametrize("is_replaced", [False, True], ids=["nobody-takes-over", "another-takes-over"])
async def test_what_a_primary_takes_alone_does_not_count_where_a_replica_must_have_it(is_replaced: bool) -> None:
    async with (
        split_redis() as split,
        instance(split.near_url, "near", min_replicas=1) as near,
        instance(split.far_url, "far", min_replicas=1) as far,
    ):
        ((_, fence),) = await near.holds()
        await near.write("before")
        new = await split.cut()
        recording = asyncio.create_task(near.recorder.record([[row("alone")]]))

        async def is_refused() -> bool:
            return "0 of 1 replicas have the write" in near.retrier.problem

        await eventually(is_refused, "the write counts as one whose answer is lost")
        # It was written, and counts nowhere.
        assert await ids(split, 0) == {"before", "alone"}
        assert await ids(split, new) == {"before"}
        await eventually(lambda: _holds_nothing(near), "the lease is over where it cannot be renewed")
        if is_replaced:
            ((_, higher),) = await eventually(far.holds, "the other instance holds the partition")
            assert higher > fence
            await far.write("after")
        assert not recording.done()
        await split.heal()
        if is_replaced:
            with pytest.raises(Fenced):
                await recording
            assert await near.holds() == ()
            assert [await ids(split, number) for number in range(3)] == [{"before", "after"}] * 3
        else:
            assert await recording == [None]
            assert await eventually(near.holds, "the partition is held again") == ((0, fence),)
            found = await near.rows.get(SERVICE, "alone")
            assert found is not None
            assert found.version == 1
            assert [await ids(split, number) for number in range(3)] == [{"before", "alone"}] * 3


async def _holds_nothing(one: Instance) -> bool:
    return not await one.holds()


async def test_a_primary_takes_what_counts_nowhere_where_no_replica_must_have_it() -> None:
    async with (
        split_redis() as split,
        instance(split.near_url, "near", min_replicas=0) as near,
        instance(split.far_url, "far", min_replicas=0) as far,
    ):
        ((_, fence),) = await near.holds()
        await near.write("before")
        was = await near.identity()
        new = await split.cut()
        ((_, higher),) = await eventually(far.holds, "the other instance holds the partition")
        assert higher > fence
        # Two hold it, each on its primary, and both write.
        assert await near.holds() == ((0, fence),)
        await near.write("alone")
        await far.write("after")
        assert (await ids(split, 0), await ids(split, new)) == ({"before", "alone"}, {"before", "after"})
        await split.heal()
        assert [await ids(split, number) for number in range(3)] == [{"before", "after"}] * 3
        assert await eventually(near.identity, "the store answers") != was
        with pytest.raises(Fenced):
            await near.write("late")
        assert await near.holds() == ()


async def test_a_lease_that_only_the_old_primary_gave_wins_by_its_fence_where_no_replica_must_have_it() -> None:
    async with (
        split_redis() as split,
        instance(split.near_url, "near", min_replicas=0) as near,
        instance(split.near_url, "next", min_replicas=0) as following,
        instance(split.far_url, "far", min_replicas=0) as far,
    ):
        await near.holds()
        assert await following.holds() == ()
        await split.cut()
        ((_, fence),) = await eventually(far.holds, "the other instance holds the partition")
        await near.keeper.leave()
        ((_, higher),) = await following.holds()
        assert higher > fence
        await split.heal()

        async def is_renewed() -> bool:
            return await following.holds() == ((0, higher),) and not following.keeper.problem

        await eventually(is_renewed, "the new primary takes its fence for one that was lost")
        with pytest.raises(Fenced):
            await far.write("late")


async def test_a_primary_that_refuses_to_be_alone_takes_nothing_any_more_when_its_lag_has_passed() -> None:
    async with (
        split_redis(*REFUSES_ALONE) as split,
        instance(split.near_url, "near", min_replicas=0) as near,
        instance(split.far_url, "far", min_replicas=0) as far,
    ):
        ((_, fence),) = await near.holds()
        await split.cut()
        taken = 0

        async def is_refused() -> str:
            nonlocal taken
            try:
                await near.write_once(f"alone-{taken}")
            except Unavailable as error:
                return str(error)
            taken += 1
            return ""

        assert "Not enough good replicas to write" in await eventually(is_refused, "the old primary refuses a write")
        assert await ids(split, 0) == {f"alone-{number}" for number in range(taken)}
        await eventually(lambda: _holds_nothing(near), "the lease is over where it cannot be renewed")
        ((_, higher),) = await eventually(far.holds, "the other instance holds the partition")
        assert higher > fence
        await split.heal()
        assert [await ids(split, number) for number in range(3)] == [set()] * 3
        with pytest.raises(Fenced):
            await near.write("late")


@pytest.mark.parametrize(
    ("min_replicas", "arguments"), [(1, ()), (0, REFUSES_ALONE)], ids=["not-by-a-replica", "refused"]
)
async def test_who_reaches_both_primaries_goes_to_the_new_one_when_the_old_one_has_not_taken_a_write(
    min_replicas: int, arguments: tuple[str, ...]
) -> None:
    async with (
        split_redis(*arguments) as split,
        instance(split.far_url, "both", min_replicas=min_replicas) as both,
    ):
        ((_, fence),) = await both.holds()
        await both.write("before")
        new = await split.cut()

        # Until the old primary has noticed its lag it takes rows, where none of its replicas must have them.
        writes = 0

        async def is_taken() -> bool:
            nonlocal writes
            writes += 1
            await both.write(f"cut-{writes}")
            return f"cut-{writes}" in await ids(split, new)

        async with asyncio.timeout(LIMIT_S):
            await eventually(is_taken, "the new primary takes a write")
        if min_replicas:
            assert await ids(split, new) == {"before", "cut-1"}
        assert await eventually(both.holds, "the partition is held on the new primary") == ((0, fence),)
        await split.heal()
        await both.write("healed")
        found = await ids(split, new)
        assert {"before", f"cut-{writes}", "healed"} <= found
        assert [await ids(split, number) for number in range(3)] == [found] * 3


async def test_a_connection_that_was_in_use_when_the_new_primary_was_found_is_not_used_again() -> None:
    async with split_redis() as split:
        client = redis_client(split.far_url, name="pool")
        rows = RedisStore(client, min_replicas=1)
        await rows.write([row("before")])
        held = await client.connection_pool.get_connection()
        await split.cut()

        async def is_written() -> bool:
            try:
                await rows.write([row("after")])
            except Unavailable:
                return False
            except StoreConflict:  # It was this one's own, whose answer was too late.
                return True
            return True

        await eventually(is_written, "the new primary takes a write")
        await client.connection_pool.release(held)
        # The connection that was given back last is the next one to be used.
        assert {each.id for each in await rows.load(SERVICE)} == {"before", "after"}
        await rows.close()
