"""Places that were committed and never told: told by whoever comes after, in whatever parts, until a node has started them."""

import itertools
from collections.abc import Sequence

import pytest
from msgspec import structs

from colo_common.events.effects import Effect, Publish, Wake
from colo_common.events.enforcement import ReplicaEnded
from colo_common.events.job import PlacementsRequested
from colo_common.events.placement import ApplyPlacements, PlacementsDecided
from colo_common.events.requests import PendingReply
from colo_common.model.partition import PartitionsHeld, partition_of
from colo_common.model.placement import Attempt
from colo_common.model.reasons import EndCause
from colo_scheduler.commit.jobs_asked import AskStarted, StartedKnown
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger.port import (
    CommitLedger,
    ConfirmHolds,
    Hold,
    HoldsReleased,
    LedgerAnswered,
    LedgerLoaded,
    LedgerRows,
    LoadLedgerRows,
    NodeAnswer,
    NodeRow,
    Released,
    ReleaseHolds,
)
from tests.support.builders import GIB, a_node, a_placement
from tests.support.scheduler_story import a_placement_request, an_allocatable

DECIDED_MS = 1_000
REPLICAS = ("j/t/0", "j/t/1", "j/t/2")


def a_row(*replicas: str, confirmed: Sequence[str] = (), revision: int = 4) -> LedgerRows:
    """What one commit put on n1: all of it is of one generation."""
    reservations = tuple(
        Hold(placement=structs.replace(a_placement(each), decided_at_ms=DECIDED_MS), generation=revision)
        for each in replicas
    )
    attempts = tuple((each, 1) for each in confirmed)
    row = NodeRow(node="n1", revision=revision, changes=revision, holds=reservations, confirmed=attempts)
    return LedgerRows(rows=(row,))


def a_core(*replicas: str, now_ms: int = DECIDED_MS) -> SchedulerCore:
    """It has read of the places just now: their fact and order have gone out, or not."""
    core = SchedulerCore()
    core.handle(a_node("n1"), now_ms)
    core.handle(an_allocatable("n1", ((16_000, 64 * GIB), (16_000, 64 * GIB)), at_ms=now_ms), now_ms)
    core.handle(a_row(*replicas), now_ms)
    core.handle(LedgerLoaded(), now_ms)
    return core


def placing(*replicas: str, after: LedgerRows | None = None) -> SchedulerCore:
    """It has decided and committed these places itself, just now, after it read these rows."""
    core = a_core()
    if after is not None:
        core.handle(after, DECIDED_MS)
    core.handle(
        PlacementsRequested(placement_requests=tuple(a_placement_request(each) for each in replicas)), DECIDED_MS
    )
    (commit,) = [each for each in core.handle(Wake(), DECIDED_MS) if isinstance(each, CommitLedger)]
    answers = tuple(
        NodeAnswer(
            node=one.node, revision=one.expect + 1, changes=1, accepted=tuple(each.attempt for each in one.holds)
        )
        for one in commit.reserves
    )
    core.handle(LedgerAnswered(answers=answers), DECIDED_MS)
    core.check()
    return core


def an_end(replica: str) -> ReplicaEnded:
    """Its node says that it has ended."""
    return ReplicaEnded(node="n1", replica=replica, job="j", attempt=1, cause=EndCause.EXITED, exit_code=0)


def orders(effects: Sequence[Effect]) -> dict[str, list[str]]:
    """What is ordered under which id."""
    reported = [effect for effect in effects if isinstance(effect, Publish)]
    return {
        effect.id: [placement.replica for placement in effect.fact.placements]
        for effect in reported
        if isinstance(effect.fact, ApplyPlacements)
    }


def listed(*replicas: str) -> PendingReply:
    """The jobs service says that these wait."""
    return PendingReply(placement_requests=tuple(a_placement_request(each) for each in replicas), total=len(replicas))


def asked_of(effects: Sequence[Effect]) -> list[Attempt]:
    """What the jobs service is to be asked for."""
    return [attempt for effect in effects if isinstance(effect, AskStarted) for attempt in effect.attempts]


def woken(core: SchedulerCore, now_ms: int) -> list[Effect]:
    """What comes of waking it as long as it is due."""
    effects: list[Effect] = []
    while (deadline_ms := core.deadline_ms()) is not None and deadline_ms <= now_ms:
        effects += core.handle(Wake(), now_ms)
        core.check()
        after_ms = core.deadline_ms()
        assert after_ms is None or after_ms > now_ms
    return effects


def wake(core: SchedulerCore, now_ms: int) -> list[Attempt]:
    """What it asks for at that moment."""
    return asked_of(woken(core, now_ms))


def begun(core: SchedulerCore) -> list[Attempt]:
    """What it asks for when it has read the ledger."""
    core.handle(LedgerLoaded(), DECIDED_MS)
    return wake(core, DECIDED_MS + 1)


def read_at(core: SchedulerCore, now_ms: int) -> list[tuple[str, ...]]:
    """The nodes whose rows it reads at that moment, call by call."""
    return [effect.nodes for effect in woken(core, now_ms) if isinstance(effect, LoadLedgerRows)]


def confirmed_by(core: SchedulerCore, now_ms: int) -> list[Attempt]:
    """What the ledger is told at that moment to have started."""
    return [one for effect in woken(core, now_ms) if isinstance(effect, ConfirmHolds) for one in effect.attempts]


def attempts_of(*replicas: str) -> tuple[Attempt, ...]:
    return tuple((each, 1) for each in replicas)


def test_places_of_one_commit_are_ordered_together_when_the_jobs_service_does_not_know_them() -> None:
    core = a_core(*REPLICAS)
    reported = orders(core.handle(listed(*REPLICAS), 60_000))
    assert list(reported.values()) == [list(REPLICAS)]


def test_parts_of_one_commit_that_are_told_one_after_the_other_are_not_taken_for_each_other() -> None:
    core = a_core(*REPLICAS)
    first = orders(core.handle(listed(REPLICAS[0]), 60_000))
    second = orders(core.handle(listed(*REPLICAS[1:]), 60_000))
    assert [*first.values(), *second.values()] == [[REPLICAS[0]], list(REPLICAS[1:])]
    assert first.keys().isdisjoint(second.keys())


def test_the_same_order_has_the_same_id_whoever_sends_it() -> None:
    one, other = a_core(*REPLICAS), a_core(*reversed(REPLICAS))
    assert orders(one.handle(listed(*REPLICAS), 60_000)) == orders(other.handle(listed(*REPLICAS), 70_000))


def test_what_no_node_starts_is_told_again_after_longer_and_longer_waits() -> None:
    core = placing(REPLICAS[0])
    asked_ms, published_ms = [], []
    for age_ms in range(0, 600_000, 1_000):
        now_ms = DECIDED_MS + age_ms
        effects = woken(core, now_ms)
        if asked := asked_of(effects):
            asked_ms.append(age_ms)
            core.handle(StartedKnown(waiting=tuple(asked)), now_ms)
            effects += woken(core, now_ms + 1)
        if ("n1",) in [effect.nodes for effect in effects if isinstance(effect, LoadLedgerRows)]:
            # The row of its own commit, which came after the row that it began with.
            reported = core.handle(a_row(REPLICAS[0], revision=5), now_ms)
            facts = [type(effect.fact) for effect in reported if isinstance(effect, Publish)]
            assert facts == [PlacementsDecided, ApplyPlacements]
            published_ms.append(age_ms)
    # At the first look it may be the jobs service that has not heard of it yet.
    assert asked_ms[0] == 10_000
    assert published_ms == asked_ms[1:]
    assert len(published_ms) == 5
    waits = [later - earlier for earlier, later in itertools.pairwise(asked_ms)]
    assert all(age <= wait <= age + 30_000 for wait, age in zip(waits, asked_ms, strict=False))


def test_at_its_start_it_asks_for_all_that_the_ledger_does_not_know_to_run_and_tells_it_again_at_once() -> None:
    core = SchedulerCore()
    row = a_row(*REPLICAS, confirmed=[REPLICAS[1]])
    core.handle(row, DECIDED_MS)
    assert begun(core) == [(REPLICAS[0], 1), (REPLICAS[2], 1)]
    core.handle(StartedKnown(started=attempts_of(REPLICAS[2]), waiting=attempts_of(REPLICAS[0])), DECIDED_MS)
    assert read_at(core, DECIDED_MS + 1) == [("n1",)]
    assert list(orders(core.handle(row, DECIDED_MS + 1)).values()) == [[REPLICAS[0]]]


def test_what_was_committed_is_asked_for_once_it_is_ten_seconds_old() -> None:
    core = placing(*REPLICAS)
    asked_ms = [now_ms for now_ms in range(DECIDED_MS, 20_000, 500) if wake(core, now_ms)]
    assert asked_ms == [DECIDED_MS + 10_000]
    core.handle(StartedKnown(started=attempts_of(*REPLICAS)), 20_000)
    assert confirmed_by(core, 20_001) == list(attempts_of(*REPLICAS))
    assert wake(core, 3_600_000) == []


def test_what_ended_in_ten_seconds_is_never_asked_for() -> None:
    core = placing(*REPLICAS)
    for replica in REPLICAS:
        core.handle(an_end(replica), 2_000)
    core.handle(Wake(), 2_000)
    released = Released(node="n1", changes=2, attempts=attempts_of(*REPLICAS))
    core.handle(HoldsReleased(released=(released,)), 2_000)
    assert [wake(core, now_ms) for now_ms in range(3_000, 100_000, 1_000)] == [[]] * 97


def test_what_is_over_without_its_end_being_heard_is_released() -> None:
    core = placing(*REPLICAS)
    assert wake(core, 20_000)
    core.handle(StartedKnown(over=attempts_of(REPLICAS[1])), 20_000)
    released = [each.attempts for each in woken(core, 20_001) if isinstance(each, ReleaseHolds)]
    assert released == [attempts_of(REPLICAS[1])]


def test_what_the_jobs_service_does_not_know_is_neither_told_nor_confirmed_nor_released() -> None:
    core = placing(REPLICAS[0])
    assert wake(core, 20_000)
    assert core.handle(StartedKnown(), 20_000) == []
    own = (ReleaseHolds, ConfirmHolds, Publish)
    assert [each for each in woken(core, 100_000) if isinstance(each, own)] == []


def test_what_the_jobs_service_does_not_answer_is_asked_for_again_when_it_is_twice_as_old() -> None:
    core = placing(REPLICAS[0])
    asked_ms = [now_ms for now_ms in range(DECIDED_MS, 200_000, 1_000) if wake(core, now_ms)]
    ages_ms = [now_ms - DECIDED_MS for now_ms in asked_ms]
    assert ages_ms[0] == 10_000
    assert all(2 * age <= later <= 2 * age + 30_000 for age, later in itertools.pairwise(ages_ms))


@pytest.mark.parametrize("at_ms", [3_600_000, 4_102_444_800_000], ids=["an hour ahead", "of the year 2100"])
def test_a_place_that_another_clock_decided_keeps_no_other_from_being_asked_for(at_ms: int) -> None:
    strange = structs.replace(a_placement("k/t/0", node="n2"), decided_at_ms=at_ms)
    row = NodeRow(node="n2", revision=1, changes=1, holds=(Hold(placement=strange, generation=1),))
    core = placing(REPLICAS[0], after=LedgerRows(rows=(row,)))
    assert (REPLICAS[0], 1) not in wake(core, DECIDED_MS + 9_000)
    assert (REPLICAS[0], 1) in wake(core, DECIDED_MS + 10_000)
    # Nobody knows its age: it is asked for at once.
    core = SchedulerCore()
    core.handle(LedgerLoaded(), DECIDED_MS)
    core.handle(LedgerRows(rows=(row,)), DECIDED_MS)
    assert wake(core, DECIDED_MS) == [("k/t/0", 1)]
    core = SchedulerCore()
    core.handle(LedgerRows(rows=(row,)), DECIDED_MS)
    assert begun(core) == [("k/t/0", 1)]


def test_holds_of_another_scheduler_keep_none_of_ours_waiting() -> None:
    core = SchedulerCore(shards=2)
    core.handle(LedgerLoaded(), 0)
    core.handle(PartitionsHeld(fences=((0, 1),)), 0)
    ours = next(f"j{number}/t/0" for number in range(100) if partition_of(f"j{number}", 2) == 0)
    theirs = next(f"k{number}" for number in range(100) if partition_of(f"k{number}", 2) == 1)
    assert wake(core, core.policy.ask_again_ms) == []
    names = [*(f"{theirs}/t/{number}" for number in range(25_000)), ours]
    placements = [structs.replace(a_placement(name, node="n1"), decided_at_ms=5_000) for name in names]
    reservations = tuple(Hold(placement=each, generation=1) for each in placements)
    core.handle(LedgerRows(rows=(NodeRow(node="n1", revision=1, changes=1, holds=reservations),)), 5_000)
    asked = [(now_ms, each) for now_ms in range(5_000, 70_000, 50) for each in wake(core, now_ms)]
    assert {each for _, each in asked} == {(ours, 1)}
    assert asked[0][0] <= 15_500
    # Whoever gets their shard asks for theirs.
    core.handle(PartitionsHeld(fences=((0, 1), (1, 1))), 70_000)
    parts = [wake(core, 70_000 + core.policy.ask_again_ms + 50 * number) for number in range(10)]
    assert [len(part) for part in parts] == [5_000] * 5 + [1] + [0] * 4


def test_one_answer_to_two_questions_tells_nothing_again() -> None:
    core = placing(REPLICAS[0])
    asked = [each for now_ms in range(10_000, 100_000, 1_000) for each in wake(core, now_ms)]
    assert asked == [(REPLICAS[0], 1)] * 4
    # The jobs service is back, and has not read yet what it missed.
    core.handle(StartedKnown(waiting=attempts_of(REPLICAS[0])), 100_000)
    assert read_at(core, 101_000) == []
    core.handle(StartedKnown(waiting=attempts_of(REPLICAS[0])), 200_000)
    assert read_at(core, 201_000) == [("n1",)]


def rows_of(nodes: int, each: int) -> LedgerRows:
    """So many replicas on each of so many nodes, all of them waiting."""
    rows = []
    for node in range(nodes):
        reservations = tuple(
            Hold(placement=a_placement(f"j/t/{each * node + number}", node=f"n{node:03}"), generation=1)
            for number in range(each)
        )
        rows.append(NodeRow(node=f"n{node:03}", revision=1, changes=1, holds=reservations))
    return LedgerRows(rows=tuple(rows))


@pytest.mark.parametrize(
    ("nodes", "each", "together"), [(250, 2, [100, 100, 50]), (5, 150, [2, 2, 1]), (2, 900, [1, 1])]
)
def test_very_much_that_was_not_started_is_told_a_little_at_a_time_each_node_once(
    nodes: int, each: int, together: list[int]
) -> None:
    core, rows = SchedulerCore(), rows_of(nodes, each)
    core.handle(rows, DECIDED_MS)
    asked = begun(core)
    for part in (asked[: len(asked) // 2 + 9], asked[len(asked) // 2 - 9 :]):
        core.handle(StartedKnown(waiting=tuple(part)), DECIDED_MS)
    read = [(age, nodes) for age in range(1_000, 4_000, 50) for nodes in read_at(core, DECIDED_MS + age)]
    assert [(age, len(nodes)) for age, nodes in read] == [(1_000 + 200 * at, n) for at, n in enumerate(together)]
    assert sorted(node for _, nodes in read for node in nodes) == [f"n{node:03}" for node in range(nodes)]
    reported = orders(core.handle(rows, DECIDED_MS + 4_000))
    assert sum(len(replicas) for replicas in reported.values()) == nodes * each
    assert orders(core.handle(rows, DECIDED_MS + 4_000)) == {}


def test_of_very_much_that_started_a_part_is_written_in_one_turn() -> None:
    core = SchedulerCore()
    core.handle(a_row(*[f"j/t/{number}" for number in range(500)]), DECIDED_MS)
    asked = begun(core)
    core.handle(StartedKnown(started=tuple(asked)), DECIDED_MS)
    parts = []
    while (deadline_ms := core.deadline_ms()) is not None and deadline_ms <= DECIDED_MS + 10:
        effects = core.handle(Wake(), deadline_ms)
        parts.append([len(effect.attempts) for effect in effects if isinstance(effect, ConfirmHolds)])
    assert [part for part in parts if part] == [[200], [200], [100]]


def test_what_ended_when_the_answer_comes_is_left_alone() -> None:
    core = a_core(*REPLICAS)
    core.handle(an_end(REPLICAS[0]), DECIDED_MS)
    core.handle(StartedKnown(started=attempts_of(REPLICAS[1]), waiting=attempts_of(REPLICAS[0])), DECIDED_MS)
    assert confirmed_by(core, DECIDED_MS + 1) == list(attempts_of(REPLICAS[1]))
    assert read_at(core, DECIDED_MS + 1_000) == []


def test_what_started_while_the_row_was_read_is_not_told_again_although_the_others_are() -> None:
    core = a_core(*REPLICAS)
    core.handle(StartedKnown(waiting=tuple(wake(core, DECIDED_MS))), DECIDED_MS)
    assert read_at(core, DECIDED_MS + 1) == [("n1",)]
    core.handle(StartedKnown(started=attempts_of(REPLICAS[1])), DECIDED_MS + 1)
    core.handle(an_end(REPLICAS[2]), DECIDED_MS + 1)
    # The row is of before the confirmation and the release.
    assert list(orders(core.handle(a_row(*REPLICAS), DECIDED_MS + 1)).values()) == [[REPLICAS[0]]]


def test_what_another_scheduler_knows_to_have_started_is_not_told_again() -> None:
    core = a_core(REPLICAS[0])
    core.handle(StartedKnown(waiting=tuple(wake(core, DECIDED_MS))), DECIDED_MS)
    assert read_at(core, DECIDED_MS + 1) == [("n1",)]
    assert orders(core.handle(a_row(REPLICAS[0], confirmed=[REPLICAS[0]]), DECIDED_MS + 1)) == {}
    assert wake(core, 600_000) == []
