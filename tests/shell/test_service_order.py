"""The generic shell on virtual time: what is done with what a core says, in which order, and when it is woken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest
from msgspec import Struct

from colo_common.events.effects import Effect, Publish, Reply, RequestReceived, Wake
from colo_common.events.job import QueueChanged, ReplicasWithdrawn
from colo_common.events.placement import PlacementsReleased
from colo_common.events.requests import CancelJob, JobAccepted
from colo_common.model.invalid import InvariantBroken
from colo_common.runtime.ask import ask
from colo_common.runtime.core import Subscription
from tests.shell.scripted_core import (
    START_MS,
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
from tests.support.vloop import Stopwatch, run_virtual

# ---------------------------------------------------------------- order


def test_a_message_is_recorded_then_published_then_acknowledged() -> None:
    async def story() -> None:
        world = World(ScriptedCore(lambda event: [changed(), row("a")] if isinstance(event, ReplicasWithdrawn) else []))
        async with world.running(world.service([WITHDRAWN])):
            await world.bus.say(message(withdrawn()))
            await asyncio.sleep(1)
            assert world.lines == [
                "record job/a outbox-told/row",
                "publish evt.queue.changed",
                "ack evt.replica.withdrawn",
                "record -outbox-told/row",
            ]

    run_virtual(story())


def test_a_batch_is_one_write_one_publish_and_then_all_acknowledgements() -> None:
    def react(event: Struct) -> Sequence[Effect]:
        return [row(event.attempts[0][0]), changed()] if isinstance(event, ReplicasWithdrawn) else []

    async def story() -> None:
        world = World(ScriptedCore(react))
        await world.bus.say(*(message(withdrawn(f"j/t/{index}")) for index in range(3)))
        async with world.running(world.service([WITHDRAWN])):
            await asyncio.sleep(1)
            assert world.lines == [
                "record job/j/t/0 outbox-told/row job/j/t/1 outbox-told/row job/j/t/2 outbox-told/row",
                "publish evt.queue.changed evt.queue.changed evt.queue.changed",
                "ack evt.replica.withdrawn",
                "ack evt.replica.withdrawn",
                "ack evt.replica.withdrawn",
                "record -outbox-told/row -outbox-told/row -outbox-told/row",
            ]

    run_virtual(story())


def test_what_was_published_leaves_the_outbox_together() -> None:
    def react(event: Struct) -> Sequence[Effect]:
        return [row(event.attempts[0][0]), changed()] if isinstance(event, ReplicasWithdrawn) else []

    async def story() -> None:
        world = World(ScriptedCore(react))
        async with world.running(world.service([WITHDRAWN])):
            for index in range(3):
                await world.bus.say(message(withdrawn(f"j/t/{index}")))
                await settled()
            assert len(world.facts(QueueChanged)) == 3
            assert len(await world.store.load("outbox-told")) == 3
            await asyncio.sleep(1)
            assert await world.store.load("outbox-told") == ()
            removals = [line for line in world.lines if "-outbox-told/row" in line.split()]
            assert removals == ["record -outbox-told/row -outbox-told/row -outbox-told/row"]

    run_virtual(story())


def test_a_service_that_stops_leaves_no_published_row_in_the_outbox() -> None:
    def react(event: Struct) -> Sequence[Effect]:
        return [row(event.attempts[0][0]), changed()] if isinstance(event, ReplicasWithdrawn) else []

    async def story() -> None:
        world = World(ScriptedCore(react))
        async with world.running(world.service([WITHDRAWN])):
            await world.bus.say(message(withdrawn()))
            await settled()
            assert len(await world.store.load("outbox-told")) == 1
        assert await world.store.load("outbox-told") == ()

    run_virtual(story())


def test_what_may_wait_is_handled_together_and_behind_what_may_not() -> None:
    async def story() -> None:
        world = World()
        service = world.service([Subscription(type=ReplicasWithdrawn, may_wait_ms=50)])
        async with world.running(service):
            for index in range(3):
                await world.bus.say(message(withdrawn(f"j/t/{index}")))
                await asyncio.sleep(0.01)
            assert world.core.handled == []
            await service.inject(Local())
            await settled()
            assert world.core.handled == [Local()]
            await asyncio.sleep(0.02)
            assert world.core.handled[1:] == [withdrawn(f"j/t/{index}") for index in range(3)]
            assert len({*world.core.times_ms[1:]}) == 1

    run_virtual(story())


def test_what_may_wait_is_handled_at_once_when_the_service_stops() -> None:
    async def story() -> None:
        world = World()
        async with world.running(world.service([Subscription(type=ReplicasWithdrawn, may_wait_ms=60_000)])):
            await world.bus.say(message(withdrawn()))
            await settled()
            assert world.core.handled == []
        assert world.core.handled == [withdrawn()]
        assert world.lines == ["ack evt.replica.withdrawn"]

    run_virtual(story())


def test_nothing_waits_so_long_that_it_comes_again_however_slow_the_clock() -> None:
    async def story() -> None:
        world = World()
        async with world.running(world.service([Subscription(type=ReplicasWithdrawn, may_wait_ms=60_000)])):
            await world.bus.say(message(withdrawn()))
            await asyncio.sleep(2)
            assert world.lines == ["ack evt.replica.withdrawn"]

    run_virtual(story())


def test_a_request_is_answered_after_what_it_led_to_is_recorded_and_published() -> None:
    world_lines: list[str] = []

    def react(event: Struct) -> Sequence[Effect]:
        assert isinstance(event, RequestReceived)
        return [Reply(request=event.request, body=JobAccepted(job="a", state="s", version=1)), changed(), row("a")]

    async def story() -> None:
        world = World(ScriptedCore(react))
        async with world.running(world.service(answers=[CancelJob])):
            reply = await ask(world.bus, CancelJob(job="a"), traceparent="tp")
            world_lines.extend(world.lines)
            assert reply == JobAccepted(job="a", state="s", version=1)
            asked = world.core.handled[0]
            assert isinstance(asked, RequestReceived)
            assert (asked.body, asked.traceparent) == (CancelJob(job="a"), "tp")
        assert world_lines[:2] == ["record job/a outbox-told/row", "publish evt.queue.changed"]

    run_virtual(story())


def test_own_effects_are_done_after_the_record_and_before_the_publish_and_their_results_are_handled() -> None:
    def react(event: Struct) -> Sequence[Effect]:
        match event:
            case ReplicasWithdrawn():
                return [changed("first"), Own("do"), row("a")]
            case Local():
                return [changed("second"), row("b")]
        return []

    async def story() -> None:
        world = World(ScriptedCore(react))

        async def perform(effect: Effect) -> Sequence[Struct]:
            assert isinstance(effect, Own)
            world.lines.append(f"perform {effect.text}")
            return [Local("done")]

        async with world.running(world.service([WITHDRAWN], perform=perform)):
            await world.bus.say(message(withdrawn()))
            await asyncio.sleep(1)
            assert world.lines == [
                "record job/a outbox-told/row",
                "perform do",
                "record job/b outbox-told/row",
                "publish evt.queue.changed evt.queue.changed",
                "ack evt.replica.withdrawn",
                "record -outbox-told/row -outbox-told/row",
            ]
            assert [fact.queue for fact in world.facts(QueueChanged)] == ["first", "second"]

    run_virtual(story())


def test_messages_carry_producer_boot_sequence_times_and_headers() -> None:
    traceparent = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"

    async def story() -> None:
        effects = [
            Publish(fact=PlacementsReleased(nodes=()), id="id-1", traceparent=traceparent),
            changed(),
        ]
        world = World(ScriptedCore(lambda _event: effects))
        service = world.service()
        async with world.running(service):
            await asyncio.sleep(2)
            await service.inject(Local())
            await settled()
            first, second = world.bus.sent
            (released,) = world.facts(PlacementsReleased)
            assert (released.producer, released.boot_id, released.seq) == ("told", "boot", 1)
            assert (released.at_ms, released.sent_us) == (START_MS + 2_000, (START_MS + 2_000) * 1_000)
            assert first.headers == {
                "ce-specversion": "1.0",
                "ce-id": "id-1",
                "ce-type": "colo.v1.evt.placement.released",
                "ce-source": "/colo/told",
                "ce-time": "2023-11-14T22:13:22.000000Z",
                "content-type": "application/json",
                "traceparent": traceparent,
            }
            assert (first.msg_id, second.msg_id) == ("id-1", "told:boot:2")

    run_virtual(story())


# ---------------------------------------------------------------- time


def test_wake_comes_at_the_deadline_and_not_before() -> None:
    async def story() -> None:
        world = World()
        world.core.deadline = START_MS + 90_000
        async with world.running(world.service()):
            await asyncio.sleep(89.9)
            assert world.core.handled == []
            await asyncio.sleep(0.2)
            assert world.core.handled == [Wake()]
            assert world.core.times_ms == [START_MS + 90_000]

    run_virtual(story())


def test_a_deadline_that_has_come_wakes_once_after_the_whole_batch() -> None:
    async def story() -> None:
        core = ScriptedCore()

        def react(event: Struct) -> Sequence[Effect]:
            if isinstance(event, ReplicasWithdrawn):
                core.deadline = START_MS
            return []

        core.react = react
        world = World(core)
        await world.bus.say(*(message(withdrawn(f"j/t/{index}")) for index in range(3)))
        async with world.running(world.service([WITHDRAWN])):
            assert [type(event).__name__ for event in core.handled] == ["ReplicasWithdrawn"] * 3 + ["Wake"]

    run_virtual(story())


def test_a_deadline_that_stays_in_the_past_after_wake_is_a_defect() -> None:
    class Stuck(ScriptedCore):
        def deadline_ms(self) -> int | None:
            return START_MS - 1

    async def story() -> None:
        world = World(Stuck())
        with pytest.raises(InvariantBroken, match="deadline"):
            await world.service().run(world.stop)

    run_virtual(story())


def test_the_core_is_checked_twice_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "perf_counter", Stopwatch())

    async def story() -> None:
        world = World()
        service = world.service()
        async with world.running(service):
            # Eighths of a second add up without rounding: the first turn is at 0.125 s and the last at 6.125 s.
            for _ in range(49):
                await asyncio.sleep(0.125)
                await service.inject(Local())
        assert world.core.checked == 13

    run_virtual(story())
