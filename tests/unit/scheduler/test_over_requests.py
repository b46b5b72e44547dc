"""A request for an attempt that is over: a job came back under an id that was used before. It does not wait for ever, silently."""

from colo_common.events.effects import Effect, Publish, Wake
from colo_common.events.job import PlacementsRequested
from colo_common.events.placement import PlacementRejected
from colo_common.events.requests import PendingReply
from colo_scheduler.commit.jobs_asked import AskPending
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger.memory import MemoryLedger
from colo_scheduler.ledger.port import CommitLedger, LedgerAnswered, LedgerLoaded
from tests.support.builders import GIB, a_node, a_topology
from tests.support.scheduler_story import a_placement_request, an_allocatable, now


def a_core() -> SchedulerCore:
    core = SchedulerCore()
    core.handle(LedgerLoaded(), 0)
    core.handle(a_node("n1", a_topology(zones_per_socket=1)), 0)
    core.handle(an_allocatable("n1", [(4_000, 32 * GIB)]), 0)
    return core


def rejections(effects: list[Effect]) -> list[tuple[int, int]]:
    facts = [effect.fact for effect in effects if isinstance(effect, Publish)]
    return [(fact.attempt, fact.newest_over) for fact in facts if isinstance(fact, PlacementRejected)]


def test_an_attempt_that_the_ledger_knows_to_be_over_is_told_when_it_still_waits() -> None:
    ledger, core = MemoryLedger(), a_core()
    now(ledger.release([("j/t/0", 3)]))
    listed = PendingReply(placement_requests=(a_placement_request("j/t/0", attempt=1),), total=1)
    core.handle(PlacementsRequested(placement_requests=listed.placement_requests), 0)
    (call,) = [effect for effect in core.handle(Wake(), 0) if isinstance(effect, CommitLedger)]
    core.handle(LedgerAnswered(answers=now(ledger.commit(call.reserves, call.fences, "own"))), 0)
    # The jobs service may be a little behind with what the ledger knows already.
    assert rejections(core.handle(listed, 1_000)) == []
    assert AskPending() not in core.handle(Wake(), 89_999)
    assert AskPending() in core.handle(Wake(), 90_000)
    assert rejections(core.handle(listed, 90_000)) == [(1, 3)]
    # The next attempt can be placed.
    core.handle(PlacementsRequested(placement_requests=(a_placement_request("j/t/0", attempt=4),)), 90_100)
    (call,) = [effect for effect in core.handle(Wake(), 90_100) if isinstance(effect, CommitLedger)]
    (answer,) = now(ledger.commit(call.reserves, call.fences, "own"))
    assert answer.accepted == (("j/t/0", 4),)


def test_a_request_that_was_overtaken_by_the_end_of_its_attempt_and_waits_no_more_is_not_told() -> None:
    core = a_core()
    request = a_placement_request("j/t/0", attempt=1)
    core.handle(PendingReply(placement_requests=(request,), total=1), 0)
    assert rejections(core.handle(PendingReply(placement_requests=(), total=0), 99_000)) == []
    # The same id hours later is seen anew.
    assert rejections(core.handle(PendingReply(placement_requests=(request,), total=1), 9_000_000)) == []


def test_one_that_is_listed_before_its_time_because_of_another_is_asked_for_again() -> None:
    ledger, core = MemoryLedger(), a_core()
    now(ledger.release([("j/t/0", 3), ("k/t/0", 5)]))
    requests = (a_placement_request("j/t/0", attempt=1), a_placement_request("k/t/0", attempt=1))
    for request, at_ms in zip(requests, (0, 50_000), strict=True):
        core.handle(PlacementsRequested(placement_requests=(request,)), at_ms)
        (call,) = [effect for effect in core.handle(Wake(), at_ms) if isinstance(effect, CommitLedger)]
        core.handle(LedgerAnswered(answers=now(ledger.commit(call.reserves, call.fences, "own"))), at_ms)
    assert AskPending() in core.handle(Wake(), 90_000)
    assert rejections(core.handle(PendingReply(placement_requests=requests, total=2), 90_000)) == [(1, 3)]
    assert AskPending() not in core.handle(Wake(), 139_999)
    assert AskPending() in core.handle(Wake(), 140_000)
    assert rejections(core.handle(PendingReply(placement_requests=requests[1:], total=1), 140_000)) == [(1, 5)]
