"""Systems outside that bound one node at the same moment, over a real NATS and two overcommit instances: no bound is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import uuid4

from colo_common.adapters.bus_nats import NatsBus
from colo_common.adapters.clock import SystemClock
from colo_common.events.effects import Publish
from colo_common.events.external import (
    ClearExternalCapacity,
    ExternalCapacity,
    ExternalCapacityChanged,
    NodeExternal,
    SetExternalCapacity,
)
from colo_common.events.requests import Refusal
from colo_common.events.wire import decode
from colo_common.model.partition import PartitionsHeld, partition_of
from colo_common.ports import Delivery
from colo_common.runtime.ask import ask
from colo_common.runtime.core import Subscription, source_of
from colo_common.runtime.stamp import Stamp
from colo_overcommit.core import OvercommitCore
from colo_overcommit.external import SOURCES_MOST
from colo_overcommit.policy import OvercommitPolicy
from colo_overcommit.shell import overcommit_service
from tests.support.builders import a_node
from tests.support.waiting import LIMIT_S, eventually

SOURCES = [f"source-{number}" for number in range(SOURCES_MOST)]
PARTITIONS = 2


@asynccontextmanager
async def instance(nats_url: str, partition: int) -> AsyncIterator[OvercommitCore]:
    """One of two overcommit services, which holds this partition of the nodes."""
    bus, core, stop = (
        NatsBus(nats_url, name="contract"),
        OvercommitCore(OvercommitPolicy(), partitions=2),
        asyncio.Event(),
    )
    bus.start()
    await bus.connected(LIMIT_S)
    service = overcommit_service(core, bus, SystemClock(), is_shared=True)
    running = asyncio.create_task(service.run(stop))
    try:
        await service.inject(PartitionsHeld(fences=((partition, 1),)))

        async def answers() -> bool:
            return not any((await service.problems()).values())

        await eventually(answers, "the instance answers", limit_s=LIMIT_S)
        yield core
    finally:
        stop.set()
        await running
        await bus.close()


async def test_bounds_of_many_sources_at_the_same_moment_all_count_for_both_instances(nats_url: str) -> None:
    own = uuid4().hex
    # One node of each instance, which nobody else in this server names.
    nodes = list(
        {partition_of(name, PARTITIONS): name for name in (f"n{number}-{own}" for number in range(16))}.values()
    )
    assert len(nodes) == PARTITIONS
    bus = NatsBus(nats_url, name="contract")
    bus.start()
    await bus.connected(LIMIT_S)
    stamp = Stamp("collector", own[:12], SystemClock())
    async with AsyncExitStack() as stack:
        stack.push_async_callback(bus.close)
        cores = [await stack.enter_async_context(instance(nats_url, part)) for part in range(PARTITIONS)]
        await bus.publish([stamp.outgoing(Publish(fact=a_node(node))) for node in nodes])

        async def are_known() -> bool:
            return all(node in core.nodes and core.nodes[node].topology for core in cores for node in nodes)

        await eventually(are_known, "both instances know the nodes", limit_s=LIMIT_S)
        asked = [
            SetExternalCapacity(node=node, source=source, ttl_ms=3_600_000, cpu_mcpu=1_000)
            for source in SOURCES
            for node in nodes
        ]
        answers = await asyncio.gather(*(ask(bus, each, LIMIT_S) for each in asked))
        assert [type(each) for each in answers] == [NodeExternal] * len(asked)

        def sources_of(entries: tuple[ExternalCapacity, ...]) -> list[str]:
            return [each.source for each in entries]

        async def all_count() -> bool:
            return all(sources_of(core.nodes[node].external) == SOURCES for core in cores for node in nodes)

        await eventually(all_count, "every instance has the bound of every source", limit_s=LIMIT_S)

        # Whoever starts later finds the same on the bus.
        kept: dict[str, tuple[ExternalCapacity, ...]] = {}

        async def note(delivery: Delivery) -> None:
            fact = decode(delivery.subject, delivery.data)
            assert isinstance(fact, ExternalCapacityChanged)
            kept[fact.node] = fact.entries

        source = source_of("contract", Subscription(type=ExternalCapacityChanged, durable=False, replay=True))
        listener = asyncio.create_task(bus.listen(source, note))

        async def are_kept() -> bool:
            return all(sources_of(kept.get(node, ())) == SOURCES for node in nodes)

        await eventually(are_kept, "the bus keeps the bounds of all sources", limit_s=LIMIT_S)
        listener.cancel()
        await asyncio.gather(listener, return_exceptions=True)

        # A node that nobody knows is refused at once, by the one that would hold it.
        unknown = await ask(bus, ClearExternalCapacity(node=f"x-{own}", source="source-1"), LIMIT_S)
        assert isinstance(unknown, Refusal)
        assert unknown.code == 404
