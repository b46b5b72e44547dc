"""The generic shell on virtual time: a bus that answers and stores nothing, as JetStream at a limit. Nothing accepted is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from colo_common.events.effects import Effect, Reply, RequestReceived
from colo_common.events.job import QueueChanged, ReplicasWithdrawn
from colo_common.events.requests import CancelJob, GetJob, JobAccepted, Refusal
from colo_common.events.service import DeadLettered
from colo_common.events.wire import decode_reply, encode_request
from colo_common.ports import Outgoing, PoisonMessage, Unavailable
from tests.shell.scripted_core import WITHDRAWN, Local, ScriptedCore, World, changed, message, row, settled, withdrawn
from tests.support.vloop import run_virtual

_FULL = "publish colo.v1.evt.queue.changed: insufficient resources (10023)"


class FullWorld(World):
    """While `full` is set, durable messages are refused for now, as by a server that is at its limit; requests come through."""

    def __init__(self, core: ScriptedCore) -> None:
        super().__init__(core)
        self.full = ""
        self.poison = ""
        store = self.bus.publish

        async def publish(messages: Sequence[Outgoing]) -> None:
            if self.full and any(message.durable for message in messages):
                raise Unavailable(self.full)
            bad = [message for message in messages if self.poison and self.poison.encode() in message.data]
            good = [message for message in messages if message not in bad]
            if good:
                await store(good)
            if bad:
                error = PoisonMessage("message size exceeds maximum allowed (10054)")
                error.left = tuple(bad)
                raise error

        self.bus.publish = publish  # type: ignore[method-assign]


def react(event: Struct) -> Sequence[Effect]:
    match event:
        case Local(text=text):
            return [row(text), *[changed(f"{text}-{number}") for number in range(1_000)]]
        case ReplicasWithdrawn(attempts=((replica, _),)):
            return [row(replica), changed(replica)]
        case RequestReceived(request=request, body=CancelJob(job=job)):
            accepted = JobAccepted(job=job, state="s", version=1)
            return [row(job), changed(job), Reply(request=request, body=accepted)]
        case RequestReceived(request=request, body=GetJob(job=job)):
            return [Reply(request=request, body=Refusal(code=404, field="job", rule="must be known", got=job))]
    return []


async def ask_raw(world: World, body: CancelJob | GetJob) -> object:
    subject = "colo.v1.req.jobs.cancel" if isinstance(body, CancelJob) else "colo.v1.req.jobs.get"
    return decode_reply(type(body), await world.bus.ask(subject, encode_request(body), 5))


def test_a_full_bus_closes_the_door_and_questions_are_still_answered() -> None:
    async def story() -> None:
        world = FullWorld(ScriptedCore(react))
        service = world.service([WITHDRAWN], answers=[CancelJob, GetJob])
        async with world.running(service):
            world.full = _FULL
            await world.bus.say(message(withdrawn("a")))
            await asyncio.sleep(10)
            assert (await service.problems())["nats"] == _FULL
            refusal = await ask_raw(world, CancelJob(job="b"))
            assert refusal == Refusal(
                code=503, field="service", rule=f"takes nothing new now, ask again in a moment: {_FULL}"
            )
            answered = await ask_raw(world, GetJob(job="b"))
            assert isinstance(answered, Refusal)
            assert answered.code == 404
            assert "ack evt.replica.withdrawn" not in world.lines
            world.full = ""
            await asyncio.sleep(6)
            assert [fact.queue for fact in world.facts(QueueChanged)] == ["a"]
            assert isinstance(await ask_raw(world, CancelJob(job="b")), JobAccepted)
            assert set((await service.problems()).values()) == {""}
        assert await world.store.load("outbox-told") == ()

    run_virtual(story())


def test_at_the_limit_of_its_backlog_the_core_waits_and_every_message_is_published_when_the_limit_lifts() -> None:
    async def story() -> None:
        world = FullWorld(ScriptedCore(react))
        service = world.service(answers=[GetJob])
        async with world.running(service):
            world.full = _FULL
            for number in range(30):
                await service.inject(Local(f"{number:02d}"))
                await asyncio.sleep(1)
            handled = len(world.core.handled)
            assert 20 <= handled < 30, "the core went on for a while, and waits now"
            refusal = await ask_raw(world, GetJob(job="b"))
            assert isinstance(refusal, Refusal)
            assert refusal.code == 503
            await asyncio.sleep(3_600)
            assert len(world.core.handled) == handled
            world.full = ""
            await asyncio.sleep(10)
            wanted = [f"{number:02d}-{part}" for number in range(30) for part in range(1_000)]
            assert [fact.queue for fact in world.facts(QueueChanged)] == wanted
        assert await world.store.load("outbox-told") == ()

    run_virtual(story())


def test_a_core_that_never_waits_goes_on_and_the_oldest_of_its_messages_are_dropped() -> None:
    async def story() -> None:
        world = FullWorld(ScriptedCore(react))
        service = world.service(never_waits=True)
        async with world.running(service):
            world.full = _FULL
            for number in range(30):
                await service.inject(Local(f"{number:02d}"))
                await asyncio.sleep(1)
            assert len(world.core.handled) == 30
            world.full = ""
            await asyncio.sleep(10)
            queues = [fact.queue for fact in world.facts(QueueChanged)]
            assert queues[-1] == "29-999"
            assert 19_000 <= len(queues) <= 22_000

    run_virtual(story())


def test_a_poison_message_is_put_aside_alone_and_its_neighbours_are_published() -> None:
    async def story() -> None:
        world = FullWorld(ScriptedCore(react))
        world.poison = '"b"'
        service = world.service([WITHDRAWN])
        async with world.running(service):
            await world.bus.say(*(message(withdrawn(name)) for name in "abc"))
            await settled()
            assert [fact.queue for fact in world.facts(QueueChanged)] == ["a", "c"]
            (letter,) = world.facts(DeadLettered)
            assert (letter.subject, letter.stream) == ("colo.v1.evt.queue.changed", "")
            assert letter.reason == "message size exceeds maximum allowed (10054)"
            assert b'"b"' in letter.data
            assert set((await service.problems()).values()) == {""}

    run_virtual(story())
