"""What was decided and could not be committed for long is decided again, on what may be promised by then."""

from colo_common.events.effects import Effect, Publish, Wake
from colo_common.events.job import PlacementsRequested
from colo_common.events.placement import PlacementRejected, PlacementsDecided
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger.memory import MemoryLedger
from colo_scheduler.ledger.port import (
    CommitLedger,
    LedgerAnswered,
    LedgerLoaded,
    LedgerRefused,
    LedgerRows,
    LoadLedgerRows,
)
from tests.support.builders import GIB, a_node, a_topology
from tests.support.scheduler_story import a_placement_request, an_allocatable, now


class Talk:
    """A core whose commits wait until somebody says what became of them."""

    def __init__(self) -> None:
        self.core = SchedulerCore()
        self.ledger = MemoryLedger()
        self.calls: list[CommitLedger] = []
        self.reported: list[object] = []
        self.tell(LedgerLoaded(), 0)
        self.tell(a_node("n1", a_topology(zones_per_socket=1)), 0)
        self.allocatable(4_000, 0)

    def allocatable(self, mcpu: int, now_ms: int) -> None:
        self.tell(an_allocatable("n1", [(mcpu, 8 * GIB)], at_ms=now_ms), now_ms)

    def tell(self, event: object, now_ms: int) -> None:
        self._do(self.core.handle(event, now_ms), now_ms)  # type: ignore[arg-type]
        due_ms = self.core.deadline_ms()
        if due_ms is not None and due_ms <= now_ms:
            self._do(self.core.handle(Wake(), now_ms), now_ms)
        self.core.check()

    def _do(self, effects: list[Effect], now_ms: int) -> None:
        for effect in effects:
            match effect:
                case CommitLedger():
                    self.calls.append(effect)
                case LoadLedgerRows(nodes=nodes):
                    self.tell(LedgerRows(rows=now(self.ledger.rows(nodes))), now_ms)
                case Publish(fact=fact):
                    self.reported.append(fact)
                case _:
                    pass

    def commit(self, now_ms: int) -> int:
        """Do all commits that wait; how many reservations the ledger took."""
        calls, self.calls = self.calls, []
        answers = [answer for call in calls for answer in now(self.ledger.commit(call.reserves))]
        self.tell(LedgerAnswered(answers=tuple(answers)), now_ms)
        return sum(len(answer.accepted) for answer in answers)


def wanted(talk: Talk, count: int) -> None:
    talk.tell(
        PlacementsRequested(
            placement_requests=tuple(a_placement_request(f"j/t/{number}", mcpu=1_000) for number in range(count))
        ),
        10,
    )


def test_what_does_not_fit_any_more_is_not_committed_when_the_ledger_is_back() -> None:
    talk = Talk()
    wanted(talk, 4)
    (call,) = talk.calls
    assert len(call.reserves[0].holds) == 4
    talk.calls.clear()
    # The promise shrinks while the call waits; the shell gives the call up.
    talk.allocatable(2_000, 1_000)
    assert talk.calls == []
    talk.tell(LedgerRefused(effect=call, is_late=True), 5_000)
    assert (talk.calls, talk.core.counts["commits_late"]) == ([], 4)
    talk.tell(Wake(), 6_000)
    assert talk.commit(6_000) == 2
    (row,) = now(talk.ledger.rows(["n1"]))
    assert sum(r.placement.cpu_mcpu for r in row.holds) == 2_000
    assert [len(fact.placements) for fact in talk.reported if isinstance(fact, PlacementsDecided)] == [2]
    assert any(isinstance(fact, PlacementRejected) for fact in talk.reported)


def test_facts_that_come_after_the_late_decision_count_too() -> None:
    talk = Talk()
    wanted(talk, 4)
    (call,) = talk.calls
    talk.calls.clear()
    talk.tell(LedgerRefused(effect=call, is_late=True), 5_000)
    # Heard only now, for nobody heard anything while the ledger was away.
    talk.allocatable(1_000, 1_000)
    talk.tell(Wake(), 6_000)
    assert talk.commit(6_000) == 1


def test_a_late_call_that_was_written_all_the_same_is_found_in_the_row_and_told() -> None:
    talk = Talk()
    wanted(talk, 2)
    (call,) = talk.calls
    talk.calls.clear()
    now(talk.ledger.commit(call.reserves))
    talk.tell(LedgerRefused(effect=call, is_late=True), 5_000)
    talk.tell(Wake(), 6_000)
    assert talk.calls == []
    assert [len(fact.placements) for fact in talk.reported if isinstance(fact, PlacementsDecided)] == [2]
