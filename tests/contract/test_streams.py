"""Streams have one owner: what `colo admin` makes and migrates, and what a service says of a stream that is not as wanted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import nats
import pytest
from nats.js.api import AckPolicy, ConsumerConfig, DiscardPolicy, StorageType, StreamConfig
from nats.js.client import JetStreamContext

from colo_cli.admin import check, init
from colo_cli.failure import Failure
from colo_cli.servers import NatsServer
from colo_common.adapters.bus_nats import NatsBus
from colo_common.adapters.nats_access import NatsAccess
from colo_common.adapters.nats_stream_config import VERSION_KEY, StreamWish
from colo_common.adapters.nats_streams import check_streams, make_streams
from colo_common.events.registry import STREAMS, STREAMS_VERSION, Stream
from colo_common.ports import Source
from tests.contract.test_bus import Received, kept, listening
from tests.support.servers import in_a_thread, made_streams
from tests.support.waiting import LIMIT_S, eventually

EVT = Stream.EVT.value
NEWER = str(STREAMS_VERSION + 1)


@pytest.fixture(scope="module")
def server(nats_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server of the module's own: a missing program is told by the shared one."""
    del nats_url
    own = NatsServer(directory=tmp_path_factory.mktemp("nats"))
    own.start_blocking()
    yield own
    own.stop_blocking()


@pytest.fixture
async def jetstream(server: NatsServer) -> AsyncIterator[JetStreamContext]:
    """What an operator does, on a server whose streams are as wanted at first."""
    client = await nats.connect(server.url)
    for found in await client.jetstream().streams_info():
        await client.jetstream().delete_stream(str(found.config.name))
    await made_streams(server.url)
    yield client.jetstream()
    await client.close()


def of_version(config: StreamConfig, number: str) -> StreamConfig:
    return config.evolve(metadata={**(config.metadata or {}), VERSION_KEY: number})


Change = Callable[[StreamConfig], StreamConfig]


@pytest.mark.parametrize(
    ("change", "replicas", "sentence"),
    [
        (lambda config: config, 1, ""),
        (lambda config: config, 3, f"stream {EVT} is kept by 1 server, 3 are wanted: colo admin upgrade"),
        (lambda config: config.evolve(max_bytes=1 << 20), 1, f"stream {EVT} keeps 1Mi, "),
        (lambda config: config.evolve(max_age=600), 1, f"stream {EVT} keeps messages for 10m, "),
        (lambda config: config.evolve(subjects=["colo.v1.evt.job.>"]), 1, f"stream {EVT} has other subjects than "),
        (
            lambda config: config.evolve(max_msgs=9),
            1,
            f"stream {EVT} keeps 9 messages, any number of messages are wanted",
        ),
        (lambda config: config.evolve(max_msg_size=2048), 1, f"stream {EVT} takes messages of 2Ki, any size is wanted"),
        (lambda config: config.evolve(discard=DiscardPolicy.NEW), 1, f"stream {EVT} discards the new, old is wanted"),
        (lambda config: config.evolve(no_ack=True), 1, f"stream {EVT} acknowledges nothing that it keeps"),
        (lambda config: config.evolve(max_consumers=7), 1, f"stream {EVT} takes 7 consumers, 100000 are wanted"),
        (lambda config: of_version(config, "0"), 1, f"stream {EVT} has the limits of version 0, "),
        (lambda config: of_version(config, NEWER).evolve(max_age=600, max_bytes=1 << 20), 1, ""),
    ],
)
async def test_a_service_says_how_a_stream_differs_and_changes_nothing(
    server: NatsServer, jetstream: JetStreamContext, change: Change, replicas: int, sentence: str
) -> None:
    await jetstream.update_stream(change((await jetstream.stream_info(EVT)).config))
    before = (await jetstream.stream_info(EVT)).config
    only = {name: limits for name, limits in STREAMS.items() if name is Stream.EVT}
    bus = NatsBus(server.url, name="contract", streams=only, wish=StreamWish(replicas=replicas))
    bus.start()

    async def has_looked() -> bool:
        problem = await bus.ready()
        return problem.startswith(sentence) if sentence else not problem

    await eventually(has_looked, sentence or "the bus is ready")
    assert (await bus.ready()).endswith(": colo admin upgrade" if sentence else "")
    await bus.close()
    assert (await jetstream.stream_info(EVT)).config == before


async def test_an_upgrade_takes_back_every_limit_of_somebody_else(
    server: NatsServer, jetstream: JetStreamContext
) -> None:
    evt = (await jetstream.stream_info(EVT)).config
    changed = evt.evolve(max_msgs=9, max_msg_size=2048, no_ack=True, max_consumers=7, discard=DiscardPolicy.NEW)
    await jetstream.update_stream(changed)
    states = await make_streams(NatsAccess(url=server.url), StreamWish(), upgrade=True)
    assert [state.stream for state in states if state.changed] == [EVT]
    assert [state.problem for state in states if state.problem] == []
    assert (await jetstream.stream_info(EVT)).config == evt


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ({"storage": StorageType.MEMORY}, "is in the memory of NATS and ends with it"),
        ({"sealed": True}, "is sealed and takes no message"),
    ],
    ids=["memory", "sealed"],
)
async def test_a_stream_that_no_upgrade_can_mend_is_named_and_the_others_are_upgraded(
    server: NatsServer, jetstream: JetStreamContext, fault: dict[str, Any], sentence: str
) -> None:
    node = Stream.NODE.value
    evt, good = (await jetstream.stream_info(EVT)).config, (await jetstream.stream_info(node)).config
    await jetstream.update_stream(evt.evolve(max_age=7_200))
    if "sealed" in fault:
        await jetstream.update_stream(good.evolve(**fault))
    else:
        await jetstream.delete_stream(node)
        await jetstream.add_stream(good.evolve(**fault))
    states = await make_streams(NatsAccess(url=server.url), StreamWish(), upgrade=True)
    assert [state.stream for state in states if state.changed] == [EVT]
    assert [state.problem for state in states if state.problem] == [
        f"stream {node} {sentence}, which no upgrade changes: delete the stream, then colo admin init"
    ]


async def test_an_upgrade_brings_older_streams_to_ours_and_leaves_newer_ones(
    server: NatsServer, jetstream: JetStreamContext
) -> None:
    """Before this version another stream had the subjects of executors, with a consumer that waits on them."""
    moved, subject = "colo.v1.evt.enforcement.>", "colo.v1.evt.enforcement.n.started"
    await jetstream.delete_stream(Stream.RUN.value)
    evt = (await jetstream.stream_info(EVT)).config
    await jetstream.update_stream(of_version(evt, "0").evolve(max_age=600, subjects=[*(evt.subjects or ()), moved]))
    waiting = ConsumerConfig(durable_name="d", filter_subject=subject, ack_policy=AckPolicy.EXPLICIT)
    await jetstream.add_consumer(EVT, waiting)
    node = (await jetstream.stream_info(Stream.NODE.value)).config
    await jetstream.update_stream(of_version(node, NEWER).evolve(max_age=600))
    access, wish = NatsAccess(url=server.url), StreamWish()
    assert [state.stream for state in await check_streams(access, wish) if state.problem] == [EVT, Stream.RUN.value]
    done = {state.stream: state for state in await make_streams(access, wish, upgrade=True)}
    assert {name: state.changed for name, state in done.items() if state.changed} == {
        EVT: "upgraded",
        Stream.RUN.value: "created",
    }
    assert [state.problem for state in done.values() if state.problem] == []
    # The disk that was stated at the first time still counts, and a second time changes nothing.
    assert (await jetstream.stream_info(EVT)).config == evt
    assert (await jetstream.stream_info(Stream.NODE.value)).config.max_age == 600
    assert not any(state.changed for state in await make_streams(access, wish, upgrade=True))
    await jetstream.publish(subject, b"x")
    assert (await jetstream.get_last_msg(Stream.RUN.value, subject)).data == b"x"


async def test_what_a_server_cannot_keep_is_refused_and_nothing_is_made(server: NatsServer) -> None:
    client = await nats.connect(server.url)
    for found in await client.jetstream().streams_info():
        await client.jetstream().delete_stream(str(found.config.name))
    url = ("--nats-url", server.url)
    for words, sentence in (
        (("--stream-replicas", "3"), "stream_replicas: 3 servers must keep each stream, and NATS has fewer"),
        (("--stream-disk-bytes", str(1 << 50)), "NATS has less: set stream_disk_bytes"),
        (("--stream-replicas", "2"), "stream-replicas"),
        (("--nats-uri", "x"), "did you mean"),
    ):
        with pytest.raises(Failure, match=sentence):
            await in_a_thread(partial(init, *url, *words))
        assert await client.jetstream().streams_info() == []
    assert await in_a_thread(partial(check, *url)) == 1
    assert await in_a_thread(partial(init, *url, "--stream-disk-bytes", str(1 << 30))) == 0
    assert await in_a_thread(partial(check, *url)) == 0
    await client.close()


async def test_a_consumer_of_a_node_is_forgotten_after_days_and_made_again_loses_no_order(
    server: NatsServer, jetstream: JetStreamContext
) -> None:
    stream, subject = Stream.CMD.value, "colo.v1.cmd.node.n1.apply"
    source = Source(subject=subject, stream=stream, durable="colo-executor-n1-cmd", forget_s=3 * 86_400)
    bus = NatsBus(server.url, name="contract")
    bus.start()
    await bus.connected(LIMIT_S)
    first, again = Received(), Received()
    await bus.publish([kept(subject, "one")])
    async with listening(bus, source, first):
        await first.count(1)
        config = (await jetstream.consumer_info(stream, source.durable)).config
        assert config.inactive_threshold == 3 * 86_400
    await bus.publish([kept(subject, "two")])
    await jetstream.delete_consumer(stream, source.durable)
    async with listening(bus, source, again):
        await again.count(1)
    assert (first.texts, again.texts) == (["one"], ["two"])
    await bus.close()


async def test_a_consumer_of_a_newer_version_is_used_as_it_is(server: NatsServer, jetstream: JetStreamContext) -> None:
    subject = "colo.v1.evt.job.changed"
    newer: dict[str, Any] = {"durable_name": "d", "filter_subject": subject, "ack_policy": AckPolicy.EXPLICIT}
    await jetstream.add_consumer(EVT, ConsumerConfig(**newer, ack_wait=77, metadata={VERSION_KEY: NEWER}))
    bus = NatsBus(server.url, name="contract")
    bus.start()
    await bus.connected(LIMIT_S)
    received = Received()
    async with listening(bus, Source(subject=subject, stream=EVT, durable="d"), received):
        await bus.publish([kept(subject, "x")])
        await received.count(1)
    assert (await jetstream.consumer_info(EVT, "d")).config.ack_wait == 77
    await bus.close()


async def test_a_consumer_that_cannot_be_made_is_a_reason_not_to_be_ready(
    server: NatsServer, jetstream: JetStreamContext
) -> None:
    del jetstream
    bus = NatsBus(server.url, name="contract")
    bus.start()
    await bus.connected(LIMIT_S)

    async def is_named() -> bool:
        return "no.such.subject" in await bus.ready()

    async with listening(bus, Source(subject="no.such.subject", stream="COLO_NOWHERE", durable="d"), Received()):
        await eventually(is_named, "the bus names the consumer that it has not")
    assert await bus.ready() == ""
    await bus.close()


async def test_a_stream_takes_more_consumers_than_a_server_does_by_itself(
    server: NatsServer, jetstream: JetStreamContext
) -> None:
    # Every node has a consumer of its orders: a fleet of more than a thousand must find room.
    name = Stream.CMD.value
    made = (await jetstream.stream_info(name)).config
    assert (made.max_consumers or 0) >= 100_000
    # A stream of the time before it was stated.
    await jetstream.update_stream(made.evolve(max_consumers=-1))
    (changed,) = [
        state for state in await make_streams(NatsAccess(url=server.url), StreamWish(), upgrade=True) if state.changed
    ]
    assert (changed.stream, changed.changed) == (name, "upgraded")
    assert (await jetstream.stream_info(name)).config == made
    again = await make_streams(NatsAccess(url=server.url), StreamWish(), upgrade=True)
    assert [state.changed for state in again] == [""] * len(STREAMS)
