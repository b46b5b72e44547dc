"""The generic shell, second by second on virtual time: what is done, in which order, and what survives what."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from msgspec import Struct

from colo_common.events.effects import Asked, Conflict, Effect, Publish, Record, Reply, Wake, Write
from colo_common.events.job import JobSubmitted, QueueChanged, ReplicasWithdrawn
from colo_common.events.node import LeaseRenewed
from colo_common.events.placement import PlacementReleased
from colo_common.events.registry import subject_of
from colo_common.events.requests import CancelJob, GetJob, JobAccepted, Refusal
from colo_common.events.service import DeadLettered
from colo_common.events.wire import decode_reply, encode, encode_request
from colo_common.model.invalid import InvariantBroken
from colo_common.model.reasons import Reason
from colo_common.ports import Outgoing, Unavailable
from colo_common.runtime.ask import ask
from colo_common.runtime.core import Hearing
from colo_common.runtime.stamp import outgoing_from_row
from tests.shell.told import START_MS, ToldCore, World, refuse, settled
from tests.support.vloop import run_virtual

WITHDRAWN = Hearing(type=ReplicasWithdrawn)
LEASES = Hearing(type=LeaseRenewed)


class Local(Struct, frozen=True):
    text: str = ""


class Own(Struct, frozen=True):
    text: str = ""


def withdrawn(replica: str = "j/t/0") -> ReplicasWithdrawn:
    return ReplicasWithdrawn(attempts=((replica, 1),), reason=Reason.CANCELLED)


def message(fact: ReplicasWithdrawn | LeaseRenewed, durable: bool = True) -> Outgoing:
    return Outgoing(subject=subject_of(fact), data=encode(fact), durable=durable)


def changed(queue: str = "q") -> Publish:
    return Publish(fact=QueueChanged(queue=queue, waiting=0, running=0, capacity=1))


def row(id_: str, expect: int = 0, value: bytes | None = b"v") -> Record:
    return Record(writes=(Write(kind="job", id=id_, value=value, expect=expect),))


# ---------------------------------------------------------------- order


def test_a_message_is_recorded_then_published_then_acknowledged() -> None:
    async def story() -> None:
        world = World(ToldCore(lambda event: [changed(), row("a")] if isinstance(event, ReplicasWithdrawn) else []))
        async with world.running(world.service([WITHDRAWN])):
            await world.bus.say(message(withdrawn()))
            await settled()
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
        world = World(ToldCore(react))
        await world.bus.say(*(message(withdrawn(f"j/t/{index}")) for index in range(3)))
        async with world.running(world.service([WITHDRAWN])):
            assert world.lines == [
                "record job/j/t/0 outbox-told/row job/j/t/1 outbox-told/row job/j/t/2 outbox-told/row",
                "publish evt.queue.changed evt.queue.changed evt.queue.changed",
                "ack evt.replica.withdrawn",
                "ack evt.replica.withdrawn",
                "ack evt.replica.withdrawn",
                "record -outbox-told/row -outbox-told/row -outbox-told/row",
            ]

    run_virtual(story())


def test_a_request_is_answered_after_what_it_led_to_is_recorded_and_published() -> None:
    world_lines: list[str] = []

    def react(event: Struct) -> Sequence[Effect]:
        assert isinstance(event, Asked)
        return [Reply(request=event.request, body=JobAccepted(job="a", state="s", version=1)), changed(), row("a")]

    async def story() -> None:
        world = World(ToldCore(react))
        async with world.running(world.service(answers=[CancelJob])):
            reply = await ask(world.bus, CancelJob(job="a"), traceparent="tp")
            world_lines.extend(world.lines)
            assert reply == JobAccepted(job="a", state="s", version=1)
            asked = world.core.handled[0]
            assert isinstance(asked, Asked)
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
        world = World(ToldCore(react))

        async def perform(effect: Effect) -> Sequence[Struct]:
            assert isinstance(effect, Own)
            world.lines.append(f"perform {effect.text}")
            return [Local("done")]

        async with world.running(world.service([WITHDRAWN], perform=perform)):
            await world.bus.say(message(withdrawn()))
            await settled()
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
            Publish(fact=PlacementReleased(node="n1", attempts=()), id="id-1", traceparent=traceparent),
            changed(),
        ]
        world = World(ToldCore(lambda _event: effects))
        service = world.service()
        async with world.running(service):
            await asyncio.sleep(2)
            await service.inject(Local())
            await settled()
            first, second = world.bus.sent
            (released,) = world.facts(PlacementReleased)
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
        core = ToldCore()

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
    class Stuck(ToldCore):
        def deadline_ms(self) -> int | None:
            return START_MS - 1

    async def story() -> None:
        world = World(Stuck())
        with pytest.raises(InvariantBroken, match="deadline"):
            await world.service().run(world.stop)

    run_virtual(story())


def test_the_core_is_checked_now_and_then() -> None:
    async def story() -> None:
        world = World()
        service = world.service()
        async with world.running(service):
            for _ in range(61):
                await asyncio.sleep(1)
                await service.inject(Local())
        assert 5 <= world.core.checked <= 8

    run_virtual(story())


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
            (letter,) = world.facts(DeadLettered)
            assert letter.service == "told"
            assert letter.subject == "colo.v1.evt.replica.withdrawn"
            assert letter.reason.startswith("colo.v1.evt.replica.withdrawn $")
            assert letter.size_bytes == len(data)
            assert world.core.handled == [withdrawn()]
            assert world.lines == [
                "publish evt.dead-letter.told",
                "ack evt.replica.withdrawn",
                "term evt.replica.withdrawn",
            ]

    run_virtual(story())


def test_what_the_core_refuses_is_dead_lettered_with_field_and_rule() -> None:
    async def story() -> None:
        world = World(ToldCore(lambda event: refuse("attempts", "must be known")))
        async with world.running(world.service([WITHDRAWN])):
            await world.bus.say(message(withdrawn()))
            await settled()
            (letter,) = world.facts(DeadLettered)
            assert letter.reason == "attempts: must be known (got 'x')"
            assert world.lines == ["publish evt.dead-letter.told", "term evt.replica.withdrawn"]

    run_virtual(story())


def test_a_message_that_came_too_often_is_dead_lettered_unhandled() -> None:
    async def story() -> None:
        world = World()
        await world.bus.say(message(withdrawn()))
        source_taken = asyncio.Event()

        async def drop(_delivery: object) -> None:
            source_taken.set()

        from colo_common.runtime.core import source_of

        source = source_of("told", WITHDRAWN)
        listener = asyncio.ensure_future(world.bus.listen(source, drop))  # type: ignore[arg-type]
        await asyncio.sleep(source.ack_wait_s * (source.max_deliver - 1) - 1)
        listener.cancel()
        async with world.running(world.service([WITHDRAWN])):
            await asyncio.sleep(source.ack_wait_s)
            assert world.core.handled == []
            (letter,) = world.facts(DeadLettered)
            assert "too often" in letter.reason

    run_virtual(story())


def test_a_request_that_breaks_a_rule_is_refused_with_field_and_rule() -> None:
    async def story() -> None:
        world = World(ToldCore(lambda event: refuse("job", "must be known")))
        async with world.running(world.service(answers=[CancelJob, GetJob])):
            assert await ask(world.bus, CancelJob(job="a")) == Refusal(
                code=400, field="job", rule="must be known", got="'x'"
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
        world = World(ToldCore(react))
        await world.bus.say(message(withdrawn()))
        with pytest.raises(InvariantBroken, match="two places"):
            await world.service([WITHDRAWN]).run(world.stop)
        assert world.lines == []

    run_virtual(story())


def test_an_effect_that_nobody_performs_ends_the_run() -> None:
    async def story() -> None:
        world = World(ToldCore(lambda event: [Own()]))
        await world.bus.say(message(withdrawn()))
        with pytest.raises(InvariantBroken, match="performs"):
            await world.service([WITHDRAWN]).run(world.stop)

    run_virtual(story())


# ---------------------------------------------------------------- conflicts


def test_a_refused_record_comes_back_as_conflict_and_what_it_would_have_said_is_not_said() -> None:
    def react(event: Struct) -> Sequence[Effect]:
        match event:
            case ReplicasWithdrawn(attempts=((replica, _),)):
                return [row(replica), changed(replica)]
            case Conflict():
                return [row(event.id, expect=event.found), changed(f"again {event.id}")]
        return []

    async def story() -> None:
        world = World(ToldCore(react))
        await world.store.write([Write(kind="job", id="two", value=b"other", expect=0)])
        world.lines.clear()
        await world.bus.say(*(message(withdrawn(name)) for name in ("one", "two", "three")))
        async with world.running(world.service([WITHDRAWN])):
            assert Conflict(kind="job", id="two", expected=0, found=1) in world.core.handled
            assert [fact.queue for fact in world.facts(QueueChanged)] == ["one", "three", "again two"]
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


def test_a_request_that_a_conflict_left_unanswered_is_refused_at_once() -> None:
    def react(event: Struct) -> Sequence[Effect]:
        if isinstance(event, Asked):
            return [row("a", expect=7), Reply(request=event.request, body=JobAccepted(job="a", state="s", version=1))]
        return []

    async def story() -> None:
        world = World(ToldCore(react))
        async with world.running(world.service(answers=[CancelJob])):
            reply = await ask(world.bus, CancelJob(job="a"))
            assert isinstance(reply, Refusal)
            assert reply.code == 409

    run_virtual(story())


# ---------------------------------------------------------------- servers away


def test_a_store_that_is_away_is_waited_for_and_nothing_is_lost() -> None:
    def react(event: Struct) -> Sequence[Effect]:
        return [row(event.attempts[0][0]), changed()] if isinstance(event, ReplicasWithdrawn) else []

    async def story() -> None:
        world = World(ToldCore(react))
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
        world = World(ToldCore(lambda event: [row("a"), changed()] if isinstance(event, ReplicasWithdrawn) else []))
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
        world = World(ToldCore(lambda event: [Own(), changed()] if isinstance(event, Local) else []))

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
        world = World(ToldCore(lambda _event: [lease]))
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
        world = World(ToldCore(lambda _event: [changed(), lease]))
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
        said = QueueChanged(queue="q", waiting=0, running=0, capacity=1)
        return [Publish(fact=said, id="told:q:1")] if isinstance(event, ReplicasWithdrawn) else []

    async def story() -> None:
        world = World(ToldCore(react))
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
        world = World(ToldCore(react))
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
        world = World(ToldCore(lambda event: [row("a"), changed()] if isinstance(event, Local) else []))
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


# ---------------------------------------------------------------- the end


def test_draining_finishes_what_came_and_hands_nothing_back() -> None:
    async def story() -> None:
        world = World(ToldCore(lambda event: [changed()] if isinstance(event, ReplicasWithdrawn) else []))
        service = world.service([WITHDRAWN], batch=1)
        async with world.running(service):
            await world.bus.say(*(message(withdrawn(f"j/t/{index}")) for index in range(5)))
        assert len(world.facts(QueueChanged)) == 5
        assert world.lines.count("ack evt.replica.withdrawn") == 5

    run_virtual(story())


def test_the_last_events_are_handled_before_the_service_leaves() -> None:
    async def story() -> None:
        world = World(ToldCore(lambda event: [changed(event.text)] if isinstance(event, Local) else []))

        async def leave() -> Sequence[Struct]:
            return [Local("bye")]

        async with world.running(world.service(leave=leave)):
            pass
        assert [fact.queue for fact in world.facts(QueueChanged)] == ["bye"]

    run_virtual(story())


@pytest.mark.parametrize("away", ["bus", "store"])
def test_a_service_leaves_within_ten_seconds_although_a_server_is_away(away: str) -> None:
    async def story() -> None:
        world = World(ToldCore(lambda event: [row("a"), changed()] if isinstance(event, ReplicasWithdrawn) else []))
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


def test_a_service_leaves_within_ten_seconds_although_an_effect_never_ends() -> None:
    async def story() -> None:
        async def perform(effect: Effect) -> Sequence[Struct]:
            await asyncio.get_running_loop().create_future()
            return []

        world = World(ToldCore(lambda event: [Own()]))
        async with world.running(world.service([WITHDRAWN], perform=perform)):
            await world.bus.say(message(withdrawn()))
            await settled()
            before_s = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - before_s < 10
        assert world.lines == []

    run_virtual(story())


def test_requests_that_come_while_it_leaves_are_told_to_ask_again() -> None:
    async def story() -> None:
        world = World(ToldCore())
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

        world = World(ToldCore(lambda event: [Own()] if isinstance(event, ReplicasWithdrawn) else []))
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


def test_a_request_that_the_core_never_answers_is_given_up() -> None:
    async def story() -> None:
        world = World(ToldCore())
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
        async with world.running(world.service([Hearing(type=JobSubmitted)])):
            await world.bus.say(message(withdrawn()))
            await settled()
            assert world.core.handled == []

    run_virtual(story())
