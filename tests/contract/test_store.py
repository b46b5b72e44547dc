"""The store's promises, kept alike by the memory twin and by a real Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
import redis.asyncio
from structlog.testing import capture_logs

from colo_common.adapters.redis_client import redis_client
from colo_common.adapters.store_limits import ROWS_A_WRITE
from colo_common.adapters.store_memory import MemoryStore
from colo_common.adapters.store_redis import RedisStore, key_of_kind
from colo_common.events.effects import Write
from colo_common.model.invalid import InvalidInput
from colo_common.ports import Refused, Row, Store, StoreConflict, Unavailable
from tests.support.servers import redis_server
from tests.support.waiting import eventually


@pytest.fixture(params=["memory", "redis"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
        return
    real = RedisStore.of(request.getfixturevalue("redis_url"), name="contract")
    yield real
    await real.close()


@pytest.fixture
def kind() -> str:
    return f"kind-{uuid4().hex}"


def row(kind: str, id_: str, value: bytes | None, expect: int) -> Write:
    return Write(kind=kind, id=id_, value=value, expect=expect)


async def test_a_row_that_was_never_written_is_none(store: Store, kind: str) -> None:
    assert await store.get(kind, "a") is None
    assert await store.load(kind) == ()


async def test_the_first_write_makes_version_one_and_each_next_one_adds_one(store: Store, kind: str) -> None:
    for expect in range(3):
        await store.write([row(kind, "a", b"v%d" % expect, expect)])
    assert await store.get(kind, "a") == Row(id="a", value=b"v2", version=3)


async def test_values_are_kept_byte_for_byte(store: Store, kind: str) -> None:
    values = [b"", b"\n", b"1\n2", b"\x00\xff\r\n", "ä".encode(), b"x" * 100_000]
    for index, value in enumerate(values):
        await store.write([row(kind, f"{index}", value, 0)])
    assert [found.value for found in await store.load(kind)] == values


async def test_a_row_is_only_new_when_zero_is_expected(store: Store, kind: str) -> None:
    await store.write([row(kind, "a", b"1", 0)])
    with pytest.raises(StoreConflict) as caught:
        await store.write([row(kind, "a", b"2", 0)])
    assert (caught.value.kind, caught.value.id, caught.value.expected, caught.value.found) == (kind, "a", 0, 1)


async def test_nothing_of_a_batch_is_written_when_one_version_differs(store: Store, kind: str) -> None:
    await store.write([row(kind, "old", b"1", 0)])
    await store.write([row(kind, "other", b"1", 0)])
    with pytest.raises(StoreConflict):
        await store.write([row(kind, "new", b"1", 0), row(kind, "old", None, 1), row(kind, "other", b"2", 0)])
    assert await store.load(kind) == (Row(id="old", value=b"1", version=1), Row(id="other", value=b"1", version=1))


async def test_a_row_that_the_store_lost_is_written_with_the_version_that_its_writer_counts(
    store: Store, kind: str
) -> None:
    await store.write([row(kind, "b", b"2", 5)])
    assert await store.get(kind, "b") == Row(id="b", value=b"2", version=6)
    await store.write([row(kind, "b", b"3", 8)])
    assert await store.get(kind, "b") == Row(id="b", value=b"3", version=9)
    with pytest.raises(StoreConflict) as caught:
        await store.write([row(kind, "b", b"4", 8)])
    assert (caught.value.expected, caught.value.found) == (8, 9)


async def test_what_is_put_back_replaces_older_rows_only(store: Store, kind: str) -> None:
    def put_back(id_: str, value: bytes, version: int) -> Write:
        return Write(kind=kind, id=id_, value=value, expect=version, puts_back=True)

    await store.write([row(kind, "new", b"1", 4), row(kind, "old", b"1", 0)])
    await store.write([put_back("new", b"0", 3), put_back("old", b"2", 7), put_back("lost", b"3", 2)])
    await store.write([put_back("new", b"0", 5), put_back("lost", b"4", 2)])
    assert await store.load(kind) == (
        Row(id="lost", value=b"3", version=2),
        Row(id="new", value=b"1", version=5),
        Row(id="old", value=b"2", version=7),
    )


async def test_a_batch_may_span_kinds(store: Store, kind: str) -> None:
    await store.write([row(kind, "a", b"1", 0), row(kind + "-b", "a", b"2", 0)])
    assert (await store.get(kind, "a"), await store.get(kind + "-b", "a")) == (
        Row(id="a", value=b"1", version=1),
        Row(id="a", value=b"2", version=1),
    )


async def test_a_row_may_be_written_twice_in_a_batch_when_it_expects_its_own_write(store: Store, kind: str) -> None:
    await store.write(
        [row(kind, "a", b"1", 0), row(kind, "a", b"2", 1), row(kind, "a", None, 2), row(kind, "a", b"3", 0)]
    )
    assert await store.get(kind, "a") == Row(id="a", value=b"3", version=1)
    with pytest.raises(StoreConflict):
        await store.write([row(kind, "a", b"4", 1), row(kind, "a", b"5", 1)])
    assert await store.get(kind, "a") == Row(id="a", value=b"3", version=1)


async def test_a_deleted_row_is_gone_and_starts_at_one_again(store: Store, kind: str) -> None:
    await store.write([row(kind, "a", b"1", 0)])
    await store.write([row(kind, "a", None, 1)])
    assert await store.get(kind, "a") is None
    await store.write([row(kind, "a", b"2", 0)])
    assert await store.get(kind, "a") == Row(id="a", value=b"2", version=1)


async def test_deleting_needs_the_version_too(store: Store, kind: str) -> None:
    await store.write([row(kind, "a", b"1", 0)])
    await store.write([row(kind, "a", b"2", 1)])
    with pytest.raises(StoreConflict):
        await store.write([row(kind, "a", None, 1)])
    assert await store.get(kind, "a") == Row(id="a", value=b"2", version=2)


async def test_load_gives_every_row_once_in_ascending_id(store: Store, kind: str) -> None:
    ids = [f"r{index:05d}" for index in range(3_000)]
    for start in range(0, len(ids), 500):
        await store.write([row(kind, id_, b"v", 0) for id_ in reversed(ids[start : start + 500])])
    assert [found.id for found in await store.load(kind)] == ids


async def test_an_empty_batch_writes_nothing(store: Store, kind: str) -> None:
    await store.write([])
    assert await store.load(kind) == ()


async def test_a_batch_above_the_limit_is_refused_whole(store: Store, kind: str) -> None:
    with pytest.raises(Refused, match=str(ROWS_A_WRITE)):
        await store.write([row(kind, str(index), b"v", 0) for index in range(ROWS_A_WRITE + 1)])
    assert await store.load(kind) == ()


@pytest.mark.parametrize(("id_", "expect"), [("", 0), ("a", -1)])
async def test_a_row_without_id_or_with_a_negative_version_is_refused(
    store: Store, kind: str, id_: str, expect: int
) -> None:
    with pytest.raises(Refused):
        await store.write([row(kind, id_, b"v", expect)])


async def test_a_store_that_takes_writes_is_ready(store: Store) -> None:
    assert await store.ready() == ""


# ---------------------------------------------------------------- only the real one


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[redis.asyncio.Redis]:
    client = redis_client(redis_url, name="contract")
    yield client
    await client.aclose()
    await client.connection_pool.disconnect()


async def test_an_emptied_redis_and_one_that_started_again_are_other_ones() -> None:
    with redis_server() as server:
        store = RedisStore.of(server.url, name="contract")
        try:
            first = await store.identity()
            assert await store.identity() == first
            emptying = redis_client(server.url, name="contract")
            await emptying.flushall()
            await emptying.aclose()

            async def is_another() -> bool:
                # An answer is kept for a tenth of a second, for the services of one process.
                return (await store.identity()).split()[0] != first.split()[0]

            await eventually(is_another, "the store is another one")
        finally:
            await store.close()


async def test_a_redis_that_is_gone_is_unavailable_and_heals() -> None:
    with redis_server() as server:
        url = server.url
        store = RedisStore.of(url, name="contract")
        await store.write([row("k", "a", b"1", 0)])
    assert "Redis" in await store.ready()
    for call in (store.get("k", "a"), store.load("k"), store.write([row("k", "b", b"1", 0)])):
        with pytest.raises(Unavailable):
            await call
    await store.close()


async def test_a_redis_without_an_append_only_file_is_one_warning_and_a_state() -> None:
    with redis_server() as server, capture_logs() as lines:
        store = RedisStore.of(server.url, name="contract")
        client = redis_client(server.url, name="contract")
        assert store.appends is None
        await client.config_set("appendonly", "no")
        for _ in range(3):
            assert await store.ready() == ""
        assert store.appends is False
        await client.config_set("appendonly", "yes")
        assert await store.ready() == ""
        assert store.appends is True
        await store.close()
        await client.aclose()
        await client.connection_pool.disconnect()
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == ["redis-appends-nothing"]


async def test_a_redis_that_takes_no_writes_says_why_and_whether_that_is_for_now() -> None:
    with redis_server() as server:
        store = RedisStore.of(server.url, name="contract")
        client = redis_client(server.url, name="contract")
        await store.write([row("k", "a", b"1", 0)])
        await client.config_set("min-replicas-to-write", "1")
        with pytest.raises(Unavailable, match="(?i)replicas"):
            await store.write([row("k", "a", b"2", 1), row("k", "b", b"2", 0)])
        assert "replicas" in (await store.ready()).lower()
        await client.config_set("min-replicas-to-write", "0")
        await client.config_set("maxmemory", "1")
        with pytest.raises(Refused, match="maxmemory"):
            await store.write([row("k", "a", b"2", 1), row("k", "b", b"2", 0)])
        await client.config_set("maxmemory", "0")
        assert await store.ready() == ""
        assert await store.load("k") == (Row(id="a", value=b"1", version=1),)
        await store.close()
        await client.aclose()
        await client.connection_pool.disconnect()


async def test_a_forgotten_script_is_sent_again(client: redis.asyncio.Redis, kind: str) -> None:
    store = RedisStore(client)
    await store.write([row(kind, "a", b"1", 0)])
    await client.script_flush()
    await store.write([row(kind, "a", b"2", 1)])
    assert await store.get(kind, "a") == Row(id="a", value=b"2", version=2)


def test_an_address_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidInput, match="redis_url"):
        redis_client("http://localhost", name="contract")


async def test_a_value_without_a_version_wedges_nobody_and_is_put_aside_when_its_row_is_written(
    client: redis.asyncio.Redis, kind: str
) -> None:
    store = RedisStore(client)
    await client.hset(key_of_kind(kind), mapping={"a": b"what somebody typed", "b": b"0\nzero"})
    await store.write([row(kind, "c", b"good", 0)])
    with capture_logs() as lines:
        for _ in range(2):
            assert await store.load(kind) == (Row(id="c", value=b"good", version=1),)
            assert await store.get(kind, "a") is None
    assert sorted(line["row"] for line in lines) == ["a", "b"]
    await store.write([row(kind, "a", b"v", 0)])
    assert await store.get(kind, "a") == Row(id="a", value=b"v", version=1)
    assert await client.hgetall(f"{key_of_kind(kind)}:unreadable") == {b"a": b"what somebody typed"}
