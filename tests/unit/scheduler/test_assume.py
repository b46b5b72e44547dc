"""What is only assumed expires when the ledger never answers, and is asked for anew without being placed twice."""

from colo_common.events.effects import Effect, Publish, Wake
from colo_common.events.job import PlacementsRequested
from colo_common.events.placement import ApplyPlacements, PlacementsDecided
from colo_scheduler.commit.held import HeldAttempt, order
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger.port import (
    CommitLedger,
    LedgerAnswered,
    LedgerLoaded,
    LedgerRows,
    LoadLedgerRows,
    NodeAnswer,
    NodeRow,
)
from tests.support.builders import GIB, a_node, a_placement
from tests.support.scheduler_story import a_placement_request, an_allocatable

ATTEMPT = ("j/t/0", 1)


def assumed() -> tuple[SchedulerCore, CommitLedger]:
    """A core that has decided one want at 0 and hears nothing of its commit."""
    core = SchedulerCore()
    core.handle(a_node("n1"), 0)
    core.handle(an_allocatable("n1", ((8_000, 32 * GIB), (8_000, 32 * GIB))), 0)
    core.handle(LedgerLoaded(), 0)
    core.handle(PlacementsRequested(placement_requests=(a_placement_request(ATTEMPT[0]),)), 0)
    (commit,) = commits(core.handle(Wake(), 0))
    return core, commit


def commits(effects: list[Effect]) -> list[CommitLedger]:
    return [effect for effect in effects if isinstance(effect, CommitLedger)]


def expired() -> tuple[SchedulerCore, CommitLedger]:
    core, commit = assumed()
    assert core.deadline_ms() == core.policy.assume_ms
    effects = core.handle(Wake(), core.policy.assume_ms)
    assert [effect.nodes for effect in effects if isinstance(effect, LoadLedgerRows)] == [("n1",)]
    assert core.counts["assumptions_expired"] == 1
    assert ATTEMPT not in core.commits.held
    core.check()
    return core, commit


def test_what_was_never_written_is_decided_again_after_its_row_was_read() -> None:
    core, _ = expired()
    core.handle(LedgerRows(rows=(NodeRow(node="n1", revision=0, changes=0),)), core.policy.assume_ms)
    (again,) = commits(core.handle(Wake(), core.policy.assume_ms))
    assert [one.attempt for one in again.reserves[0].holds] == [ATTEMPT]
    assert again.reserves[0].expect == 0


def test_what_was_written_after_all_is_told_and_not_decided_again() -> None:
    core, commit = expired()
    row = NodeRow(node="n1", revision=1, changes=1, holds=commit.reserves[0].holds)
    reported = [e.fact for e in core.handle(LedgerRows(rows=(row,)), core.policy.assume_ms) if isinstance(e, Publish)]
    assert [type(fact) for fact in reported] == [PlacementsDecided, ApplyPlacements]
    assert commits(core.handle(Wake(), core.policy.assume_ms)) == []
    core.check()


def test_an_answer_in_time_leaves_nothing_to_expire() -> None:
    core, _ = assumed()
    answer = NodeAnswer(node="n1", revision=1, changes=1, accepted=(ATTEMPT,))
    core.handle(LedgerAnswered(answers=(answer,)), 10)
    core.handle(Wake(), 10)
    assert core.commits.expiry_ms() is None
    core.handle(Wake(), core.policy.assume_ms)
    assert core.counts["assumptions_expired"] == 0


def test_orders_to_a_node_ascend_in_generation_and_none_is_longer_than_fifty() -> None:
    held = [
        HeldAttempt(a_placement(f"j/t/{number}", node=node), generation)
        for node in ("n2", "n1")
        for generation, count in ((3, 2), (1, 120))
        for number in range(count)
    ]
    reported = [(publish.id, publish.fact) for publish in order(held, 0)]
    orders = [(f.node, f.generation, len(f.placements)) for _, f in reported if isinstance(f, ApplyPlacements)]
    assert orders == [(n, g, c) for n in ("n1", "n2") for g, c in ((1, 50), (1, 50), (1, 20), (3, 2))]
    assert len({id_ for id_, fact in reported if isinstance(fact, ApplyPlacements)}) == len(orders)
