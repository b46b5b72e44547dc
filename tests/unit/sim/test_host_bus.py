"""What every simulated node hears comes to their process once."""

import asyncio
from collections.abc import Callable

import pytest

from colo_common.events.fact import Fact
from colo_common.events.registry import subject_of
from colo_common.events.restriction import RestrictionsChanged
from colo_common.events.wire import decode, encode
from colo_common.ports import Delivery, Missed, Outgoing, Sink, Source
from colo_common.runtime import core_runner
from colo_common.runtime.service import Service
from colo_executor.subscriptions import executor_hears
from colo_sim.host_bus import NodesBus
from tests.shell.scripted_core import ScriptedCore
from tests.support.bus_memory import MemoryBus
from tests.support.vloop import VirtualClock, run_virtual

NODES = 50
LAST = Source(subject="colo.v1.evt.policy.restrictions", stream="COLO_POLICY", last_per_subject=True)


class CountingBus(MemoryBus):
    """Writes down what is listened to."""

    def __init__(self) -> None:
        super().__init__()
        self.listened: list[Source] = []
        self.ended: list[Source] = []

    async def listen(self, source: Source, sink: Sink, missed: Missed | None = None) -> None:
        self.listened.append(source)
        try:
            await super().listen(source, sink, missed)
        finally:
            self.ended.append(source)


def table(revision: int) -> Outgoing:
    fact = RestrictionsChanged(revision=revision, restrictions=())
    return Outgoing(subject=subject_of(fact), data=encode(fact), durable=True)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - a list signals no event
            await asyncio.sleep(0.001)


def test_one_table_for_all_nodes_is_received_and_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []

    def counted(subject: str, data: bytes) -> Fact:
        decoded.append(subject)
        return decode(subject, data)

    monkeypatch.setattr(core_runner, "decode", counted)
    listened = run_virtual(_one_table_for_all_nodes())
    assert decoded == [LAST.subject]
    assert listened.count(LAST) == 1
    # Of the last facts about a node there is one consumer, too; its orders and its lease have one for each node.
    assert [source.subject for source in listened if source.last_per_subject and source.subject != LAST.subject] == [
        "colo.v1.evt.node.*.topology"
    ]
    assert len(set(listened)) == len(listened) > NODES


async def _one_table_for_all_nodes() -> list[Source]:
    inner = CountingBus()
    bus = NodesBus(inner)
    cores = [ScriptedCore() for _ in range(NODES)]
    stop = asyncio.Event()
    services = [
        Service(
            name="executor",
            core=core,
            bus=bus,
            clock=VirtualClock(),
            subscriptions=executor_hears(f"node-{index}"),
            discoverable=False,
            never_waits=True,
        )
        for index, core in enumerate(cores)
    ]
    running = [asyncio.create_task(service.run(stop)) for service in services]
    await inner.publish([table(1)])
    await until(lambda: all(core.handled for core in cores))
    stop.set()
    await asyncio.gather(*running)
    assert [type(event) for core in cores for event in core.handled] == [RestrictionsChanged] * NODES
    return inner.listened


def test_each_node_hears_its_own_last_fact() -> None:
    assert run_virtual(_own_facts()) == {"n1": ["n1"], "n2": ["n2"], "late": ["n2"], "all": ["n1", "n2"]}


async def _own_facts() -> dict[str, list[str]]:
    bus = NodesBus(MemoryBus())
    received: dict[str, list[str]] = {"n1": [], "n2": [], "late": [], "all": []}

    def of(node: str) -> Source:
        return Source(subject=f"colo.v1.evt.node.{node}.topology", stream="COLO_NODE", last_per_subject=True)

    def hears(name: str) -> Sink:
        async def sink(delivery: Delivery) -> None:
            received[name].append(delivery.subject.split(".")[4])

        return sink

    listeners = [asyncio.create_task(bus.listen(of(node), hears(node))) for node in ("n1", "n2")]
    listeners.append(asyncio.create_task(bus.listen(of("*"), hears("all"))))
    await bus.publish([Outgoing(subject=of(node).subject, data=b"{}", durable=True) for node in ("n1", "n2")])
    await until(lambda: len(received["all"]) == 2)
    listeners.append(asyncio.create_task(bus.listen(of("n2"), hears("late"))))
    await until(lambda: received["late"])
    for listener in listeners:
        listener.cancel()
    await asyncio.gather(*listeners, return_exceptions=True)
    return received


def test_who_comes_later_hears_the_last_table_and_a_slow_one_delays_nobody() -> None:
    received, listened, ended = run_virtual(_a_slow_and_a_late_listener())
    assert received == {"first": [table(1).data, table(2).data], "later": [table(1).data, table(2).data]}
    assert listened == ended == [LAST]


async def _a_slow_and_a_late_listener() -> tuple[dict[str, list[bytes]], list[Source], list[Source]]:
    inner = CountingBus()
    bus = NodesBus(inner)
    received: dict[str, list[bytes]] = {"first": [], "later": []}
    stuck = asyncio.Event()

    async def never(_delivery: Delivery) -> None:
        await stuck.wait()

    def hears(name: str) -> Sink:
        async def sink(delivery: Delivery) -> None:
            received[name].append(delivery.data)

        return sink

    listeners = [asyncio.create_task(bus.listen(LAST, sink)) for sink in (never, hears("first"))]
    await inner.publish([table(1)])
    await until(lambda: received["first"])
    listeners.append(asyncio.create_task(bus.listen(LAST, hears("later"))))
    await until(lambda: received["later"])
    await inner.publish([table(2)])
    await until(lambda: len(received["first"]) == len(received["later"]) == 2)
    for listener in listeners:
        listener.cancel()
    await asyncio.gather(*listeners, return_exceptions=True)
    await until(lambda: inner.ended)
    return received, inner.listened, inner.ended
