"""A service that serves for one term: what becomes of its inputs and its messages when another instance holds its work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
import structlog
from msgspec import Struct, structs

from colo_common.adapters.leases_memory import MemoryLeases
from colo_common.adapters.store_memory import MemoryStore
from colo_common.events.effects import Effect, Publish, Write
from colo_common.events.eviction import EvictReplica
from colo_common.events.job import QueueChanged, ReplicasWithdrawn
from colo_common.events.wire import encode_reply
from colo_common.model.invalid import InvalidInput
from colo_common.model.partition import BusReach, Fence
from colo_common.model.reasons import Reason
from colo_common.ports import Backlog, Fenced, Outgoing, Unavailable
from colo_common.runtime.bus_watch import SURE_AFTER_S, BusWatch
from colo_common.runtime.lease_keeper import LEASE_TTL_MS, LeaseKeeper
from colo_common.runtime.service import Service
from colo_common.runtime.term import HeldStore, ServiceTerm
from colo_evictor.settings import EvictorSettings
from colo_jobs.settings import JobsSettings
from colo_overcommit.settings import OvercommitSettings
from colo_scheduler.settings import SchedulerSettings
from tests.shell.scripted_core import (
    START_MS,
    WITHDRAWN,
    ScriptedCore,
    World,
    changed,
    message,
    row,
    settled,
    withdrawn,
)
from tests.support.builders import a_status
from tests.support.vloop import VirtualClock, run_virtual

TTL_MS = 3_000
STATUS = a_status("told", boot_id="b")


def react(event: Struct) -> Sequence[Effect]:
    match event:
        case ReplicasWithdrawn(attempts=((replica, _),)):
            return [row(replica), changed(replica)]
    return []


class Instance:
    """One of several on the same bus and store. Its leases are renewed by hand: it stands still in between."""

    def __init__(self, world: World, leases: MemoryLeases, name: str) -> None:
        self.keeper = LeaseKeeper(leases, name, 1, TTL_MS, stays_when_away=True)
        self._world = world
        self._name = name
        self.core = ScriptedCore(react)

    async def takes_over(self) -> bool:
        """Whether it holds the work now, so that its term begins."""
        await self.keeper.renew()
        self.keeper.term = self.keeper.held
        return bool(self.keeper.held)

    def service(self) -> Service:
        return self._world.service(
            [WITHDRAWN],
            core=self.core,
            boot_id=self._name,
            store=HeldStore(self._world.store, "told", self.keeper),
            leases=self.keeper,
            ends_with_lease=True,
        )


class Two:
    """A world with two instances of one service."""

    def __init__(self) -> None:
        self.world = World()
        loop = asyncio.get_running_loop()
        self.leases = MemoryLeases(lambda: round(loop.time() * 1_000))
        self.world.store.leases["told"] = self.leases
        self.one, self.other = (Instance(self.world, self.leases, name) for name in ("one", "other"))


def test_one_that_stood_still_hands_its_inputs_back_and_the_other_handles_each_once() -> None:
    async def story() -> None:
        two = Two()
        assert await two.one.takes_over()
        assert not await two.other.takes_over()
        running = asyncio.create_task(two.one.service().run(two.world.stop))
        await settled()
        await asyncio.sleep(2 * TTL_MS / 1_000)
        # Nobody asked for the first one's lease in time.
        assert await two.other.takes_over()
        await two.world.bus.say(*(message(withdrawn(name)) for name in ("a", "b")))
        with pytest.raises(Fenced):
            await running
        assert two.one.core.handled == []
        assert two.world.lines == ["nak evt.replica.withdrawn"] * 2
        async with two.world.running(two.other.service()):
            await asyncio.sleep(1)
        assert [fact.queue for fact in two.world.facts(QueueChanged)] == ["a", "b"]
        assert await two.world.store.load("outbox-told") == ()

    run_virtual(story())


def test_a_write_of_one_that_believes_to_hold_is_refused_and_nothing_of_it_is_published() -> None:
    async def story() -> None:
        two = Two()
        assert await two.one.takes_over()
        running = asyncio.create_task(two.one.service().run(two.world.stop))
        await settled()
        # The lease is gone in the store, and the first one has not been told: as between its last look and its write.
        await two.leases.renew("one", 0, 1)
        assert await two.other.takes_over()
        assert two.one.keeper.is_current
        await two.world.bus.say(message(withdrawn("a")))
        with pytest.raises(Fenced, match="partition 0 is held by another instance"):
            await running
        assert [type(event) for event in two.one.core.handled] == [ReplicasWithdrawn]
        assert two.world.lines == ["nak evt.replica.withdrawn"]
        assert await two.world.store.load("job") == ()
        async with two.world.running(two.other.service()):
            await asyncio.sleep(1)
        assert [fact.queue for fact in two.world.facts(QueueChanged)] == ["a"]

    run_virtual(story())


def test_one_that_stood_still_unnoticed_goes_on_under_its_fence() -> None:
    async def story() -> None:
        two = Two()
        assert await two.one.takes_over()
        held = two.one.keeper.held
        async with two.world.running(two.one.service()):
            await asyncio.sleep(10 * TTL_MS / 1_000)
            await two.world.bus.say(message(withdrawn("a")))
            await asyncio.sleep(1)
            assert [fact.queue for fact in two.world.facts(QueueChanged)] == ["a"]
        assert two.one.keeper.held == held

    run_virtual(story())


def test_what_a_killed_one_recorded_is_published_by_its_successor() -> None:
    async def story() -> None:
        two = Two()
        assert await two.one.takes_over()

        async def takes_nothing(messages: Sequence[Outgoing]) -> None:
            raise Unavailable("the bus takes nothing")

        two.world.bus.publish = takes_nothing  # type: ignore[method-assign]
        running = asyncio.create_task(two.one.service().run(two.world.stop))
        await settled()
        await two.world.bus.say(message(withdrawn("a")))
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert len(await two.world.store.load("outbox-told")) == 1
        del two.world.bus.publish
        await asyncio.sleep(2 * TTL_MS / 1_000)
        assert await two.other.takes_over()
        async with two.world.running(two.other.service()):
            await asyncio.sleep(1)
        assert "a" in [fact.queue for fact in two.world.facts(QueueChanged)]

    run_virtual(story())


class Reach:
    """Leases that may be out of reach, and answers of other instances: the Leases and the Survey of one that is cut off."""

    def __init__(self, leases: MemoryLeases) -> None:
        self._leases = leases
        self.is_away = False
        self.others_fence = 0

    async def renew(
        self,
        owner: str,
        ttl_ms: int,
        partitions: int,
        held: Sequence[Fence] = (),
        reach: BusReach = BusReach.UNSURE,
    ) -> tuple[Fence, ...]:
        if self.is_away:
            raise Unavailable("the store is away")
        return await self._leases.renew(owner, ttl_ms, partitions, held, reach)

    async def ask_all(self, subject: str, data: bytes, timeout_s: float) -> Sequence[bytes]:
        return [encode_reply(structs.replace(STATUS, fence=self.others_fence))]

    async def backlogs(self, streams: Sequence[str], timeout_s: float) -> Sequence[Backlog]:
        return ()


def test_one_that_cannot_reach_the_store_serves_on_until_another_one_says_that_it_took_over() -> None:
    async def story() -> None:
        two = Two()
        reach = Reach(two.leases)
        keeper = LeaseKeeper(reach, "one", 1, TTL_MS, stays_when_away=True)
        term = ServiceTerm("told", keeper, two.world.bus, reach, VirtualClock(START_MS))
        assert await term.begin(two.world.stop)
        assert term.lost is not None
        reach.is_away = True
        await asyncio.sleep(60)
        assert not term.lost.done()
        assert keeper.is_current
        reach.others_fence = keeper.term[0][1] + 1
        await asyncio.sleep(2)
        with pytest.raises(Fenced):
            term.lost.result()
        await term.end()

    run_virtual(story())


def test_one_that_stands_by_is_ready_while_another_one_serves_and_takes_over_when_that_leaves() -> None:
    async def story() -> None:
        two = Two()
        reach = Reach(two.leases)
        term = ServiceTerm("told", two.other.keeper, two.world.bus, reach, VirtualClock(START_MS))
        assert await two.one.takes_over()
        beginning = asyncio.create_task(term.begin(two.world.stop))
        await asyncio.sleep(2)
        assert term.problems() == {"leases": "nobody holds the work of this service yet"}
        reach.others_fence = two.one.keeper.term[0][1]
        await asyncio.sleep(2)
        assert term.problems() == {"leases": ""}
        assert not beginning.done()
        await two.one.keeper.leave()
        await asyncio.sleep(TTL_MS / 3_000)
        assert beginning.done()
        assert two.other.keeper.held
        await term.end()

    run_virtual(story())


@pytest.mark.parametrize("killed_after_ms", range(0, 1_800, 300))
def test_whoever_stands_by_serves_within_seven_seconds_after_the_holder_was_killed(killed_after_ms: int) -> None:
    async def story() -> float:
        world, loop = World(), asyncio.get_running_loop()
        leases = MemoryLeases(VirtualClock(START_MS).now_ms)
        reaches = [Reach(leases), Reach(leases)]
        holder, standing_by = (
            ServiceTerm(
                "told",
                LeaseKeeper(reach, f"instance-{number}", 1, LEASE_TTL_MS, stays_when_away=True),
                world.bus,
                reach,
                VirtualClock(START_MS),
            )
            for number, reach in enumerate(reaches)
        )
        assert await holder.begin(world.stop)
        # The renewals of the two are not in step.
        await asyncio.sleep(0.7)
        beginning = asyncio.create_task(standing_by.begin(world.stop))
        await asyncio.sleep(60 + killed_after_ms / 1_000)
        assert not beginning.done()
        # A killed one renews nothing any more and gives nothing back.
        reaches[0].is_away = True
        killed_s = loop.time()
        assert await beginning
        moved_s = loop.time() - killed_s
        assert standing_by.leases.term[0][1] > holder.leases.term[0][1]
        for term in (holder, standing_by):
            await term.end()
        return moved_s

    assert run_virtual(story()) <= 7.0


class Watched:
    """Two instances with a connection to the bus each, which a test makes and breaks: 0 is none."""

    def __init__(self, world: World) -> None:
        reach = Reach(MemoryLeases(VirtualClock(START_MS).now_ms))
        self.connections = [1, 1]
        self.terms = [
            ServiceTerm(
                "told",
                LeaseKeeper(
                    reach, str(number), 1, LEASE_TTL_MS, stays_when_away=True, bus=BusWatch(self._connection(number))
                ),
                world.bus,
                reach,
                VirtualClock(START_MS),
            )
            for number in range(2)
        ]

    def _connection(self, number: int) -> Callable[[], int]:
        return lambda: self.connections[number]


def test_a_holder_that_reaches_the_store_and_not_the_bus_gives_its_work_to_one_that_reaches_both() -> None:
    async def story() -> float:
        world = World()
        two = Watched(world)
        holder, standing_by = two.terms
        assert await holder.begin(world.stop)
        assert holder.lost is not None
        beginning = asyncio.create_task(standing_by.begin(world.stop))
        await asyncio.sleep(60)
        assert not beginning.done()
        two.connections[0] = 0
        cut_s = asyncio.get_running_loop().time()
        assert await beginning
        moved_s = asyncio.get_running_loop().time() - cut_s
        with pytest.raises(Fenced):
            holder.lost.result()
        for term in two.terms:
            await term.end()
        return moved_s

    assert SURE_AFTER_S <= run_virtual(story()) <= SURE_AFTER_S + LEASE_TTL_MS / 1_000


@pytest.mark.parametrize("noticed_s", [-4.0, 0.0, 4.0])
@pytest.mark.parametrize("back_s", [-4.0, 0.0, 4.0])
def test_while_the_bus_itself_is_away_nobody_gives_way(noticed_s: float, back_s: float) -> None:
    """The one that stands by notices the outage, and its end, so much later than the holder."""

    async def story() -> None:
        world = World()
        two = Watched(world)
        holder, standing_by = two.terms
        assert await holder.begin(world.stop)
        assert holder.lost is not None
        beginning = asyncio.create_task(standing_by.begin(world.stop))
        loop = asyncio.get_running_loop()
        changes = [(60.0, 0, 0), (60.0 + noticed_s, 1, 0), (160.0, 0, 2), (160.0 + back_s, 1, 2)]
        for at_s, number, connection in sorted(changes):
            await asyncio.sleep(at_s - loop.time())
            two.connections[number] = connection
        await asyncio.sleep(60)
        assert not holder.lost.done()
        assert not beginning.done()
        world.stop.set()
        await beginning
        for term in two.terms:
            await term.end()

    run_virtual(story())


def test_one_that_was_never_connected_takes_nothing_from_one_that_is() -> None:
    watch = BusWatch(lambda: 0)
    assert watch.reach(0.0) is BusReach.DEAF


def test_one_that_stood_still_while_the_number_of_partitions_changed_learns_that_it_holds_nothing() -> None:
    async def story() -> None:
        clock = VirtualClock(START_MS)
        leases = MemoryLeases(clock.now_ms)
        old, new = (LeaseKeeper(leases, str(count), count, TTL_MS, stays_when_away=True) for count in (1, 4))
        await old.renew()
        old.term = old.held
        await new.renew()
        assert (new.held, new.waits_for_others, new.problem) == ((), True, "")
        await asyncio.sleep(TTL_MS / 1_000 + 1)
        await new.renew()
        assert len(new.held) == 4
        assert not new.waits_for_others
        with pytest.raises(Fenced):
            await old.confirm()
        assert (old.held, old.waits_for_others, old.problem) == ((), True, "")

    run_virtual(story())


@pytest.mark.parametrize("setting", ["partitions", "shards"])
def test_another_number_is_told_once_by_the_name_that_its_setting_has(setting: str) -> None:
    async def story() -> None:
        leases = MemoryLeases(VirtualClock(START_MS).now_ms)
        old, new = (LeaseKeeper(leases, str(count), count, TTL_MS, setting=setting) for count in (8, 16))
        await old.renew()
        with structlog.testing.capture_logs() as lines:
            await new.renew()
            await new.renew()
        assert [line["error"] for line in lines] == [
            f"lease partitions: {setting} must be 8, as the other instances have it, and not 16"
        ]

    run_virtual(story())


def test_orders_name_the_fence_of_the_term() -> None:
    order = EvictReplica(
        node="n1", generation=7, eviction="ev-1", replica="j/t/0", attempt=1, grace_ms=0, reason=Reason.NODE_DRAINED
    )

    async def story() -> None:
        two = Two()
        assert await two.one.takes_over()
        two.one.core.react = lambda event: [Publish(fact=order)]
        async with two.world.running(two.one.service()):
            await two.world.bus.say(message(withdrawn("a")))
            await asyncio.sleep(1)
        (ordered,) = two.world.facts(EvictReplica)
        assert ordered.generation == two.one.keeper.held[0][1]

    run_virtual(story())


def test_what_a_process_notes_of_itself_is_written_before_it_holds_anything_and_its_work_is_not() -> None:
    async def story() -> None:
        store = MemoryStore()
        keeper = LeaseKeeper(MemoryLeases(), "one", 1)
        held = HeldStore(store, "told", keeper)
        await held.write([Write(kind="running-told", id="one", value=b"[]", expect=0)])
        assert len(await store.load("running-told")) == 1
        with pytest.raises(Fenced):
            await held.write([Write(kind="job", id="j", value=b"v", expect=0)])

    run_virtual(story())


@pytest.mark.parametrize("settings", [EvictorSettings, OvercommitSettings])
@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"partitions": 0}, r"partitions: must be from 1 \(one instance serves\) to 256"),
        ({"partitions": 257}, r"partitions: must be from 1 \(one instance serves\) to 256"),
        ({"partitions": 4, "lease_ttl_ms": 0}, "partitions: must be 1 where lease_ttl_ms is 0"),
    ],
)
def test_partitions_that_nobody_could_hold_are_refused(
    settings: type[EvictorSettings], given: dict[str, int], rule: str
) -> None:
    with pytest.raises(InvalidInput, match=rule):
        settings(**given).validate()


@pytest.mark.parametrize("settings", [JobsSettings, EvictorSettings, OvercommitSettings, SchedulerSettings])
def test_a_lease_that_would_end_before_it_can_be_renewed_is_refused(settings: type[JobsSettings]) -> None:
    with pytest.raises(InvalidInput, match="lease_ttl_ms: must be at least 300"):
        settings(lease_ttl_ms=299).validate()
