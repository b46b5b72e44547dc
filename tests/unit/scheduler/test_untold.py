"""Places that were committed and never told: told by whoever comes after, in whatever parts, until a node has started them."""

import itertools
from collections.abc import Sequence

from msgspec import structs

from colo_common.events.effects import Effect, Publish, Wake
from colo_common.events.enforcement import ReplicaEnded
from colo_common.events.job import ReplicasWanted
from colo_common.events.placement import ApplyPlacements, PlacementsDecided
from colo_common.events.requests import PendingReply
from colo_common.model.reasons import EndCause
from colo_scheduler.core import SchedulerCore
from colo_scheduler.heard import AskStarted, StartedKnown
from colo_scheduler.ledger import (
    Attempt,
    CommitLedger,
    ConfirmHolds,
    HoldsReleased,
    LedgerAnswered,
    LedgerLoaded,
    LedgerRows,
    LoadRows,
    NodeAnswer,
    NodeRow,
    Released,
    Reservation,
)
from tests.support.builders import GIB, a_node, a_placement
from tests.support.scheduler_story import a_want, an_allocatable

DECIDED_MS = 1_000
REPLICAS = ("j/t/0", "j/t/1", "j/t/2")


def a_row(*replicas: str, confirmed: Sequence[str] = ()) -> LedgerRows:
    """What one commit put on n1: all of it is of one generation."""
    reservations = tuple(
        Reservation(placement=structs.replace(a_placement(each), decided_at_ms=DECIDED_MS), generation=4)
        for each in replicas
    )
    attempts = tuple((each, 1) for each in confirmed)
    return LedgerRows(rows=(NodeRow(node="n1", revision=4, changes=4, reservations=reservations, confirmed=attempts),))


def a_core(*replicas: str, now_ms: int = DECIDED_MS) -> SchedulerCore:
    """It has read of the places just now: their fact and order have gone out, or not."""
    core = SchedulerCore()
    core.handle(a_node("n1"), now_ms)
    core.handle(an_allocatable("n1", ((16_000, 64 * GIB), (16_000, 64 * GIB)), at_ms=now_ms), now_ms)
    core.handle(a_row(*replicas), now_ms)
    core.handle(LedgerLoaded(), now_ms)
    return core


def placing(*replicas: str) -> SchedulerCore:
    """It has decided and committed these places itself, just now."""
    core = a_core()
    core.handle(ReplicasWanted(wants=tuple(a_want(each) for each in replicas)), DECIDED_MS)
    (commit,) = [each for each in core.handle(Wake(), DECIDED_MS) if isinstance(each, CommitLedger)]
    answers = tuple(
        NodeAnswer(
            node=one.node, revision=one.expect + 1, changes=1, accepted=tuple(each.attempt for each in one.reservations)
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
    said = [effect for effect in effects if isinstance(effect, Publish)]
    return {
        effect.id: [placement.replica for placement in effect.fact.placements]
        for effect in said
        if isinstance(effect.fact, ApplyPlacements)
    }


def listed(*replicas: str) -> PendingReply:
    """The jobs service says that these wait."""
    return PendingReply(wants=tuple(a_want(each) for each in replicas), total=len(replicas))


def asked_of(effects: Sequence[Effect]) -> list[Attempt]:
    """What the jobs service is to be asked for."""
    return [attempt for effect in effects if isinstance(effect, AskStarted) for attempt in effect.attempts]


def wake(core: SchedulerCore, now_ms: int) -> list[Attempt]:
    """Wake it as long as it is due; what it asks for."""
    asked: list[Attempt] = []
    while (deadline_ms := core.deadline_ms()) is not None and deadline_ms <= now_ms:
        asked += asked_of(core.handle(Wake(), now_ms))
        core.check()
    return asked


def answer(core: SchedulerCore, asked: Sequence[Attempt], *started: str, now_ms: int) -> list[tuple[str, ...]]:
    """The jobs service says that these have started and no others; the nodes whose rows are read for that, call by call."""
    known = StartedKnown(asked=tuple(asked), started=tuple(each for each in asked if each[0] in started))
    return [effect.nodes for effect in core.handle(known, now_ms) if isinstance(effect, LoadRows)]


def confirmed_by(core: SchedulerCore, now_ms: int) -> list[Attempt]:
    """What the ledger is told to have started, at the Wakes of this moment."""
    effects: list[Effect] = []
    while (deadline_ms := core.deadline_ms()) is not None and deadline_ms <= now_ms:
        effects += core.handle(Wake(), now_ms)
    return [attempt for effect in effects if isinstance(effect, ConfirmHolds) for attempt in effect.attempts]


def test_places_of_one_commit_are_ordered_together_when_the_jobs_service_does_not_know_them() -> None:
    core = a_core(*REPLICAS)
    said = orders(core.handle(listed(*REPLICAS), 60_000))
    assert list(said.values()) == [list(REPLICAS)]


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
    core = a_core(REPLICAS[0])
    told = []
    for now_ms in range(DECIDED_MS, 600_000, 1_000):
        asked = wake(core, now_ms)
        if not asked:
            continue
        assert answer(core, asked, now_ms=now_ms) == [("n1",)]
        effects = core.handle(a_row(REPLICAS[0]), now_ms)
        facts = [type(effect.fact) for effect in effects if isinstance(effect, Publish)]
        assert facts == [PlacementsDecided, ApplyPlacements]
        told.append(now_ms - DECIDED_MS)
        core.check()
    # It was asked for at the start. Then at the looks that follow 10 s, then twice the age.
    waits = [later - earlier for earlier, later in itertools.pairwise(told)]
    assert 10_000 <= told[0] <= 10_000 + core.policy.ledger_refresh_ms
    assert len(told) == 5
    assert all(wait >= age for wait, age in zip(waits, told, strict=False))


def test_at_its_start_it_asks_for_all_that_the_ledger_does_not_know_to_run() -> None:
    core = SchedulerCore()
    core.handle(a_row(*REPLICAS, confirmed=[REPLICAS[1]]), DECIDED_MS)
    assert asked_of(core.handle(LedgerLoaded(), DECIDED_MS)) == [(REPLICAS[0], 1), (REPLICAS[2], 1)]


def test_what_was_committed_is_asked_for_once_it_is_ten_seconds_old() -> None:
    core = placing(*REPLICAS)
    assert core.deadline_ms() == DECIDED_MS + 10_000
    assert wake(core, DECIDED_MS + 9_999) == []
    asked = wake(core, DECIDED_MS + 10_000)
    assert asked == [(each, 1) for each in REPLICAS]
    assert answer(core, asked, *REPLICAS, now_ms=DECIDED_MS + 10_001) == []
    assert confirmed_by(core, DECIDED_MS + 10_001) == asked
    assert wake(core, 3_600_000) == []
    core.check()


def test_what_ended_in_ten_seconds_is_never_asked_for() -> None:
    core = placing(*REPLICAS)
    for replica in REPLICAS:
        core.handle(an_end(replica), 2_000)
    core.handle(Wake(), 2_000)
    released = Released(node="n1", changes=2, attempts=tuple((each, 1) for each in REPLICAS))
    core.handle(HoldsReleased(released=(released,)), 2_000)
    assert wake(core, 600_000) == []


def test_what_the_jobs_service_does_not_answer_is_asked_for_again_when_it_is_twice_as_old() -> None:
    core = placing(REPLICAS[0])
    assert wake(core, 11_000) == [(REPLICAS[0], 1)]
    asked_ms = [now_ms for now_ms in range(12_000, 200_000, 1_000) if wake(core, now_ms)]
    assert asked_ms[0] >= 21_000
    assert len(asked_ms) == 3


def test_of_very_much_that_started_a_part_is_written_in_one_turn() -> None:
    replicas = [f"j/t/{number}" for number in range(500)]
    core = SchedulerCore()
    core.handle(a_row(*replicas), DECIDED_MS)
    asked = asked_of(core.handle(LedgerLoaded(), DECIDED_MS))
    core.handle(StartedKnown(asked=tuple(asked), started=tuple(asked)), DECIDED_MS)
    parts = []
    while (deadline_ms := core.deadline_ms()) is not None and deadline_ms <= DECIDED_MS + 10:
        effects = core.handle(Wake(), deadline_ms)
        parts.append([len(effect.attempts) for effect in effects if isinstance(effect, ConfirmHolds)])
    assert [part for part in parts if part] == [[200], [200], [100]]


def test_what_a_node_started_is_not_told_again_although_the_others_are() -> None:
    core = a_core(*REPLICAS)
    core.handle(an_end(REPLICAS[2]), 3_000)
    asked = wake(core, 60_000)
    assert asked == [(REPLICAS[0], 1), (REPLICAS[1], 1)]
    assert answer(core, asked, REPLICAS[1], now_ms=60_000) == [("n1",)]
    # The row is of before the confirmation and the release.
    assert list(orders(core.handle(a_row(*REPLICAS), 60_000)).values()) == [[REPLICAS[0]]]


def test_what_ended_or_is_not_held_when_the_answer_comes_is_left_alone() -> None:
    core = a_core(*REPLICAS[:2])
    asked = wake(core, 60_000)
    core.handle(an_end(REPLICAS[0]), 60_000)
    assert answer(core, [*asked, ("k/t/0", 1)], REPLICAS[1], now_ms=60_000) == []
    assert confirmed_by(core, 60_000) == [(REPLICAS[1], 1)]


def test_what_another_scheduler_heard_to_have_started_is_not_told_again() -> None:
    core = a_core(REPLICAS[0])
    asked = wake(core, 60_000)
    assert answer(core, asked, now_ms=60_000) == [("n1",)]
    assert orders(core.handle(a_row(REPLICAS[0], confirmed=[REPLICAS[0]]), 60_000)) == {}
    assert wake(core, 600_000) == []
