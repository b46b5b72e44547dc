"""The generic shell on virtual time: how it leaves, and what it does when there is too much to do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from msgspec import Struct
from structlog.testing import capture_logs

from colo_common.events.effects import Effect, Reply, RequestReceived, Write
from colo_common.events.job import JobSubmitted, QueueChanged, ReplicasWithdrawn
from colo_common.events.node import LeaseRenewed
from colo_common.events.requests import CancelJob, JobAccepted, Refusal
from colo_common.events.wire import decode_reply, encode_request
from colo_common.ports import Outgoing, Unavailable
from colo_common.runtime.ask import ask
from colo_common.runtime.core import Subscription
from tests.shell.scripted_core import (
    LEASES,
    WITHDRAWN,
    Local,
    Own,
    RecordingBus,
    RecordingStore,
    ScriptedCore,
    World,
    changed,
    message,
    row,
    settled,
    withdrawn,
)
from tests.support.vloop import run_virtual


def test_draining_finishes_what_came_and_hands_nothing_back() -> None:
    async def story() -> None:
        world = World(ScriptedCore(lambda event: [changed()] if isinstance(event, ReplicasWithdrawn) else []))
        service = world.service([WITHDRAWN], batch=1)
        async with world.running(service):
            await world.bus.say(*(message(withdrawn(f"j/t/{index}")) for index in range(5)))
        assert len(world.facts(QueueChanged)) == 5
        assert world.lines.count("ack evt.replica.withdrawn") == 5

    run_virtual(story())


def test_the_last_events_are_handled_before_the_service_leaves() -> None:
    async def story() -> None:
        world = World(ScriptedCore(lambda event: [changed(event.text)] if isinstance(event, Local) else []))

        async def leave() -> Sequence[Struct]:
            return [Local("bye")]

        async with world.running(world.service(leave=leave)):
            pass
        assert [fact.queue for fact in world.facts(QueueChanged)] == ["bye"]

    run_virtual(story())


@pytest.mark.parametrize("away", [True, False])
def test_a_service_that_is_stopped_before_it_has_begun_leaves_all_the_same(away: bool) -> None:
    async def story() -> None:
        world = World(ScriptedCore())
        loading, left = asyncio.Event(), []

        async def load() -> Sequence[Struct]:
            loading.set()
            await world.stop.wait()
            if away:
                raise Unavailable("away")
            return []

        async def leave() -> Sequence[Struct]:
            await asyncio.sleep(5)
            left.append(True)
            return [Local("bye")]

        service = world.service([WITHDRAWN], load=load, leave=leave)
        running = asyncio.create_task(service.run(world.stop))
        await loading.wait()
        world.stop.set()
        await running
        assert left == [True]
        assert world.facts(QueueChanged) == []

    run_virtual(story())


@pytest.mark.parametrize("away", ["bus", "store"])
def test_a_service_leaves_within_ten_seconds_although_a_server_is_away(away: str) -> None:
    async def story() -> None:
        world = World(ScriptedCore(lambda event: [row("a"), changed()] if isinstance(event, ReplicasWithdrawn) else []))
        service = world.service([WITHDRAWN])
        async with world.running(service):
            if away == "store":
                world.store.fault = Unavailable("away")
            await world.bus.say(message(withdrawn()))
            if away == "bus":
                await settled(1)
                world.bus.go_away()
            await asyncio.sleep(5)
            before_s = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - before_s < 10
        assert not [line for line in world.lines if line.startswith("ack")]

    run_virtual(story())


def test_an_agent_leaves_within_four_seconds_although_the_bus_is_away() -> None:
    async def story() -> None:
        world = World(ScriptedCore(lambda event: [changed()]))
        service = world.service([WITHDRAWN], never_waits=True)
        with capture_logs() as lines:
            async with world.running(service):
                world.bus.go_away()
                await service.inject(Local())
                await asyncio.sleep(5)
                before_s = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - before_s < 4
        assert [line["why"] for line in lines if line["event"] == "left-unfinished"] == ["the bus takes nothing"]

    run_virtual(story())


def test_a_service_leaves_within_ten_seconds_although_an_effect_never_ends() -> None:
    async def story() -> None:
        async def perform(effect: Effect) -> Sequence[Struct]:
            await asyncio.get_running_loop().create_future()
            return []

        world = World(ScriptedCore(lambda event: [Own()]))
        async with world.running(world.service([WITHDRAWN], perform=perform)):
            await world.bus.say(message(withdrawn()))
            await settled()
            before_s = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - before_s < 10
        assert world.lines == []

    run_virtual(story())


def test_a_defect_beside_the_core_ends_the_service_although_nothing_more_comes() -> None:
    async def story() -> None:
        gate = asyncio.Event()

        async def perform(effect: Effect) -> Sequence[Struct]:
            await gate.wait()
            return []

        class Broken(RecordingStore):
            async def write(self, writes: Sequence[Write]) -> None:
                if writes[0].value is None:
                    raise ValueError("a defect")
                await super().write(writes)

        world = World(
            ScriptedCore(lambda event: [row("a"), changed()] if isinstance(event, ReplicasWithdrawn) else [Own()])
        )
        world.store = Broken(world.lines)
        service = world.service([WITHDRAWN], perform=perform)
        running = asyncio.ensure_future(service.run(world.stop))
        await settled()
        await world.bus.say(message(withdrawn()))
        await settled()
        # The sender meets the defect while the core is in a turn.
        await service.inject(Local())
        await asyncio.sleep(5)
        assert not running.done()
        gate.set()
        with pytest.raises(ValueError, match="a defect"):
            async with asyncio.timeout(60):
                await running

    run_virtual(story())


def test_a_service_that_leaves_says_what_it_could_not_send_and_does_not_wait_for_it() -> None:
    async def story() -> None:
        class Broken(RecordingBus):
            async def publish(self, messages: Sequence[Outgoing]) -> None:
                raise ValueError("a defect")

        async def leave() -> Sequence[Struct]:
            return [Local("bye")]

        world = World(ScriptedCore(lambda event: [changed()]))
        world.bus = Broken(world.lines)
        with capture_logs() as lines:
            async with world.running(world.service(leave=leave)):
                before_s = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - before_s < 1
        assert [line["why"] for line in lines if line["event"] == "left-unfinished"] == ["sending has failed"]

    run_virtual(story())


def test_requests_that_come_while_it_leaves_are_told_to_ask_again() -> None:
    async def story() -> None:
        world = World(ScriptedCore())
        async with world.running(world.service(answers=[CancelJob])):
            waiting = asyncio.ensure_future(ask(world.bus, CancelJob(job="a"), 20))
            await settled()
            world.stop.set()
            with pytest.raises(Unavailable, match="leaves"):
                await waiting

    run_virtual(story())


def test_a_full_inbox_refuses_requests_and_holds_messages_back() -> None:
    async def story() -> None:
        gate = asyncio.Event()

        async def perform(effect: Effect) -> Sequence[Struct]:
            await gate.wait()
            return []

        world = World(ScriptedCore(lambda event: [Own()] if isinstance(event, ReplicasWithdrawn) else []))
        service = world.service([WITHDRAWN], answers=[CancelJob], perform=perform, inbox=3)
        async with world.running(service):
            await world.bus.say(*(message(withdrawn(f"j/t/{index}")) for index in range(20)))
            await settled()
            with pytest.raises(Unavailable, match="too much to do"):
                await ask(world.bus, CancelJob(job="a"))
            gate.set()
            await settled(200)
            assert len([event for event in world.core.handled if isinstance(event, ReplicasWithdrawn)]) == 20

    run_virtual(story())


def test_a_row_of_reports_refuses_no_request() -> None:
    async def story() -> None:
        gate = asyncio.Event()

        async def perform(effect: Effect) -> Sequence[Struct]:
            await gate.wait()
            return []

        def react(event: Struct) -> Sequence[Effect]:
            match event:
                case Local():
                    return [Own()]
                case RequestReceived(request=request):
                    return [Reply(request=request, body=JobAccepted(job="a", state="s", version=1))]
                case _:
                    return []

        world = World(ScriptedCore(react))
        service = world.service(
            [Subscription(type=ReplicasWithdrawn, may_wait_ms=50)], answers=[CancelJob], perform=perform, inbox=8
        )
        async with world.running(service):
            await service.inject(Local())
            await world.bus.say(*(message(withdrawn(f"j/t/{index}")) for index in range(20)))
            await settled()
            asking = asyncio.ensure_future(ask(world.bus, CancelJob(job="a")))
            await settled()
            gate.set()
            assert isinstance(await asking, JobAccepted)
            await asyncio.sleep(1)
            kinds = [type(event).__name__ for event in world.core.handled]
            assert kinds == ["Local", "RequestReceived"] + 20 * ["ReplicasWithdrawn"]

    run_virtual(story())


def test_a_request_that_the_core_never_answers_is_given_up() -> None:
    async def story() -> None:
        world = World(ScriptedCore())
        async with world.running(world.service(answers=[CancelJob])):
            raw = await world.bus.ask("colo.v1.req.jobs.cancel", encode_request(CancelJob(job="a")), 60)
            refusal = decode_reply(CancelJob, raw)
            assert isinstance(refusal, Refusal)
            assert refusal.code == 503

    run_virtual(story())


def test_live_messages_are_handled_and_need_no_acknowledgement() -> None:
    async def story() -> None:
        world = World()
        async with world.running(world.service([LEASES])):
            await world.bus.say(
                message(LeaseRenewed(node="n1", sample_seq=3, batch_cpu_mcpu=0, lease_ms=1), durable=False)
            )
            await settled()
            assert [event.sample_seq for event in world.core.handled if isinstance(event, LeaseRenewed)] == [3]

    run_virtual(story())


def test_a_job_submitted_elsewhere_is_not_heard() -> None:
    async def story() -> None:
        world = World()
        async with world.running(world.service([Subscription(type=JobSubmitted)])):
            await world.bus.say(message(withdrawn()))
            await settled()
            assert world.core.handled == []

    run_virtual(story())
