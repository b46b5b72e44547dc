"""The generic shell on virtual time: bad input, refused records, and who is told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from msgspec import Struct
from structlog.testing import capture_logs

from colo_common.events.effects import Conflict, Effect, Reply, RequestReceived, Write
from colo_common.events.job import QueueChanged, ReplicasWithdrawn
from colo_common.events.node import FreshnessChanged, LeaseRenewed
from colo_common.events.requests import CancelJob, GetJob, JobAccepted, Refusal
from colo_common.events.service import DeadLettered
from colo_common.events.wire import decode_reply
from colo_common.model.freshness import Freshness
from colo_common.model.invalid import InvariantBroken
from colo_common.ports import Outgoing
from colo_common.runtime.ask import ask
from colo_common.runtime.core import Subscription
from colo_common.runtime.metrics import Metrics
from tests.shell.scripted_core import (
    LEASES,
    WITHDRAWN,
    Own,
    ScriptedCore,
    World,
    changed,
    message,
    refuse,
    row,
    settled,
    withdrawn,
)
from tests.support.vloop import run_virtual

# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"attempts":7,"reason":"cancelled"}', b"\xff\xfe", b"[]", b'{"reason":"?"}']
)
def test_what_cannot_be_decoded_is_dead_lettered_and_the_next_message_is_handled(data: bytes) -> None:
    async def story() -> None:
        world = World()
        async with world.running(world.service([WITHDRAWN])):
            bad = Outgoing(subject="colo.v1.evt.replica.withdrawn", data=data, durable=True)
            await world.bus.say(bad, message(withdrawn()))
            await settled()
            (dead_letter,) = world.facts(DeadLettered)
            assert dead_letter.service == "told"
            assert dead_letter.subject == "colo.v1.evt.replica.withdrawn"
            assert dead_letter.reason.startswith("colo.v1.evt.replica.withdrawn $")
            assert dead_letter.size_bytes == len(data)
            assert world.core.handled == [withdrawn()]
            assert world.lines == [
                "publish evt.dead-letter.told",
                "ack evt.replica.withdrawn",
                "term evt.replica.withdrawn",
            ]

    run_virtual(story())


def test_what_the_core_refuses_is_dead_lettered_with_field_and_rule() -> None:
    async def story() -> None:
        world = World(ScriptedCore(lambda event: refuse("attempts", "must be known")))
        async with world.running(world.service([WITHDRAWN])):
            await world.bus.say(message(withdrawn()))
            await settled()
            (dead_letter,) = world.facts(DeadLettered)
            assert dead_letter.reason == 'attempts: must be known (got "x")'
            assert world.lines == ["publish evt.dead-letter.told", "term evt.replica.withdrawn"]

    run_virtual(story())


def test_a_message_that_ends_the_process_is_found_alone_and_its_neighbours_are_handled() -> None:
    def react(event: Struct) -> Sequence[Effect]:
        match event:
            case ReplicasWithdrawn(attempts=(("poison", _),)):
                raise InvariantBroken("two places for one replica", replica="poison")
            case ReplicasWithdrawn(attempts=((replica, _),)):
                return [changed(replica)]
        return []

    async def story() -> None:
        world = World(ScriptedCore(react))
        names = [*(f"before-{number}" for number in range(30)), "poison", *(f"after-{number}" for number in range(30))]
        await world.bus.say(*(message(withdrawn(name)) for name in names))
        for boot in range(3):
            service = world.service([WITHDRAWN], boot_id=f"boot-{boot}")
            # Delivered again when the wait for its acknowledgement is over.
            with pytest.raises(InvariantBroken, match="two places"):
                await asyncio.wait_for(service.run(world.stop), 100)
        async with world.running(world.service([WITHDRAWN], boot_id="last")):
            await asyncio.sleep(100)
            (dead_letter,) = world.facts(DeadLettered)
            assert dead_letter.reason.endswith("ended the process 3 times when it was handled")
            assert dead_letter.data == message(withdrawn("poison")).data
            assert (dead_letter.stream, dead_letter.stream_seq) == ("COLO_ASK", 31)
            assert {fact.queue for fact in world.facts(QueueChanged)} == set(names) - {"poison"}
        assert await world.store.load("running-told") == ()

    run_virtual(story())


def of_poison(event: Struct) -> Sequence[Effect]:
    if isinstance(event, LeaseRenewed | FreshnessChanged) and event.node == "poison":
        raise InvariantBroken("two places for one node", node=event.node)
    return []


async def crash(world: World, subscription: Subscription, boot: int) -> None:
    with pytest.raises(InvariantBroken, match="two places"):
        await asyncio.wait_for(world.service([subscription], boot_id=f"boot-{boot}").run(world.stop), 100)


def test_the_last_message_of_a_subject_that_ends_the_process_at_each_start_is_found_and_others_are_handled() -> None:
    async def story() -> None:
        world = World(ScriptedCore(of_poison))
        facts = [
            FreshnessChanged(node=node, freshness=Freshness.FRESH, previous=Freshness.WARMING, sample_seq=1, age_ms=0)
            for node in ("n1", "poison", "n2")
        ]
        await world.bus.say(*(message(fact) for fact in facts))
        replayed = Subscription(type=FreshnessChanged, durable=False, replay=True)
        for boot in range(3):
            await crash(world, replayed, boot)
        world.core.handled.clear()
        async with world.running(world.service([replayed])):
            (dead_letter,) = world.facts(DeadLettered)
            assert dead_letter.reason.endswith("ended the process 3 times when it was handled")
            assert (dead_letter.stream, dead_letter.stream_seq) == ("COLO_EVT", 2)
            assert world.core.handled == [facts[0], facts[2]]

    run_virtual(story())


def test_telemetry_of_a_node_that_ends_the_process_each_time_is_given_up_and_that_of_others_is_handled() -> None:
    async def story() -> None:
        world = World(ScriptedCore(of_poison))
        leases = [LeaseRenewed(node=node, sample_seq=1, batch_cpu_mcpu=1, lease_ms=1) for node in ("n1", "poison")]

        async def say() -> None:
            await settled()
            await world.bus.say(*(message(lease, durable=False) for lease in leases))

        for boot in range(3):
            saying = asyncio.create_task(say())
            await crash(world, LEASES, boot)
            await saying
        world.core.handled.clear()
        metrics = Metrics()
        # Without a store of its own.
        async with world.running(world.service([LEASES], store=None, trials=world.store, metrics=metrics)):
            await say()
            await settled()
            assert world.core.handled == [leases[0]]
            assert b"colo_told_telemetry_malformed_total 1.0" in metrics.text()

    run_virtual(story())


def test_malformed_telemetry_is_counted_and_one_in_a_while_is_logged() -> None:
    async def story() -> None:
        world = World()
        metrics = Metrics()
        with capture_logs() as lines:
            async with world.running(world.service([LEASES], metrics=metrics)):
                for _ in range(100):
                    await world.bus.say(Outgoing(subject="colo.v1.tlm.node.n1.lease", data=b"\xc1", durable=False))
                    await asyncio.sleep(1)
        assert world.facts(DeadLettered) == []
        assert b"colo_told_telemetry_malformed_total 100.0" in metrics.text()
        assert [line["since"] for line in lines if line["event"] == "telemetry-malformed"] == [1, 60]

    run_virtual(story())


def test_a_request_that_breaks_a_rule_is_refused_with_field_and_rule() -> None:
    async def story() -> None:
        world = World(ScriptedCore(lambda event: refuse("job", "must be known")))
        async with world.running(world.service(answers=[CancelJob, GetJob])):
            assert await ask(world.bus, CancelJob(job="a")) == Refusal(
                code=400, field="job", rule="must be known", got='"x"'
            )
            raw = await world.bus.ask("colo.v1.req.jobs.get", b'{"job": 7}', 5)
            refusal = decode_reply(GetJob, raw)
            assert isinstance(refusal, Refusal)
            assert (refusal.code, refusal.field) == (400, "colo.v1.req.jobs.get $.job")
            assert len(world.core.handled) == 1

    run_virtual(story())


def test_a_defect_of_the_core_ends_the_run() -> None:
    def react(event: Struct) -> Sequence[Effect]:
        raise InvariantBroken("two places for one replica", replica="j/t/0")

    async def story() -> None:
        world = World(ScriptedCore(react))
        await world.bus.say(message(withdrawn()))
        with pytest.raises(InvariantBroken, match="two places"):
            await world.service([WITHDRAWN]).run(world.stop)
        assert world.lines == []

    run_virtual(story())


def test_an_effect_that_nobody_performs_ends_the_run() -> None:
    async def story() -> None:
        world = World(ScriptedCore(lambda event: [Own()]))
        await world.bus.say(message(withdrawn()))
        with pytest.raises(InvariantBroken, match="performs"):
            await world.service([WITHDRAWN]).run(world.stop)

    run_virtual(story())


# ---------------------------------------------------------------- conflicts


def test_after_a_refused_record_its_input_is_handled_again_before_it_is_acknowledged() -> None:
    """A core that knows the versions of its rows, as every core does: handling a message twice changes nothing twice."""
    versions: dict[str, int] = {}
    written: set[str] = set()

    def react(event: Struct) -> Sequence[Effect]:
        match event:
            case ReplicasWithdrawn(attempts=((replica, _),)) if replica not in written:
                written.add(replica)
                return [row(replica, expect=versions.get(replica, 0)), changed(replica)]
            case Conflict():
                versions[event.id] = event.found
                written.discard(event.id)
        return []

    async def story() -> None:
        world = World(ScriptedCore(react))
        await world.store.write([Write(kind="job", id="two", value=b"other", expect=0)])
        world.lines.clear()
        await world.bus.say(*(message(withdrawn(name)) for name in ("one", "two", "three")))
        async with world.running(world.service([WITHDRAWN])):
            await asyncio.sleep(1)
            assert Conflict(kind="job", id="two", expected=0, found=1) in world.core.handled
            assert [fact.queue for fact in world.facts(QueueChanged)] == ["one", "three", "two"]
            assert world.lines == [
                "record job/one outbox-told/row",
                "record job/three outbox-told/row",
                "record job/two outbox-told/row",
                "publish evt.queue.changed evt.queue.changed evt.queue.changed",
                *["ack evt.replica.withdrawn"] * 3,
                "record -outbox-told/row -outbox-told/row -outbox-told/row",
            ]
        assert await world.store.load("outbox-told") == ()

    run_virtual(story())


def test_a_message_that_meets_conflicts_only_is_handed_back_and_comes_again() -> None:
    def react(event: Struct) -> Sequence[Effect]:
        return [row("two", expect=7), changed()] if isinstance(event, ReplicasWithdrawn) else []

    async def story() -> None:
        world = World(ScriptedCore(react))
        await world.store.write([Write(kind="job", id="two", value=b"other", expect=8)])
        world.lines.clear()
        await world.bus.say(message(withdrawn()))
        async with world.running(world.service([WITHDRAWN])):
            await asyncio.sleep(1.5)
            assert world.lines == ["nak evt.replica.withdrawn"] * 2
            world.core.react = lambda _event: ()
            await asyncio.sleep(1.5)
            assert world.lines[2:] == ["ack evt.replica.withdrawn"]
            assert world.facts(QueueChanged) == []

    run_virtual(story())


def test_a_request_that_a_conflict_left_unanswered_is_refused_at_once() -> None:
    def react(event: Struct) -> Sequence[Effect]:
        if isinstance(event, RequestReceived):
            return [row("a", expect=7), Reply(request=event.request, body=JobAccepted(job="a", state="s", version=1))]
        return []

    async def story() -> None:
        world = World(ScriptedCore(react))
        await world.store.write([Write(kind="job", id="a", value=b"other", expect=8)])
        async with world.running(world.service(answers=[CancelJob])):
            reply = await ask(world.bus, CancelJob(job="a"))
            assert isinstance(reply, Refusal)
            assert reply.code == 409

    run_virtual(story())
