"""Three NATS servers and a Redis with a replica and a sentinel: what was acknowledged is there when one of them is killed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from functools import partial

import nats
import pytest

from colo_cli.admin import init, upgrade
from colo_cli.doctor import doctor
from colo_common.adapters.bus_nats import NatsBus
from colo_common.adapters.nats_stream_config import VERSION_KEY, StreamWish, version_of
from colo_common.adapters.redis_client import redis_client
from colo_common.adapters.store_redis import RedisStore
from colo_common.events.effects import Write
from colo_common.events.registry import STREAMS_VERSION, Stream
from colo_common.ports import PortError, Source, Unavailable
from tests.contract.test_bus import Received, kept, listening
from tests.support.clusters import NatsCluster, RedisSentinel, nats_cluster, redis_sentinel
from tests.support.servers import in_a_thread
from tests.support.waiting import eventually

SUBJECT = "colo.v1.evt.job.changed"
#: An election takes up to nine seconds, and a sentinel that stood still for two does nothing for half a minute after that.
READY_WITHIN_S = 120.0


@pytest.fixture(scope="module")
def cluster(nats_url: str) -> Iterator[NatsCluster]:
    """Three servers; a missing program is told by the shared one."""
    del nats_url
    with nats_cluster() as running:
        yield running


@pytest.fixture(scope="module")
def sentinel(redis_url: str) -> Iterator[RedisSentinel]:
    del redis_url
    with redis_sentinel() as running:
        yield running


def words(cluster: NatsCluster, sentinel: RedisSentinel) -> tuple[str, ...]:
    return (
        "--nats-url",
        cluster.url,
        "--redis-url",
        sentinel.url,
        "--stream-replicas",
        "3",
    )


@pytest.fixture
async def streams(cluster: NatsCluster) -> None:
    """Streams on three servers, made as an operator makes them."""
    made = partial(init, "--nats-url", cluster.url, "--stream-replicas", "3", "--stream-disk-bytes", str(1 << 30))
    assert await in_a_thread(made) == 0


@pytest.fixture
async def bus(cluster: NatsCluster, streams: None) -> AsyncIterator[NatsBus]:
    del streams
    bus = NatsBus(cluster.url, name="contract", wish=StreamWish(replicas=3))
    bus.start()
    await bus.connected(READY_WITHIN_S)
    yield bus
    await bus.close()


async def published(bus: NatsBus, name: str) -> None:
    """Publish until that is acknowledged, as a service does."""
    message = kept(SUBJECT, name, msg_id=name)

    async def is_stored() -> bool:
        try:
            await bus.publish([message])
        except Unavailable:
            return False
        return True

    await eventually(is_stored, f"{name} is stored", limit_s=READY_WITHIN_S)


async def test_an_upgrade_that_does_not_say_how_many_servers_keep_a_stream_leaves_them_as_they_are(
    cluster: NatsCluster, streams: None
) -> None:
    del streams
    client = await nats.connect(cluster.url.split(","))
    jetstream = client.jetstream(timeout=10)
    older = (await jetstream.stream_info(Stream.EVT.value)).config
    await jetstream.update_stream(older.evolve(metadata={**(older.metadata or {}), VERSION_KEY: "0"}))
    await jetstream.delete_stream(Stream.AUDIT.value)
    assert await in_a_thread(partial(upgrade, "--nats-url", cluster.url)) == 0
    found = {stream.value: (await jetstream.stream_info(stream.value)).config for stream in Stream}
    await client.close()
    assert {name: config.num_replicas for name, config in found.items()} == {stream.value: 3 for stream in Stream}
    assert version_of(found[Stream.EVT.value]) == STREAMS_VERSION


@pytest.mark.failover
async def test_every_message_is_stored_once_when_the_leader_of_its_stream_is_killed(
    cluster: NatsCluster, bus: NatsBus
) -> None:
    received = Received()
    source = Source(subject=SUBJECT, stream=Stream.EVT.value, durable="colo-clusters-evt")
    async with listening(bus, source, received):
        for number in range(20):
            await published(bus, f"before-{number}")
        leader = await in_a_thread(partial(cluster.stream_leader, Stream.EVT.value))
        cluster.kill(leader)
        await published(bus, "first")

        async def is_ready() -> bool:
            return await bus.ready() == ""

        await eventually(is_ready, "the bus is ready with two servers", limit_s=READY_WITHIN_S)
        for number in range(20):
            await published(bus, f"after-{number}")
        expected = (
            {f"before-{number}" for number in range(20)} | {f"after-{number}" for number in range(20)} | {"first"}
        )
        await received.until(lambda: expected <= set(received.texts))
        # In this thread, since a server ends with the thread that started it.
        cluster.restart(leader)
        await in_a_thread(cluster.wait_healthy)
    client = await nats.connect(cluster.url.split(","))
    try:
        state = (await client.jetstream().stream_info(Stream.EVT.value)).state
    finally:
        await client.close()
    assert state.messages == len(expected)


@pytest.fixture
async def store(sentinel: RedisSentinel) -> AsyncIterator[RedisStore]:
    found = RedisStore(redis_client(sentinel.url, name="contract"), min_replicas=1, must_append=True)
    yield found
    await found.close()


@pytest.mark.failover
async def test_what_a_replica_has_is_there_when_the_primary_is_killed(
    sentinel: RedisSentinel, store: RedisStore
) -> None:
    first = await in_a_thread(sentinel.primary)
    for number in range(50):
        await store.write([Write(kind="k", id=f"{number}", value=b"x", expect=0)])
    assert await store.ready() == ""
    sentinel.kill(first)

    async def has_rows() -> int:
        try:
            return len(await store.load("k"))
        except PortError:
            return 0

    assert await eventually(has_rows, "the other server answers", limit_s=READY_WITHIN_S) == 50
    # The new primary has no replica yet: a write does not count, and is found when it is tried again.
    with pytest.raises(Unavailable, match="0 of 1 replicas have the write"):
        await store.write([Write(kind="k", id="late", value=b"x", expect=0)])
    sentinel.restart(first)

    await eventually(partial(_takes, store), "the old primary follows the new one", limit_s=READY_WITHIN_S)
    assert {row.id for row in await store.load("k")} >= {f"{number}" for number in range(50)}


async def _takes(store: RedisStore) -> bool:
    found = await store.get("counter", "x")
    try:
        await store.write([Write(kind="counter", id="x", value=b"x", expect=found.version if found else 0)])
    except Unavailable:
        return False
    return True


async def test_doctor_tells_what_a_cluster_keeps(
    cluster: NatsCluster, sentinel: RedisSentinel, streams: None, capsys: pytest.CaptureFixture[str]
) -> None:
    del streams
    monitors = ",".join(cluster.monitor_urls)
    await in_a_thread(cluster.wait_healthy)
    looked = partial(doctor, *words(cluster, sentinel), cluster=True, monitor=monitors, output="json")
    capsys.readouterr()
    # Two minutes between two syncs are told, whatever else is well.
    assert await in_a_thread(looked) == 1
    rows = json.loads(capsys.readouterr().out)
    found = {row["name"]: row for row in rows}
    syncs = [(row["ok"], row["detail"]) for row in rows if row["name"] == "nats-sync"]
    assert [ok for ok, _ in syncs] == [False] * 3, syncs
    assert all("every 120 s" in detail for _, detail in syncs)
    # A sentinel that stood still on this machine says so and nothing else does.
    assert found["redis-sentinels"]["ok"] is ("in TILT" not in found["redis-sentinels"]["detail"])
    assert {name for name, row in found.items() if not row["ok"]} - {"redis-sentinels"} == {"nats-sync"}
    assert "3 replicas" in found[Stream.EVT.value]["detail"]
    assert "1 of 1 answer" in found["redis-sentinels"]["detail"]


async def test_doctor_names_what_loses_facts(nats_url: str, redis_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    client = redis_client(redis_url, name="contract")
    await client.config_set("maxmemory", "1gb")
    await client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        store = RedisStore(client)
        assert "maxmemory-policy must be noeviction (is allkeys-lru)" in await store.ready()
        asked = (
            "--nats-url",
            nats_url,
            "--redis-url",
            redis_url,
            "--stream-replicas",
            "3",
            "--redis-min-replicas",
            "1",
        )
        capsys.readouterr()  # What this test's own store has logged.
        assert await in_a_thread(partial(doctor, *asked, cluster=True, output="json")) == 1
        rows = json.loads(capsys.readouterr().out)
        wrong = {row["name"]: row["means"] for row in rows if row["ok"] is False}
        assert "appendonly yes" in wrong["redis-aof"]
        assert "noeviction" in wrong["redis-memory"]
        assert "no write counts" in wrong["redis-replicas"]
        assert wrong[Stream.EVT.value] == "stream COLO_EVT is kept by 1 server, 3 are wanted: colo admin upgrade"
    finally:
        await client.config_set("maxmemory", "0")
        await client.config_set("maxmemory-policy", "noeviction")
        await client.aclose()
        await client.connection_pool.disconnect()
