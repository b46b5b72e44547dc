"""The promises of the leases of partitions, and of the writes that they fence, in memory and in a real Redis."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
import redis.asyncio
from msgspec import Struct

from colo_common.adapters.leases_memory import MemoryLeases
from colo_common.adapters.leases_redis import RedisLeases, lease_prefix
from colo_common.adapters.redis_client import redis_client
from colo_common.adapters.store_memory import MemoryStore
from colo_common.adapters.store_redis import RedisStore
from colo_common.events.effects import Write
from colo_common.model.partition import BusReach, Fence
from colo_common.ports import Fenced, FencedStore, Leases, OtherPartitions, Refused, StoreConflict
from tests.support.waiting import LIMIT_S, eventually

MINUTE_MS = 60_000
HOUR_MS = 3_600_000


class Place(Struct):
    """The leases of one service, and the store whose writes they fence. `clock` is the memory twin's."""

    service: str
    leases: Leases
    store: FencedStore
    clock: list[int] | None = None

    def write(self, id_: str, expect: int) -> list[Write]:
        return [Write(kind=self.service, id=id_, value=b"v", expect=expect)]


@pytest.fixture(params=["memory", "redis"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    service = f"test-{uuid.uuid4().hex}"
    if request.param == "memory":
        clock = [0]
        leases, store = MemoryLeases(lambda: clock[0]), MemoryStore()
        store.leases[service] = leases
        yield Place(service, leases, store, clock)
        return
    client = redis_client(request.getfixturevalue("redis_url"), name="test")
    real, rows = RedisLeases(client, prefix=lease_prefix(service)), RedisStore(client)
    yield Place(service, real, rows)
    await real.close()
    await rows.close()


@pytest.fixture
def leases(place: Place) -> Leases:
    return place.leases


async def test_the_first_instance_takes_all_partitions_and_keeps_their_fences(leases: Leases) -> None:
    held = await leases.renew("one", MINUTE_MS, 8)
    assert [partition for partition, _ in held] == list(range(8))
    assert len({fence for _, fence in held}) == 8
    assert await leases.renew("one", MINUTE_MS, 8) == held


async def test_a_second_instance_gets_its_half_as_soon_as_the_first_renews(leases: Leases) -> None:
    first = dict(await leases.renew("one", MINUTE_MS, 8))
    assert await leases.renew("two", MINUTE_MS, 8) == ()
    kept = dict(await leases.renew("one", MINUTE_MS, 8))
    taken = dict(await leases.renew("two", MINUTE_MS, 8))
    assert (len(kept), len(taken)) == (4, 4)
    assert kept.items() <= first.items()
    assert not kept.keys() & taken.keys()
    assert min(taken.values()) > max(first.values())


async def test_one_partition_stays_with_its_holder_until_that_leaves(leases: Leases) -> None:
    ((_, fence),) = await leases.renew("one", MINUTE_MS, 1)
    assert await leases.renew("two", MINUTE_MS, 1) == ()
    assert await leases.renew("one", MINUTE_MS, 1) == ((0, fence),)
    assert await leases.renew("one", 0, 1) == ()
    ((_, higher),) = await leases.renew("two", MINUTE_MS, 1)
    assert higher > fence


DEAF, HEARS, UNSURE = BusReach.DEAF, BusReach.HEARS, BusReach.UNSURE


@pytest.mark.parametrize(
    ("holder", "other", "expected"),
    [
        (DEAF, HEARS, (0, 1)),
        (DEAF, DEAF, (1, 0)),
        (DEAF, UNSURE, (1, 0)),
        (UNSURE, HEARS, (1, 0)),
        (HEARS, HEARS, (1, 0)),
    ],
)
async def test_a_holder_that_reaches_no_bus_gives_way_to_one_that_does(
    leases: Leases, holder: BusReach, other: BusReach, expected: tuple[int, int]
) -> None:
    await leases.renew("one", MINUTE_MS, 1)
    for _ in range(2):
        found = [
            len(await leases.renew(name, MINUTE_MS, 1, (), reach)) for name, reach in (("two", other), ("one", holder))
        ]
    taken = len(await leases.renew("two", MINUTE_MS, 1, (), other))
    assert (found[1], taken) == expected


async def test_the_share_of_a_deaf_instance_goes_to_those_that_hear_and_comes_back(leases: Leases) -> None:
    every = [("one", UNSURE), ("two", HEARS), ("three", HEARS)]

    async def renewed(*instances: tuple[str, BusReach]) -> list[int]:
        for _ in range(3):
            held = [len(await leases.renew(name, MINUTE_MS, 12, (), reach)) for name, reach in instances]
        return held

    assert await renewed(*every) == [4, 4, 4]
    assert await renewed(("one", DEAF), *every[1:]) == [0, 6, 6]
    assert await renewed(("one", HEARS), *every[1:]) == [4, 4, 4]
    # One that has left is nobody to give way to.
    assert await renewed(("one", DEAF), *every[1:]) == [0, 6, 6]
    for name in ("two", "three"):
        await leases.renew(name, 0, 12)
    assert await renewed(("one", DEAF)) == [12]


async def test_a_lease_that_was_not_renewed_in_time_is_anybodys(place: Place) -> None:
    old = await place.leases.renew("one", 1, 4)
    if place.clock is not None:
        place.clock[0] += 2
    taken: tuple[Fence, ...] = ()
    async with asyncio.timeout(LIMIT_S):
        while len(taken) < 4:
            taken = await place.leases.renew("two", MINUTE_MS, 4)
    assert min(fence for _, fence in taken) > max(fence for _, fence in old)


async def test_instances_with_another_number_of_partitions_are_refused_and_change_nothing(leases: Leases) -> None:
    held = await leases.renew("one", MINUTE_MS, 8)
    with pytest.raises(Refused, match="partitions must be 8, as the other instances have it, and not 4"):
        await leases.renew("two", MINUTE_MS, 4)
    assert await leases.renew("one", MINUTE_MS, 8) == held
    # Alone, and after a restart with other settings, it may have another number.
    await leases.renew("one", 0, 8)
    assert len(await leases.renew("two", MINUTE_MS, 4)) == 4


@pytest.mark.parametrize(("old", "new"), [(1, 4), (4, 1), (4, 6), (6, 4)])
async def test_another_number_of_partitions_counts_when_the_last_of_the_old_one_left_and_ends_all_its_fences(
    place: Place, old: int, new: int
) -> None:
    leases = place.leases
    before = await leases.renew("one", MINUTE_MS, old)
    assert len(before) == old
    with pytest.raises(
        OtherPartitions, match=f"partitions must be {old}, as the other instances have it, and not {new}"
    ):
        await leases.renew("two", MINUTE_MS, new)
    assert await leases.renew("one", 0, old) == ()
    after = await leases.renew("two", MINUTE_MS, new)
    assert [partition for partition, _ in after] == list(range(new))
    assert min(fence for _, fence in after) > max(fence for _, fence in before)
    # One that did not notice writes nothing, also under what has no place in the new number.
    for fence in before:
        with pytest.raises(Fenced):
            await place.store.write_fenced(place.write("a", 0), place.service, (fence,))
    with pytest.raises(OtherPartitions):
        await leases.renew("one", MINUTE_MS, old, before)
    await place.store.write_fenced(place.write("a", 0), place.service, after)


async def test_a_write_under_the_newest_fence_is_made_and_one_under_an_older_writes_nothing(place: Place) -> None:
    old = await place.leases.renew("one", MINUTE_MS, 2)
    await place.store.write_fenced(place.write("a", 0), place.service, old)
    await place.leases.renew("one", 0, 2)
    with pytest.raises(Fenced, match="partition 0"):
        await place.store.write_fenced(place.write("a", 1), place.service, old)
    new = await place.leases.renew("two", MINUTE_MS, 2)
    # Also where only one of its fences is old, and before the versions are looked at.
    with pytest.raises(Fenced, match="partition 1"):
        await place.store.write_fenced(place.write("a", 7), place.service, (new[0], old[1]))
    row = await place.store.get(place.service, "a")
    assert row is not None
    assert row.version == 1
    with pytest.raises(StoreConflict):
        await place.store.write_fenced(place.write("a", 0), place.service, new)
    await place.store.write_fenced(place.write("a", 1), place.service, new)


async def test_a_partition_that_nobody_holds_admits_no_fence(place: Place) -> None:
    with pytest.raises(Fenced):
        await place.store.write_fenced(place.write("a", 0), place.service, ((0, 0),))
    assert await place.store.load(place.service) == ()


async def test_in_an_emptied_store_the_next_fence_is_still_higher(redis_url: str) -> None:
    client = redis_client(redis_url, name="test")
    prefix = f"test:{uuid.uuid4().hex}"
    leases = RedisLeases(client, prefix=prefix)
    before = await leases.renew("one", MINUTE_MS, 4)
    await client.delete(*(f"{prefix}:{key}" for key in ("leases", "members", "fence")))

    async def is_later() -> bool:
        seconds, microseconds = await client.time()
        return bool(seconds * 1_000 + microseconds // 1_000 > max(fence for _, fence in before))

    await eventually(is_later, "the next milliseconds")
    started_later = RedisLeases(client, prefix=prefix)
    after = await started_later.renew("two", MINUTE_MS, 4)
    assert min(fence for _, fence in after) > max(fence for _, fence in before)
    await started_later.close()
    await leases.close()
    await client.aclose()
    await client.connection_pool.disconnect()


async def test_in_an_emptied_store_the_holder_goes_on_and_who_stood_by_does_not_take_over(redis_url: str) -> None:
    client = redis_client(redis_url, name="test")
    service = f"test-{uuid.uuid4().hex}"
    prefix = lease_prefix(service)
    one, two = RedisLeases(client, prefix=prefix), RedisLeases(client, prefix=prefix)
    store = RedisStore(client)
    held = await one.renew("one", MINUTE_MS, 1)
    assert await two.renew("two", MINUTE_MS, 1) == ()
    await client.delete(*(f"{prefix}:{key}" for key in ("leases", "members", "fence")))
    await store.write_fenced([Write(kind=service, id="a", value=b"v", expect=3)], service, held)
    assert await two.renew("two", MINUTE_MS, 1) == (), "the holder knows what the store lost"
    assert await one.renew("one", MINUTE_MS, 1, held) == held
    assert await two.renew("two", MINUTE_MS, 1) == ()
    # Without the holder somebody takes over after a while.
    await client.delete(*(f"{prefix}:{key}" for key in ("leases", "members", "fence")))

    async def taken() -> bool:
        return bool(await two.renew("two", 300, 1))

    await eventually(taken, "the partition is taken")
    # From here on for as long as the test may take.
    assert await two.renew("two", MINUTE_MS, 1)
    with pytest.raises(Fenced):
        await store.write_fenced([Write(kind=service, id="a", value=b"v", expect=4)], service, held)
    assert await one.renew("one", 300, 1, held) == ()
    for each in (one, two):
        await each.close()
    await store.close()


async def step_clock(client: redis.asyncio.Redis, prefix: str, step_ms: int) -> None:
    """Leave all times as if the server's clock, which is right now, had been ahead by so much until now."""
    leases, members = await client.hgetall(f"{prefix}:leases"), await client.hgetall(f"{prefix}:members")
    for partition, value in leases.items():
        owner, fence, until_ms = value.split()
        await client.hset(f"{prefix}:leases", partition, b"%s %s %d" % (owner, fence, int(until_ms) + step_ms))
    for owner, value in members.items():
        until_ms, partitions = value.split()
        await client.hset(f"{prefix}:members", owner, b"%d %s" % (int(until_ms) + step_ms, partitions))
    if clock := await client.get(f"{prefix}:clock"):
        await client.set(f"{prefix}:clock", b" ".join(b"%d" % (int(each) + step_ms) for each in clock.split()))


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS], ids=["back", "forth"])
async def test_a_step_of_the_servers_clock_ends_no_lease_and_prolongs_none(redis_url: str, step_ms: int) -> None:
    client = redis_client(redis_url, name="test")
    prefix = f"test:{uuid.uuid4().hex}"
    leases = RedisLeases(client, prefix=prefix)
    held = await leases.renew("one", MINUTE_MS, 4)
    await step_clock(client, prefix, step_ms)
    assert await leases.renew("two", MINUTE_MS, 4) == ()
    kept = await leases.renew("one", 1_000, 4, held)
    assert kept == held[:2], "the share of one of two"
    # Whoever is killed now has left what it holds when its lease is over.
    await step_clock(client, prefix, step_ms)

    async def has_all() -> bool:
        return len(await leases.renew("two", 1_000, 4)) == 4

    assert await eventually(has_all, "the share of a killed instance moves", limit_s=10)
    await leases.close()
    await client.aclose()
    await client.connection_pool.disconnect()


async def test_after_a_time_in_which_nobody_called_the_leases_of_before_end_within_a_lease(redis_url: str) -> None:
    client = redis_client(redis_url, name="test")
    prefix = f"test:{uuid.uuid4().hex}"
    leases = RedisLeases(client, prefix=prefix)
    await leases.renew("one", 1_000, 4)
    await step_clock(client, prefix, -HOUR_MS)

    async def has_all() -> bool:
        return len(await leases.renew("two", 1_000, 4)) == 4

    assert await eventually(has_all, "what a killed instance held is taken", limit_s=10)
    await leases.close()
    await client.aclose()
    await client.connection_pool.disconnect()


@pytest.mark.parametrize("broken", ["leases", "members", "reach", "fence", "clock"])
async def test_keys_that_are_none_of_ours_are_refused_and_stay(redis_url: str, broken: str) -> None:
    client = redis_client(redis_url, name="test")
    prefix = f"test:{uuid.uuid4().hex}"
    leases = RedisLeases(client, prefix=prefix)
    await client.set(f"{prefix}:{broken}", b"rubbish")
    with pytest.raises(Refused, match=broken):
        await leases.renew("one", MINUTE_MS, 4)
    assert await client.keys(f"{prefix}:*") == [f"{prefix}:{broken}".encode()]
    await client.delete(f"{prefix}:{broken}")
    await client.hset(f"{prefix}:members", "gone", b"rubbish")
    assert len(await leases.renew("one", MINUTE_MS, 4)) == 4
    await leases.close()
    await client.aclose()
    await client.connection_pool.disconnect()
