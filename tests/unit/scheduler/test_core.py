"""The core's timer, its limits and what it refuses; stories are in tests/scripts/scheduler."""

import re
from typing import Any

import pytest
from msgspec import structs

from colo_common.events.effects import Publish, Reply, RequestReceived, Wake
from colo_common.events.job import PlacementsRequested, ReplicasWithdrawn
from colo_common.events.placement import PlacementRejected, PlacementsDecided, ReasonCount
from colo_common.events.requests import ExplainPlacement, HoldsReply, ListHolds, ListNodes, PlacementsExplained, Refusal
from colo_common.events.service import DeadLettered
from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import Reason
from colo_common.model.workload import ResourceRequest
from colo_overcommit.core import OvercommitCore
from colo_overcommit.policy import OvercommitPolicy
from colo_scheduler.commit.jobs_asked import AskPending
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger.port import HOLDS_MAX, CommitLedger, LedgerLoaded
from colo_scheduler.placement.records import Decisions, RejectionThrottle
from colo_scheduler.placement.report import Report
from colo_scheduler.policy import SchedulerPolicy
from colo_scheduler.requests.request_class import class_of
from tests.support.builders import GIB, a_node, a_topology
from tests.support.scheduler_story import Bench, a_placement_request, an_allocatable


def a_bench(policy: SchedulerPolicy | None = None, *, mcpu: int = 4000) -> Bench:
    bench = Bench(policy)
    bench.say(a_node("n1", a_topology(zones_per_socket=1, cpus=64)))
    bench.say(an_allocatable("n1", [(mcpu, 64 * GIB)]))
    return bench


def wanted(count: int, **about: Any) -> PlacementsRequested:
    return PlacementsRequested(
        placement_requests=tuple(a_placement_request(f"j/t/{n:03}", **about) for n in range(count))
    )


def test_nothing_is_decided_before_the_ledger_is_read() -> None:
    core = SchedulerCore()
    core.handle(a_node("n1"), 0)
    core.handle(an_allocatable("n1", [(4000, GIB), (4000, GIB)]), 0)
    core.handle(wanted(1), 0)
    assert core.deadline_ms() is None
    assert core.handle(Wake(), 0) == []
    core.handle(LedgerLoaded(), 5)
    assert core.deadline_ms() == 5
    assert [type(effect) for effect in core.handle(Wake(), 5)] == [CommitLedger]


def test_after_a_wake_the_deadline_is_later_even_when_work_is_left() -> None:
    bench = a_bench(SchedulerPolicy(batch_max=2, ledger_refresh_ms=0))
    core = bench.core
    core.handle(wanted(5, mcpu=100), 10)
    assert core.deadline_ms() == 10
    core.handle(Wake(), 10)
    assert core.deadline_ms() == 11
    core.handle(Wake(), 11)
    core.handle(Wake(), 12)
    # Nothing is left but to wait for the ledger, and not for ever.
    assert core.deadline_ms() == 10 + core.policy.assume_ms


def test_an_idle_core_only_waits_for_the_refresh() -> None:
    bench = a_bench(SchedulerPolicy(ledger_refresh_ms=500))
    assert bench.core.deadline_ms() == 500


def test_one_commit_carries_at_most_50_reservations() -> None:
    bench = a_bench(mcpu=60_000)
    bench.core.handle(wanted(120, mcpu=100, memory_bytes=1), 0)
    commits = [effect for effect in bench.core.handle(Wake(), 0) if isinstance(effect, CommitLedger)]
    sizes = [sum(len(reserve.holds) for reserve in commit.reserves) for commit in commits]
    assert sizes == [HOLDS_MAX, HOLDS_MAX, 20]
    assert [commit.reserves[0].expect for commit in commits] == [0, 1, 2]


def test_what_is_assumed_is_not_decided_again_and_counts_as_held() -> None:
    bench = a_bench(mcpu=1000)
    core = bench.core
    core.handle(wanted(1), 0)
    (commit,) = core.handle(Wake(), 0)
    assert isinstance(commit, CommitLedger)
    core.handle(wanted(2), 0)
    (rejection,) = core.handle(Wake(), 1)
    assert isinstance(rejection, Publish)
    assert isinstance(rejection.fact, PlacementRejected)
    assert (rejection.fact.replica, rejection.fact.nearest and rejection.fact.nearest.have) == ("j/t/001", 0)
    core.check()


def test_a_want_withdrawn_while_its_commit_is_under_way_is_released_and_never_told() -> None:
    bench = a_bench()
    core = bench.core
    core.handle(wanted(1), 0)
    (commit,) = core.handle(Wake(), 0)
    core.handle(ReplicasWithdrawn(attempts=(("j/t/000", 1),), reason=Reason.CANCELLED), 0)
    answer = bench.perform(commit)
    assert answer is not None
    assert core.handle(answer, 0) == []  # type: ignore[arg-type]
    effects = bench.wake()
    assert not any(isinstance(e, Publish) and isinstance(e.fact, PlacementsDecided) for e in effects)
    assert core.commits.held == {}


BAD = {
    "no CPU": (
        structs.replace(a_placement_request(), request=ResourceRequest(cpu_mcpu=0, memory_bytes=1)),
        "request.cpu_mcpu",
    ),
    "negative memory": (
        structs.replace(a_placement_request(), request=ResourceRequest(cpu_mcpu=1, memory_bytes=-1)),
        "memory_bytes",
    ),
    "absurd CPU": (
        structs.replace(a_placement_request(), request=ResourceRequest(cpu_mcpu=1 << 25, memory_bytes=1)),
        "cpu_mcpu",
    ),
    "attempt 0": (a_placement_request(attempt=0), "attempt"),
    "no name": (a_placement_request(""), "replica"),
}


@pytest.mark.parametrize(("placement_request", "field"), BAD.values(), ids=BAD.keys())
def test_a_want_that_breaks_a_rule_is_named_and_the_others_are_taken(placement_request: Any, field: str) -> None:
    core = a_bench().core
    dead_letter, *delivered = core.handle(
        PlacementsRequested(placement_requests=(a_placement_request("j/t/ok"), placement_request)), 1
    )
    assert isinstance(dead_letter, Publish)
    assert isinstance(dead_letter.fact, DeadLettered)
    assert re.match(rf"wants\[1\]\.\S*{field}", dead_letter.fact.reason)
    assert (len(core.queue), core.counts["wants_refused"]) == (1, 1)
    if field in ("attempt", "replica"):
        # Nobody can be told whose it is.
        assert delivered == []
        with pytest.raises(InvalidInput, match=rf"wants\[0\]\.\S*{field}"):
            core.handle(PlacementsRequested(placement_requests=(placement_request,)), 2)
        return
    (reported,) = delivered
    assert isinstance(reported, Publish)
    assert isinstance(reported.fact, PlacementRejected)
    assert re.match(rf"\S*{field}", reported.fact.broken_rule)
    assert reported.fact.never
    (_, again) = core.handle(PlacementsRequested(placement_requests=(placement_request,)), 2)
    assert isinstance(again, Publish)
    assert isinstance(again.fact, PlacementRejected)
    assert len(core.queue) == 1
    (record,) = core._records.explain("job", "job/main/0", None)
    assert record.broken_rule == reported.fact.broken_rule


def test_wants_above_the_limit_are_left_out_counted_and_asked_for_again() -> None:
    bench = a_bench(SchedulerPolicy(waiting_max=2), mcpu=0)
    bench.say(wanted(3))
    assert bench.core.counts["wants_left_out"] == 1
    effects = bench.say(an_allocatable("n1", [(4000, 64 * GIB)], at_ms=1))
    assert [effect for effect in effects if isinstance(effect, AskPending)] == [AskPending()]


def test_holds_are_paged_in_a_stable_order() -> None:
    bench = a_bench(mcpu=9000)
    bench.say(wanted(5))
    replies = [
        bench.tell(RequestReceived(request="r", body=ListHolds(offset=offset, limit=2)))[0] for offset in (0, 2, 4, 6)
    ]
    bodies = [reply.body for reply in replies if isinstance(reply, Reply)]
    assert [[h.replica for h in body.holds] for body in bodies if isinstance(body, HoldsReply)] == [
        ["j/t/000", "j/t/001"],
        ["j/t/002", "j/t/003"],
        ["j/t/004"],
        [],
    ]


def test_holds_tell_class_and_band_so_that_online_work_is_not_counted_as_batch_work() -> None:
    bench = Bench()
    bench.say(a_node("n1", a_topology(zones_per_socket=1, cpus=16), is_online=True))
    bench.say(an_allocatable("n1", [(8_000, 64 * GIB)], mid=[(1_000, GIB)]))
    own = [(QosClass.LSE, 2_000), (QosClass.LSR, 2_000), (QosClass.LS, 1_500)]
    online = [
        a_placement_request(f"web/{qos.lower()}/0", qos=qos, band=PriorityBand.PROD, mcpu=mcpu) for qos, mcpu in own
    ]
    bench.say(
        PlacementsRequested(
            placement_requests=(
                *online,
                a_placement_request("batch/t/0", mcpu=700),
                a_placement_request("mid/t/0", band=PriorityBand.MID),
            )
        )
    )
    (reply,) = bench.tell(RequestReceived(request="r", body=ListHolds()))
    assert isinstance(reply, Reply)
    assert isinstance(reply.body, HoldsReply)
    assert {hold.replica: (hold.qos, hold.band) for hold in reply.body.holds} == {
        "web/lse/0": (QosClass.LSE, PriorityBand.PROD),
        "web/lsr/0": (QosClass.LSR, PriorityBand.PROD),
        "web/ls/0": (QosClass.LS, PriorityBand.PROD),
        "batch/t/0": (QosClass.BE, PriorityBand.BATCH),
        "mid/t/0": (QosClass.BE, PriorityBand.MID),
    }
    overcommit = OvercommitCore(OvercommitPolicy())
    overcommit.handle(a_node("n1", a_topology(zones_per_socket=1, cpus=16), is_online=True), 0)
    overcommit.handle(reply.body, 0)
    held = overcommit.nodes["n1"].held
    assert (held.cpu_mcpu, held.mid_cpu_mcpu, held.exclusive_by_zone(), len(held)) == (700, 1_000, {0: 2_000}, 5)


@pytest.mark.parametrize(
    ("body", "code"),
    [(ListHolds(limit=0), 400), (ListHolds(limit=1001), 400), (ListHolds(offset=-1), 400), (ListNodes(), 404)],
)
def test_a_question_that_cannot_be_answered_gets_a_refusal(body: Any, code: int) -> None:
    (reply,) = a_bench().tell(RequestReceived(request="r", body=body))
    assert isinstance(reply, Reply)
    assert isinstance(reply.body, Refusal)
    assert reply.body.code == code


def test_a_replica_behind_the_head_of_its_class_is_explained_like_the_head() -> None:
    bench = a_bench(SchedulerPolicy(quantum=1), mcpu=0)
    bench.say(wanted(2))
    (reply,) = bench.tell(RequestReceived(request="r", body=ExplainPlacement(job="j", replica="j/t/001")))
    assert isinstance(reply, Reply)
    assert isinstance(reply.body, PlacementsExplained)
    (record,) = reply.body.decisions
    assert (record.replica, record.counts[0].reason) == ("j/t/001", Reason.BATCH_CPU_SHORT)


def test_check_finds_a_hold_that_the_cluster_lost() -> None:
    bench = a_bench()
    bench.say(wanted(1))
    node = bench.core.cluster.node("n1")
    bench.core.cluster.drop(node, ("j/t/000", 1))
    with pytest.raises(InvariantBroken, match="a hold is not in its node"):
        bench.core.check()


def test_the_oldest_decision_is_forgotten_at_the_limit() -> None:
    bench = a_bench(SchedulerPolicy(records_max=3), mcpu=60_000)
    bench.say(wanted(5))
    (reply,) = bench.tell(RequestReceived(request="r", body=ExplainPlacement(job="j")))
    assert isinstance(reply, Reply)
    assert isinstance(reply.body, PlacementsExplained)
    assert [record.replica for record in reply.body.decisions] == ["j/t/002", "j/t/003", "j/t/004"]
    assert Decisions(3).of("j", "") == ()


def report(nodes: int, *reasons: Reason, is_unresolvable: bool = False) -> Report:
    return Report(nodes, tuple(ReasonCount(reason=r, nodes=1) for r in reasons), None, is_unresolvable)


NEWS = {
    "the same again, at once": (report(1, Reason.BATCH_CPU_SHORT), 1, False),
    "the same again, much later": (report(1, Reason.BATCH_CPU_SHORT), 99_000, False),
    "other numbers, at once": (report(2, Reason.BATCH_CPU_SHORT), 1, False),
    "other numbers, a minute later": (report(2, Reason.BATCH_CPU_SHORT), 60_000, True),
    "another reason, at once": (report(1, Reason.NODE_NOT_FRESH), 1, True),
    "one more reason, at once": (report(1, Reason.NODE_NOT_FRESH, Reason.BATCH_CPU_SHORT), 1, True),
    "found to be impossible, at once": (report(1, Reason.BATCH_CPU_SHORT, is_unresolvable=True), 1, True),
}


@pytest.mark.parametrize(("then", "now_ms", "expected"), NEWS.values(), ids=NEWS.keys())
def test_a_rejection_is_said_when_it_is_news(then: Report, now_ms: int, expected: bool) -> None:
    published = RejectionThrottle(10, 60_000)
    request = class_of(a_placement_request())
    assert published.is_news(request, "j", report(1, Reason.BATCH_CPU_SHORT), 0)
    assert published.is_news(request, "j", then, now_ms) is expected
    assert published.is_news(request, "k", then, now_ms)


def test_numbers_alone_are_said_again_ever_more_rarely_until_the_reasons_change() -> None:
    published, request = RejectionThrottle(10, 60_000), class_of(a_placement_request())
    reported = []
    for minute in range(100):
        if published.is_news(request, "j", report(minute + 1, Reason.BATCH_CPU_SHORT), minute * 60_000):
            reported.append(minute)
    assert reported == [0, 1, 3, 7, 15, 31, 47, 63, 79, 95]
    assert published.is_news(request, "j", report(1, Reason.BATCH_MEMORY_SHORT), 99 * 60_000 + 1)
    assert published.is_news(request, "j", report(2, Reason.BATCH_MEMORY_SHORT), 100 * 60_000 + 1), "it begins anew"
