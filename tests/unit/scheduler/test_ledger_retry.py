"""What the ledger said no to for good: given back or asked anew after a while, counted, and nothing else waits for it."""

from msgspec import structs

from colo_common.events.effects import Publish, Wake
from colo_common.events.job import PlacementsRequested
from colo_common.events.placement import PlacementRejected
from colo_common.events.service import DeadLettered
from colo_common.model.workload import ResourceRequest
from colo_scheduler.cluster.cluster import Cluster
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger.port import (
    CommitLedger,
    ConfirmHolds,
    Hold,
    LedgerChanges,
    LedgerLoaded,
    LedgerRefused,
    LedgerRows,
    LoadLedgerRows,
    NodeRow,
    RefreshLedger,
    ReleaseHolds,
)
from colo_scheduler.policy import SchedulerPolicy
from tests.support.builders import GIB, a_node, a_placement
from tests.support.scheduler_story import a_placement_request, an_allocatable

WAIT_MS = SchedulerPolicy().conflict_wait_ms


def a_core(*rows: NodeRow, policy: SchedulerPolicy | None = None, nodes: tuple[str, ...] = ("n1",)) -> SchedulerCore:
    core = SchedulerCore(policy)
    core.handle(LedgerRows(rows=rows), 0)
    core.handle(LedgerLoaded(), 0)
    for name in nodes:
        core.handle(a_node(name), 0)
        core.handle(an_allocatable(name, ((8_000, 32 * GIB), (8_000, 32 * GIB))), 0)
    return core


def commits(core: SchedulerCore, now_ms: int) -> list[CommitLedger]:
    return [effect for effect in core.handle(Wake(), now_ms) if isinstance(effect, CommitLedger)]


def test_a_refused_commit_gives_its_place_back_and_is_decided_again_once_the_row_is_read() -> None:
    core = a_core()
    core.handle(PlacementsRequested(placement_requests=(a_placement_request("j/t/0"),)), 0)
    (call,) = commits(core, 0)
    assert core.handle(LedgerRefused(effect=call), 5) == [LoadLedgerRows(nodes=("n1",))]
    assert (len(core.commits.held), len(core.queue)) == (0, 1)
    assert core.counts["ledger_refused_CommitLedger"] == 1
    core.check()
    assert commits(core, 6) == []
    core.handle(LedgerRows(rows=(NodeRow(node="n1", revision=0, changes=0),)), 7)
    assert [one.reserves[0].expect for one in commits(core, 7)] == [0]
    core.check()


def test_what_else_was_refused_is_asked_anew_together_after_a_while() -> None:
    core = a_core(policy=SchedulerPolicy(ledger_refresh_ms=0))
    core.handle(Wake(), 0)
    core.handle(Wake(), 1)
    for effect in (ReleaseHolds(attempts=(("j/t/0", 1),)), LoadLedgerRows(nodes=("n1",)), RefreshLedger()):
        assert core.handle(LedgerRefused(effect=effect), 10) == []
    assert core.handle(LedgerRefused(effect=ConfirmHolds(attempts=(("j/t/0", 1),))), 10) == []
    assert core.deadline_ms() == 10 + WAIT_MS
    assert core.handle(Wake(), 9 + WAIT_MS) == []
    again = core.handle(Wake(), 10 + WAIT_MS)
    assert again == [RefreshLedger(), LoadLedgerRows(nodes=("n1",)), ReleaseHolds(attempts=(("j/t/0", 1),))]
    assert core.handle(Wake(), 20 + WAIT_MS) == []
    assert core.counts["ledger_refused_ConfirmHolds"] == 1


def test_of_refused_releases_only_so_many_are_kept_and_the_oldest_go() -> None:
    core = a_core(policy=SchedulerPolicy(over_max=2, ledger_refresh_ms=0))
    attempts = tuple((f"j/t/{number}", 1) for number in range(3))
    core.handle(LedgerRefused(effect=ReleaseHolds(attempts=attempts)), 0)
    found = [effect for effect in core.handle(Wake(), WAIT_MS) if isinstance(effect, ReleaseHolds)]
    assert found == [ReleaseHolds(attempts=attempts[1:])]
    assert core.counts["releases_left_out"] == 1


def test_one_bad_want_is_told_by_its_field_and_takes_none_of_the_others_along() -> None:
    core = a_core()
    bad = structs.replace(a_placement_request("j/t/bad"), request=ResourceRequest(cpu_mcpu=0, memory_bytes=GIB))
    effects = core.handle(
        PlacementsRequested(placement_requests=(a_placement_request("j/t/0"), bad, a_placement_request("j/t/2"))), 3
    )
    dead_letter, rejected = [effect.fact for effect in effects if isinstance(effect, Publish)]
    assert isinstance(rejected, PlacementRejected)
    assert rejected.broken_rule == "request.cpu_mcpu: must be from 1 to 16777216 (got 0)"
    assert isinstance(dead_letter, DeadLettered)
    assert "wants[1].request.cpu_mcpu" in dead_letter.reason
    assert "j/t/bad" in dead_letter.payload
    assert (len(core.queue), core.counts["wants_refused"]) == (2, 1)
    assert core.queue.find("j/t/bad") is None


def test_an_empty_row_of_a_node_that_nobody_speaks_of_takes_no_place_and_is_not_read_again() -> None:
    held = Hold(placement=a_placement("old/t/0", node="n3"), generation=4)
    core = a_core(
        NodeRow(node="gone", revision=7, changes=12),
        NodeRow(node="n1", revision=5, changes=9),
        NodeRow(node="n3", revision=4, changes=4, holds=(held,)),
    )
    assert names(core.cluster) == ["n1", "n3"]
    same = (("gone", 12), ("n1", 9), ("n3", 4))
    assert core.handle(LedgerChanges(changes=same), 1) == []
    assert core.handle(LedgerChanges(changes=(("gone", 13), *same[1:])), 1) == [LoadLedgerRows(nodes=("gone",))]
    core.handle(LedgerRows(rows=(NodeRow(node="gone", revision=7, changes=13),)), 1)
    assert names(core.cluster) == ["n1", "n3"]
    # A node that comes back is placed on at the revision that its row has.
    core.handle(PlacementsRequested(placement_requests=(a_placement_request("j/t/0"),)), 1)
    assert [(one.reserves[0].node, one.reserves[0].expect) for one in commits(core, 1)] == [("n1", 5)]
    core.check()


def names(cluster: Cluster) -> list[str]:
    return sorted(node.name for node in cluster.nodes)
