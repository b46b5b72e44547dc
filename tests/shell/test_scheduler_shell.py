"""The scheduler as a service in virtual time: what leaves it, in which order, while its ledger and its neighbours come and go."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec import Struct

from colo_common.adapters.store_memory import MemoryStore
from colo_common.events.effects import Publish
from colo_common.events.enforcement import ReplicaEnded
from colo_common.events.fact import Fact
from colo_common.events.job import PlacementRequest, PlacementsRequested
from colo_common.events.placement import ApplyPlacements, PlacementsDecided, PlacementsReleased
from colo_common.events.requests import (
    ExplainPlacement,
    KnownPlace,
    ListHolds,
    PendingReplicas,
    PendingReply,
    Refusal,
)
from colo_common.events.started import StartedReplicas, StartedReply
from colo_common.events.trace import placement_trace, span_of
from colo_common.events.wire import decode, decode_request, encode_reply
from colo_common.model.partition import Fence
from colo_common.model.placement import Attempt
from colo_common.model.reasons import EndCause
from colo_common.ports import Refused, Row, Unavailable
from colo_common.runtime.ask import ask
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.stamp import Stamp
from colo_common.runtime.telemetry import Telemetry
from colo_scheduler.commit.jobs_asked import StartedKnown
from colo_scheduler.commit.starts import PART, Starts
from colo_scheduler.ledger.memory import MemoryLedger
from colo_scheduler.ledger.port import NodeAnswer, NodeCommit, NodeRow, Released
from colo_scheduler.main import scheduler_service
from colo_scheduler.policy import SchedulerPolicy
from colo_scheduler.reservations.rows import LoadReservations, ReservationsLoaded
from tests.support.builders import GIB, a_node, a_topology
from tests.support.bus_memory import MemoryBus
from tests.support.scheduler_story import a_placement_request, an_allocatable
from tests.support.vloop import VirtualClock, run_virtual


class FlakyLedger(MemoryLedger):
    """A ledger that writes and then loses the answer, or is away, as often as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.lost_answers = 0
        self.away = 0
        self.refusing: frozenset[str] = frozenset()
        self.commits = 0
        self.refused = 0

    async def commit(
        self, reserves: Sequence[NodeCommit], fences: Sequence[Fence] = (), owner: str = "", compared: str = ""
    ) -> tuple[NodeAnswer, ...]:
        self._check_away("commit")
        self.commits += 1
        answers = await super().commit(reserves, fences, owner, compared)
        if self.lost_answers:
            self.lost_answers -= 1
            raise Unavailable("the answer was lost")
        return answers

    async def release(self, attempts: Sequence[Attempt], nodes: Sequence[str] = ()) -> tuple[Released, ...]:
        self._check_away("release")
        return await super().release(attempts, nodes)

    async def rows(self, nodes: Sequence[str]) -> tuple[NodeRow, ...]:
        self._check_away("rows")
        return await super().rows(nodes)

    def _check_away(self, call: str) -> None:
        if call in self.refusing:
            self.refused += 1
            raise Refused(f"{call}: WRONGTYPE")
        if self.away:
            self.away -= 1
            raise Unavailable("the ledger is away")


class KeptFacts:
    """The facts that a bus was given, as a stream keeps them."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus

    async def facts(
        self,
        types: Sequence[type[Fact]],
        take: Callable[[Fact], None],
        *,
        newest_ms: int | None = None,
        newest_of: Sequence[type[Fact]] = (),
    ) -> int:
        found = [decode(message.subject, message.data) for message in self._bus.sent]
        kept = [fact for fact in found if isinstance(fact, tuple(types))]
        for fact in kept:
            take(fact)
        return len(kept)


class House:
    """One scheduler, a bus, a ledger, and a jobs service that lists what is told to it."""

    def __init__(self, ledger: MemoryLedger | None = None) -> None:
        self.clock = VirtualClock()
        self.bus = MemoryBus(keep_sent=True)
        self.ledger = ledger or MemoryLedger()
        self.metrics = Metrics()
        ids = iter(range(1, 1000))
        self.telemetry = Telemetry("scheduler", span_ids=lambda: f"{next(ids):016x}")
        self.pending: list[PlacementRequest] = []
        self.started: set[tuple[str, int]] = set()
        self.over: set[tuple[str, int]] = set()
        self.asked_starts: list[tuple[tuple[str, int], ...]] = []
        self.jobs_away = 0
        #: Whether jobs was told, question by question, that it may lack facts.
        self.compared: list[bool] = []
        self.placed: list[KnownPlace] | None = []
        self.asked_places = 0
        self.is_silent = False
        self.stop = asyncio.Event()
        self._stamp = Stamp("test", "boot", self.clock)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "House":
        await self.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.leave()

    async def start(self) -> None:
        self.stop = asyncio.Event()
        service, shell = scheduler_service(
            SchedulerPolicy(),
            self.ledger,
            self.bus,
            self.clock,
            store=MemoryStore(),
            span=self.telemetry.span,
            metrics=self.metrics,
            seed=1,
            replay=KeptFacts(self.bus),
        )
        loop = asyncio.get_running_loop()
        self.service = service
        self._tasks = [
            loop.create_task(service.run(self.stop)),
            loop.create_task(shell.run(self.stop, service.inject)),
            loop.create_task(
                self.bus.answer(
                    "jobs",
                    {
                        "colo.v1.req.jobs.pending": self._answer_pending,
                        "colo.v1.req.jobs.started": self._answer_started,
                    },
                )
            ),
        ]
        await asyncio.sleep(0.1)

    async def leave(self) -> None:
        self.stop.set()
        await self._tasks[0]
        await self.kill()

    async def kill(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer_pending(self, data: bytes, _headers: Any) -> bytes:
        asked = decode_request("colo.v1.req.jobs.pending", data)
        assert isinstance(asked, PendingReplicas)
        if self.is_silent:
            await asyncio.sleep(3600)
        if asked.placed_after is not None and self.placed is not None:
            self.asked_places += 1
            names = [place.request.replica for place in self.placed]
            start = names.index(asked.placed_after) + 1 if asked.placed_after else 0
            placed = tuple(self.placed[start : start + 2])
            return encode_reply(PendingReply(placement_requests=(), total=0, placed=placed))
        if self.jobs_away:
            self.jobs_away -= 1
            await asyncio.sleep(3600)
        self.compared.append(asked.compare_holds)
        return encode_reply(PendingReply(placement_requests=tuple(self.pending), total=len(self.pending)))

    async def _answer_started(self, data: bytes, _headers: Any) -> bytes:
        asked = decode_request("colo.v1.req.jobs.started", data)
        assert isinstance(asked, StartedReplicas)
        self.asked_starts.append(asked.attempts)
        if self.jobs_away:
            self.jobs_away -= 1
            await asyncio.sleep(3600)
        started = tuple(each for each in asked.attempts if each in self.started)
        over = tuple(each for each in asked.attempts if each in self.over)
        waiting = tuple(each for each in asked.attempts if each not in self.started | self.over)
        return encode_reply(StartedReply(started=started, over=over, waiting=waiting))

    async def say(self, *facts: Fact) -> None:
        await self.bus.publish([self._stamp.outgoing(Publish(fact=fact)) for fact in facts])
        await asyncio.sleep(1)

    def reported(self, *types: type[Fact]) -> list[Any]:
        facts = [decode(message.subject, message.data) for message in self.bus.sent]
        return [fact for fact in facts if isinstance(fact, types)]


async def a_cluster(house: House) -> None:
    await house.say(
        a_node("n1", a_topology(zones_per_socket=1)),
        an_allocatable("n1", [(4000, 8 * GIB)], at_ms=house.clock.now_ms()),
    )


def ended(replica: str) -> ReplicaEnded:
    return ReplicaEnded(
        node="n1", replica=replica, job="j", attempt=1, cause=EndCause.EXITED, exit_code=0, boot_id="x", at_ms=1
    )


def test_a_want_becomes_a_fact_for_all_and_an_order_for_its_node() -> None:
    async def story() -> None:
        async with House() as house:
            await a_cluster(house)
            await house.say(
                PlacementsRequested(placement_requests=(a_placement_request("j/t/0"), a_placement_request("j/t/1")))
            )
            decided, order = house.reported(PlacementsDecided, ApplyPlacements)
            assert [p.replica for p in decided.placements] == ["j/t/0", "j/t/1"]
            assert (order.node, order.generation, order.placements) == ("n1", 1, decided.placements)
            assert (decided.producer, decided.seq) == ("scheduler", 1)
            ids = [message.msg_id for message in house.bus.sent if ".apply" in message.subject]
            assert [each.rpartition(":")[0] for each in ids] == ["scheduler:apply:n1:1"]

    run_virtual(story())


def test_the_spans_of_a_placement_are_its_wait_its_decision_and_its_commit() -> None:
    async def story() -> None:
        async with House() as house:
            await a_cluster(house)
            trace = placement_trace("j/t/0", 1)
            queued_ms = house.clock.now_ms() - 5_000
            await house.say(
                PlacementsRequested(
                    placement_requests=(a_placement_request("j/t/0", traceparent=trace, queued_at_ms=queued_ms),)
                )
            )
            spans = {span.name: span for span in house.telemetry.take()}
            assert list(spans) == ["queue.wait", "decide", "filter", "score", "commit"]
            root, decide = span_of(trace), spans["decide"].span_id
            parents = {name: span.parent_id for name, span in spans.items()}
            assert parents == {"queue.wait": root, "decide": root, "filter": decide, "score": decide, "commit": root}
            assert abs(spans["queue.wait"].start_us - queued_ms * 1_000) <= 1_000
            assert spans["queue.wait"].end_us == spans["decide"].start_us == spans["filter"].start_us
            assert spans["decide"].attributes == {"replica": "j/t/0", "attempt": "1", "node": "n1"}
            (placement,) = house.reported(PlacementsDecided)[0].placements
            assert placement.traceparent == trace

    run_virtual(story())


def test_a_commit_whose_answer_was_lost_is_sent_again_and_counts_once() -> None:
    async def story() -> None:
        ledger = FlakyLedger()
        ledger.lost_answers = 2
        async with House(ledger) as house:
            await a_cluster(house)
            await house.say(PlacementsRequested(placement_requests=(a_placement_request("j/t/0"),)))
            assert ledger.commits == 3
            assert len(house.reported(PlacementsDecided)) == 1
            (row,) = await ledger.rows(["n1"])
            assert (row.revision, len(row.holds)) == (1, 1)

    run_virtual(story())


def test_while_the_ledger_is_away_nothing_is_lost() -> None:
    async def story() -> None:
        ledger = FlakyLedger()
        async with House(ledger) as house:
            await a_cluster(house)
            ledger.away = 4
            await house.say(
                PlacementsRequested(placement_requests=(a_placement_request("j/t/0"),)),
                PlacementsRequested(placement_requests=(a_placement_request("k/t/0"),)),
            )
            await asyncio.sleep(10)
            placed = [p.replica for fact in house.reported(PlacementsDecided) for p in fact.placements]
            assert sorted(placed) == ["j/t/0", "k/t/0"]
            ledger.away = 2
            await house.say(ended("j/t/0"))
            await asyncio.sleep(10)
            (released,) = house.reported(PlacementsReleased)
            assert [release.attempts for release in released.nodes] == [(("j/t/0", 1),)]

    run_virtual(story())


def test_what_waited_before_the_start_is_asked_for_until_jobs_answers() -> None:
    async def story() -> None:
        house = House()
        house.pending = [a_placement_request(f"j/t/{n}") for n in range(3)]
        house.jobs_away = 3
        async with house:
            await a_cluster(house)
            await asyncio.sleep(20)
            # Said until it was heard, and once: the scheduler of before may have known of ends that jobs has not received.
            assert house.compared.count(True) == 1
            assert house.compared[0]
            assert [p.replica for f in house.reported(PlacementsDecided) for p in f.placements] == [
                "j/t/0",
                "j/t/1",
                "j/t/2",
            ]

    run_virtual(story())


def test_a_killed_scheduler_is_followed_by_one_that_says_what_was_not_confirmed() -> None:
    async def story() -> None:
        house = House()
        await house.start()
        await a_cluster(house)
        await house.say(PlacementsRequested(placement_requests=(a_placement_request("j/t/0"),)))
        first = [m.msg_id for m in house.bus.sent if m.msg_id.startswith(("scheduler:decided", "scheduler:apply"))]
        await house.kill()
        # Longer than the bus remembers ids, so that what is said again is seen again.
        await asyncio.sleep(300)
        house.bus.sent.clear()
        await house.start()
        await asyncio.sleep(1)
        again = [m.msg_id for m in house.bus.sent if m.msg_id.startswith(("scheduler:decided", "scheduler:apply"))]
        assert again == first
        holds: Any = await ask(house.bus, ListHolds())
        assert [(h.node, h.replica, h.attempt) for h in holds.holds] == [("n1", "j/t/0", 1)]
        await house.leave()

    run_virtual(story())


def test_a_ledger_that_was_emptied_while_no_scheduler_lived_is_rebuilt_before_the_first_decision() -> None:
    async def story() -> None:
        house = House()
        await house.start()
        await a_cluster(house)
        names = [f"j/t/{number}" for number in range(4)]
        await house.say(PlacementsRequested(placement_requests=tuple(a_placement_request(name) for name in names)))
        await house.say(ended("j/t/0"))
        await house.kill()
        house.ledger = MemoryLedger()
        # It ended meanwhile, and nobody but the jobs service knows.
        house.started, house.over = {("j/t/2", 1), ("j/t/3", 1)}, {("j/t/1", 1)}
        house.pending = [a_placement_request(f"late/t/{number}") for number in range(4)]
        await house.start()
        await a_cluster(house)
        await asyncio.sleep(30)
        holds: Any = await ask(house.bus, ListHolds())
        assert sorted(hold.replica for hold in holds.holds) == ["j/t/2", "j/t/3", "late/t/0", "late/t/1"]
        (row,) = await house.ledger.rows(["n1"])
        assert {("j/t/2", 1), ("j/t/3", 1)} <= set(row.confirmed)
        # What the next one finds is a ledger with rows: nothing is put back a second time.
        await house.leave()
        await house.start()
        holds = await ask(house.bus, ListHolds())
        assert sorted(hold.replica for hold in holds.holds) == ["j/t/2", "j/t/3", "late/t/0", "late/t/1"]
        await house.leave()

    run_virtual(story())


@pytest.mark.parametrize("knows", [True, False], ids=["jobs knows", "an older jobs service does not tell"])
def test_a_ledger_emptied_together_with_the_stream_has_what_jobs_knows_and_promises_no_room_twice(
    *, knows: bool
) -> None:
    async def story() -> None:
        house = House()
        # Three of four CPUs of the one node.
        runs = [a_placement_request(f"j/t/{number}", mcpu=1000) for number in range(3)]
        known = [KnownPlace(request=each, node="n1", zones=(0,)) for each in runs]
        house.placed = known if knows else None
        house.started = {(each.replica, 1) for each in runs}
        house.pending = [a_placement_request(f"late/t/{number}", mcpu=1000) for number in range(3)]
        await house.start()
        await a_cluster(house)
        await asyncio.sleep(30)
        holds: Any = await ask(house.bus, ListHolds())
        held = {hold.replica: hold.zones[0].cpu_mcpu for hold in holds.holds} | {each.replica: 1000 for each in runs}
        assert (sum(held.values()) <= 4000) == knows
        if knows:
            assert sorted(held) == ["j/t/0", "j/t/1", "j/t/2", "late/t/0"]
            # They were started: no order names them, and whoever comes next finds them in the ledger.
            assert {p.replica for order in house.reported(ApplyPlacements) for p in order.placements} == {"late/t/0"}
            (row,) = await house.ledger.rows(["n1"])
            assert {(each.replica, 1) for each in runs} <= set(row.confirmed)
            assert house.asked_places == 3
            await house.leave()
            await house.start()
            assert house.asked_places == 3
        await house.leave()

    run_virtual(story())


def test_a_scheduler_whose_ledger_has_no_rows_waits_for_jobs_and_says_so() -> None:
    async def story() -> None:
        house = House()
        house.is_silent = True
        await house.start()
        await a_cluster(house)
        await house.say(PlacementsRequested(placement_requests=(a_placement_request("j/t/0"),)))
        assert "jobs service what runs" in str(await house.service.problems())
        assert house.reported(PlacementsDecided) == []
        house.is_silent = False
        await asyncio.sleep(20)
        assert not any((await house.service.problems()).values())
        assert [p.replica for f in house.reported(PlacementsDecided) for p in f.placements] == ["j/t/0"]
        await house.leave()

    run_virtual(story())


def test_what_runs_is_asked_for_and_noted_in_the_ledger_also_when_the_jobs_service_was_away() -> None:
    async def story() -> None:
        async with House() as house:
            await a_cluster(house)
            await house.say(
                PlacementsRequested(placement_requests=(a_placement_request("j/t/0"), a_placement_request("j/t/1")))
            )
            await house.say(ended("j/t/1"))
            house.started, house.jobs_away = {("j/t/0", 1)}, 2
            await asyncio.sleep(60)
            # Asked for until it was answered, and then no more.
            assert house.asked_starts == [(("j/t/0", 1),)] * 3
            (row,) = await house.ledger.rows(["n1"])
            assert row.confirmed == (("j/t/0", 1),)
            assert len(house.reported(ApplyPlacements)) == 1

    run_virtual(story())


@pytest.mark.parametrize("is_refused", [False, True], ids=["answered", "refused"])
def test_starts_are_asked_for_in_parts(is_refused: bool) -> None:
    async def story() -> None:
        bus = MemoryBus()
        asked: list[int] = []
        received: list[StartedKnown] = []

        async def answer(data: bytes, _headers: Any) -> bytes:
            body = decode_request("colo.v1.req.jobs.started", data)
            assert isinstance(body, StartedReplicas)
            asked.append(len(body.attempts))
            if is_refused:
                return encode_reply(Refusal(code=400, field="attempts", rule="are too many"))
            return encode_reply(StartedReply(started=body.attempts[1:], over=(), waiting=body.attempts[:1]))

        async def inject(event: Struct) -> None:
            assert isinstance(event, StartedKnown)
            received.append(event)

        starts = Starts(bus, random.Random(1))
        attempts = tuple((f"j/t/{number}", 1) for number in range(PART * 2 + 3))
        tasks = [
            asyncio.create_task(bus.answer("jobs", {"colo.v1.req.jobs.started": answer})),
            asyncio.create_task(starts.keep(inject)),
        ]
        starts.ask(attempts)
        starts.ask(attempts[:5])
        await asyncio.sleep(60)
        assert asked == [PART, PART, 3]
        known = tuple(each for event in received for each in (*event.waiting, *event.started))
        assert known == (() if is_refused else attempts)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run_virtual(story())


def test_questions_are_answered_from_the_newest_decision() -> None:
    async def story() -> None:
        async with House() as house:
            await a_cluster(house)
            await house.say(PlacementsRequested(placement_requests=(a_placement_request("j/t/0", mcpu=9_000),)))
            explained: Any = await ask(house.bus, ExplainPlacement(job="j"))
            (record,) = explained.decisions
            assert (record.placement, record.counts[0].reason.value, record.nearest.have) == (
                None,
                "batch-cpu-short",
                4000,
            )
            assert b"colo_scheduler_waiting_replicas 1.0" in house.metrics.text()

    run_virtual(story())


def test_a_ledger_that_says_no_to_one_kind_of_call_keeps_no_other_waiting() -> None:
    async def story() -> None:
        ledger = FlakyLedger()
        async with House(ledger) as house:
            await a_cluster(house)
            await house.say(PlacementsRequested(placement_requests=(a_placement_request("j/t/0"),)))
            ledger.refusing = frozenset({"release"})
            await house.say(ended("j/t/0"))
            await asyncio.sleep(10)
            assert house.reported(PlacementsReleased) == []
            await house.say(PlacementsRequested(placement_requests=(a_placement_request("j/t/1"),)))
            await asyncio.sleep(5)
            assert [p.replica for p in house.reported(PlacementsDecided)[-1].placements] == ["j/t/1"]
            ledger.refusing = frozenset()
            await asyncio.sleep(10)
            (released,) = house.reported(PlacementsReleased)
            assert [release.attempts for release in released.nodes] == [(("j/t/0", 1),)]

    run_virtual(story())


def test_a_place_whose_commit_is_refused_time_and_again_is_given_back_and_decided_once_it_can_be() -> None:
    async def story() -> None:
        ledger = FlakyLedger()
        async with House(ledger) as house:
            await a_cluster(house)
            ledger.refusing = frozenset({"commit", "rows"})
            await house.say(PlacementsRequested(placement_requests=(a_placement_request("j/t/0"),)))
            await asyncio.sleep(30)
            assert ledger.commits == 0
            ledger.refusing = frozenset()
            await asyncio.sleep(30)
            (decided,) = house.reported(PlacementsDecided)
            assert [p.replica for p in decided.placements] == ["j/t/0"]

    run_virtual(story())


def test_a_decision_that_waited_for_the_ledger_is_made_anew_on_what_may_be_promised_by_then() -> None:
    async def story() -> None:
        ledger = FlakyLedger()
        async with House(ledger) as house:
            await a_cluster(house)
            ledger.away = 6
            await house.say(PlacementsRequested(placement_requests=(a_placement_request("j/main/0", mcpu=3000),)))
            assert ledger.away > 0
            await house.say(an_allocatable("n1", [(1000, 8 * GIB)], at_ms=house.clock.now_ms()))
            await asyncio.sleep(30)
            assert ledger.away == 0
            assert house.reported(PlacementsDecided) == []
            assert (await ledger.rows(["n1"]))[0].holds == ()
            await house.say(an_allocatable("n1", [(4000, 8 * GIB)], at_ms=house.clock.now_ms()))
            assert len(house.reported(PlacementsDecided)) == 1

    run_virtual(story())


class RefusingStore(MemoryStore):
    """A store that lets nothing be read while it is told so."""

    def __init__(self) -> None:
        super().__init__()
        self.is_refusing = False
        self.reads = 0

    async def get(self, kind: str, id_: str) -> Row | None:
        self.reads += 1
        if self.is_refusing:
            raise Refused("get: WRONGTYPE")
        return await super().get(kind, id_)


def test_a_store_that_refuses_reads_is_asked_ever_more_rarely_told_and_heals_without_a_restart() -> None:
    async def story() -> None:
        store = RefusingStore()
        clock, bus, telemetry = VirtualClock(), MemoryBus(), Telemetry("scheduler")
        service, shell = scheduler_service(
            SchedulerPolicy(), MemoryLedger(), bus, clock, store=store, span=telemetry.span, metrics=Metrics(), seed=1
        )
        received: list[Any] = []

        async def inject(event: Any) -> None:
            received.append(event)

        task = asyncio.get_running_loop().create_task(shell.run(asyncio.Event(), inject))
        store.is_refusing = True
        assert await shell.perform(LoadReservations(names=("r1",))) == []
        assert await shell.perform(LoadReservations(names=("r2", "r1"))) == []
        assert "WRONGTYPE" in (await service.problems())["reservations"]
        await asyncio.sleep(600)
        assert 60 < store.reads < 300
        store.is_refusing = False
        await asyncio.sleep(10)
        assert [event.missing for event in received if isinstance(event, ReservationsLoaded)] == [("r1", "r2")]
        assert (await service.problems())["reservations"] == ""
        reads = store.reads
        await asyncio.sleep(60)
        assert store.reads == reads
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtual(story())


def test_rows_that_the_ledger_refuses_are_asked_for_ever_more_rarely_and_told() -> None:
    async def story() -> None:
        ledger = FlakyLedger()
        async with House(ledger) as house:
            await a_cluster(house)
            ledger.refusing = frozenset({"rows", "commit"})
            await house.say(PlacementsRequested(placement_requests=(a_placement_request("j/main/0"),)))
            await asyncio.sleep(60)
            assert "WRONGTYPE" in (await house.service.problems())["ledger"]
            before = ledger.refused
            await asyncio.sleep(600)
            assert 10 <= ledger.refused - before <= 120
            ledger.refusing = frozenset()
            await house.say(an_allocatable("n1", [(4000, 8 * GIB)], at_ms=house.clock.now_ms()))
            await asyncio.sleep(130)
            assert (await house.service.problems())["ledger"] == ""
            assert len(house.reported(PlacementsDecided)) == 1

    run_virtual(story())
