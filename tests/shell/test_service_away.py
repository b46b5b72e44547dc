"""The generic shell on virtual time: servers that go and come, crashes between two steps, and what is said again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from colo_common.events.effects import Conflict, Effect, Publish, StoreLost, Write
from colo_common.events.job import QueueChanged, ReplicasWithdrawn
from colo_common.events.node import LeaseRenewed
from colo_common.ports import Unavailable
from colo_common.runtime.stamp import outgoing_from_row
from tests.shell.scripted_core import (
    WITHDRAWN,
    Local,
    Own,
    ScriptedCore,
    World,
    changed,
    message,
    row,
    settled,
    withdrawn,
)
from tests.support.vloop import run_virtual

# ---------------------------------------------------------------- servers away


def test_a_store_that_is_away_is_waited_for_and_nothing_is_lost() -> None:
    def react(event: Struct) -> Sequence[Effect]:
        return [row(event.attempts[0][0]), changed()] if isinstance(event, ReplicasWithdrawn) else []

    async def story() -> None:
        world = World(ScriptedCore(react))
        service = world.service([WITHDRAWN])
        async with world.running(service):
            world.store.fault = Unavailable("Redis is away")
            await world.bus.say(message(withdrawn("a")))
            await asyncio.sleep(60)
            await world.bus.say(message(withdrawn("b")))
            await asyncio.sleep(1)
            assert world.lines == []
            assert (await service.problems())["redis"] == "Redis is away"
            world.store.fault = None
            await asyncio.sleep(6)
            assert [stored.id for stored in await world.store.load("job")] == ["a", "b"]
            assert len(world.facts(QueueChanged)) == 2
            assert set((await service.problems()).values()) == {""}
        assert await world.store.load("outbox-told") == ()

    run_virtual(story())


def test_a_write_whose_answer_was_lost_is_recognised_and_is_no_conflict() -> None:
    async def story() -> None:
        world = World(ScriptedCore(lambda event: [row("a"), changed()] if isinstance(event, ReplicasWithdrawn) else []))
        async with world.running(world.service([WITHDRAWN])):
            world.store.lose_answers = 1
            await world.bus.say(message(withdrawn()))
            await asyncio.sleep(2)
            assert not [event for event in world.core.handled if isinstance(event, Conflict)]
            assert len(world.facts(QueueChanged)) == 1
            assert [stored.version for stored in await world.store.load("job")] == [1]

    run_virtual(story())


def test_a_bus_that_is_away_holds_messages_and_acknowledgements_but_not_the_core() -> None:
    async def story() -> None:
        done: list[str] = []
        world = World(ScriptedCore(lambda event: [Own(), changed()] if isinstance(event, Local) else []))

        async def perform(effect: Effect) -> Sequence[Struct]:
            done.append("performed")
            return []

        service = world.service(perform=perform)
        async with world.running(service):
            world.bus.go_away()
            for _ in range(3):
                await service.inject(Local())
                await asyncio.sleep(10)
            assert done == ["performed"] * 3
            assert world.facts(QueueChanged) == []
            assert (await service.problems())["nats"] == "the bus is away"
            world.bus.come_back()
            await asyncio.sleep(6)
            assert [fact.seq for fact in world.facts(QueueChanged)] == [1, 2, 3]
            assert (await service.problems())["nats"] == ""

    run_virtual(story())


def test_lossy_messages_are_dropped_while_the_bus_is_away() -> None:
    async def story() -> None:
        lease = Publish(fact=LeaseRenewed(node="n1", sample_seq=1, batch_cpu_mcpu=0, lease_ms=1))
        world = World(ScriptedCore(lambda _event: [lease]))
        service = world.service()
        async with world.running(service):
            world.bus.go_away()
            await service.inject(Local())
            await asyncio.sleep(1)
            world.bus.come_back()
            await service.inject(Local())
            await asyncio.sleep(10)
            assert [fact.seq for fact in world.facts(LeaseRenewed)] == [2]

    run_virtual(story())


def test_lossy_messages_behind_a_waiting_durable_one_are_dropped_too() -> None:
    async def story() -> None:
        lease = Publish(fact=LeaseRenewed(node="n1", sample_seq=1, batch_cpu_mcpu=0, lease_ms=1))
        world = World(ScriptedCore(lambda _event: [changed(), lease]))
        service = world.service()
        async with world.running(service):
            world.bus.go_away()
            for _ in range(20):
                await service.inject(Local())
                await asyncio.sleep(1)
            world.bus.come_back()
            await asyncio.sleep(10)
            assert len(world.facts(QueueChanged)) == 20
            assert len(world.facts(LeaseRenewed)) <= 1, "old telemetry must not come in one burst"

    run_virtual(story())


def test_loading_waits_for_the_store_and_its_events_come_first() -> None:
    async def story() -> None:
        world = World()
        world.store.fault = Unavailable("Redis is away")

        async def load() -> Sequence[Struct]:
            await world.store.load("job")
            return [Local("loaded")]

        await world.bus.say(message(withdrawn()))
        service = world.service([WITHDRAWN], load=load)
        async with world.running(service):
            await asyncio.sleep(60)
            assert world.core.handled == []
            assert (await service.problems())["told"] == "is still loading"
            world.store.fault = None
            await asyncio.sleep(6)
            assert world.core.handled == [Local("loaded"), withdrawn()]

    run_virtual(story())


def test_a_store_that_is_emptied_while_it_is_read_at_the_start_is_noticed() -> None:
    async def story() -> None:
        world = World()

        async def load() -> Sequence[Struct]:
            world.store.lose_since({})
            return [Local("loaded")]

        async with world.running(world.service(load=load, puts_back=True)):
            assert world.core.handled == [Local("loaded"), StoreLost()]

    run_virtual(story())


def test_stopping_while_the_store_is_away_at_the_start_ends_at_once() -> None:
    async def story() -> None:
        world = World()
        world.store.fault = Unavailable("Redis is away")
        async with world.running(world.service([WITHDRAWN])):
            await asyncio.sleep(60)
            before_s = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - before_s < 0.1

    run_virtual(story())


# ---------------------------------------------------------------- again


def test_a_second_delivery_is_handled_again_and_its_message_of_the_same_id_is_dropped() -> None:
    def react(event: Struct) -> Sequence[Effect]:
        reported = QueueChanged(queue="q", waiting=0, running=0, capacity=1)
        return [Publish(fact=reported, id="told:q:1")] if isinstance(event, ReplicasWithdrawn) else []

    async def story() -> None:
        world = World(ScriptedCore(react))
        async with world.running(world.service([WITHDRAWN])):
            await world.bus.say(message(withdrawn()), message(withdrawn()))
            await settled()
            assert len(world.core.handled) == 2
            assert len(world.facts(QueueChanged)) == 1
            assert world.lines.count("ack evt.replica.withdrawn") == 2

    run_virtual(story())


def test_what_was_recorded_but_not_published_is_published_by_the_next_start() -> None:
    def react(event: Struct) -> Sequence[Effect]:
        return [row(event.text), changed(event.text)] if isinstance(event, Local) else []

    async def story() -> None:
        world = World(ScriptedCore(react))
        first = world.service(boot_id="first")
        killed = asyncio.ensure_future(first.run(world.stop))
        await settled()
        world.bus.go_away()
        for text in ("a", "b"):
            await first.inject(Local(text))
            await settled()
        killed.cancel()  # As a kill would: nothing is said, nothing is handed back.
        await asyncio.wait([killed])
        left = await world.store.load("outbox-told")
        assert [outgoing_from_row(stored.value)[0].msg_id for stored in left] == ["told:first:1", "told:first:2"]
        world.bus.come_back()
        async with world.running(world.service(boot_id="second")):
            assert [fact.queue for fact in world.facts(QueueChanged)] == ["a", "b"]
        assert await world.store.load("outbox-told") == ()

    run_virtual(story())


def test_what_was_published_but_not_removed_from_the_outbox_is_said_once() -> None:
    async def story() -> None:
        world = World(ScriptedCore(lambda event: [row("a"), changed()] if isinstance(event, Local) else []))
        first = world.service(boot_id="first")
        killed = asyncio.ensure_future(first.run(world.stop))
        await settled()
        removing = world.store.write

        async def never_remove(writes: Sequence[Write]) -> None:
            if writes[0].value is None:
                raise Unavailable("killed here")
            await removing(writes)

        world.store.write = never_remove  # type: ignore[method-assign]
        await first.inject(Local())
        await settled()
        killed.cancel()
        await asyncio.wait([killed])
        world.store.write = removing  # type: ignore[method-assign]
        assert len(world.facts(QueueChanged)) == 1
        assert len(await world.store.load("outbox-told")) == 1
        async with world.running(world.service(boot_id="second")):
            assert len(world.facts(QueueChanged)) == 1
        assert await world.store.load("outbox-told") == ()

    run_virtual(story())


def test_an_outbox_row_that_cannot_be_read_is_left_and_the_others_go() -> None:
    async def story() -> None:
        world = World()
        await world.store.write([Write(kind="outbox-told", id="0", value=b"\xc1", expect=0)])
        async with world.running(world.service()):
            assert [stored.id for stored in await world.store.load("outbox-told")] == ["0"]

    run_virtual(story())
