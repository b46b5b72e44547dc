"""Ends that no scheduler received, because their stream lost them: whoever runs what is held, or has ended it, says so again."""

import pytest
from msgspec.structs import replace

from colo_common.events.effects import FactsMissed, Publish, Wake
from colo_common.events.placement import ApplyPlacements
from colo_common.model.partition import PartitionsHeld
from colo_scheduler.commit.jobs_asked import AskPending
from colo_scheduler.commit.rechecks import Rechecks
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger.port import Hold, LedgerLoaded, LedgerRows, LoadLedgerRows, NodeRow
from colo_scheduler.policy import SchedulerPolicy
from tests.support.builders import a_node, a_placement, a_topology


def a_row(node: str, *replicas: str) -> NodeRow:
    holds = tuple(Hold(placement=a_placement(replica, node=node), generation=1) for replica in replicas)
    confirmed = tuple(hold.attempt for hold in holds)
    return NodeRow(node=node, revision=1, changes=1, holds=holds, confirmed=confirmed)


def test_every_held_attempt_of_its_shards_is_ordered_once_more() -> None:
    core = SchedulerCore(shards=2)
    core.handle(LedgerLoaded(), 0)
    rows = (a_row("n1", "a/t/0", "b/t/0"), a_row("n2", "c/t/0"), a_row("n3"))
    for row in rows:
        core.handle(a_node(row.node, a_topology(zones_per_socket=1)), 0)
    core.handle(LedgerRows(rows=rows), 0)
    core.handle(PartitionsHeld(fences=((0, 1), (1, 1))), 0)
    effects = core.handle(FactsMissed(stream="COLO_RUN"), 5)
    # An end that was received here, and released, may be one that the jobs service had not received.
    assert AskPending(compare_holds=True) in effects
    assert [effect.nodes for effect in effects if isinstance(effect, LoadLedgerRows)] == [("n1", "n2")]
    published = [effect.fact for effect in core.handle(LedgerRows(rows=rows[:2]), 6) if isinstance(effect, Publish)]
    orders = [fact for fact in published if isinstance(fact, ApplyPlacements)]
    assert [(order.node, [one.replica for one in order.placements]) for order in orders] == [
        ("n1", ["a/t/0", "b/t/0"]),
        ("n2", ["c/t/0"]),
    ]


def _ordered(core: SchedulerCore, now_ms: int, rows: dict[str, NodeRow]) -> list[str]:
    """The replicas that are ordered when the scheduler wakes, its reads of rows answered."""
    ordered = []
    for effect in core.handle(Wake(), now_ms):
        if isinstance(effect, LoadLedgerRows):
            found = core.handle(LedgerRows(rows=tuple(rows[node] for node in effect.nodes)), now_ms)
            facts = [each.fact for each in found if isinstance(each, Publish)]
            ordered += [one.replica for fact in facts if isinstance(fact, ApplyPlacements) for one in fact.placements]
    return ordered


@pytest.mark.parametrize(("recheck_ms", "expected"), [(60_000, ["a/t/0", "b/t/0", "c/t/0"]), (0, [])])
def test_work_that_runs_for_long_is_ordered_once_more_although_no_gap_was_noticed(
    recheck_ms: int, expected: list[str]
) -> None:
    core = SchedulerCore(SchedulerPolicy(recheck_ms=recheck_ms, ledger_refresh_ms=30_000), shards=2)
    core.handle(LedgerLoaded(), 0)
    rows = {row.node: row for row in (a_row("n1", "a/t/0", "b/t/0"), a_row("n2", "c/t/0"), a_row("n3"))}
    for name in rows:
        core.handle(a_node(name, a_topology(zones_per_socket=1)), 0)
    core.handle(LedgerRows(rows=tuple(rows.values())), 0)
    core.handle(PartitionsHeld(fences=((0, 1), (1, 1))), 0)
    turns = {at_ms: _ordered(core, at_ms, rows) for at_ms in range(30_000, 181_000, 30_000)}
    # Each node is visited once in a minute; the first visit only notes what is there.
    assert sorted(turns[30_000] + turns[60_000]) == []
    assert sorted(turns[90_000] + turns[120_000]) == expected
    assert sorted(turns[150_000] + turns[180_000]) == expected


def test_a_small_cluster_is_asked_no_more_often_than_a_large_one() -> None:
    rechecks = Rechecks(recheck_ms=600_000, turn_ms=30_000)
    due = [bool(rechecks.due(lambda: ["n1"], lambda _node: [("a/t/0", 1)])) for _ in range(60)]
    assert [turn for turn, is_due in enumerate(due) if is_due] == [20, 40]


def test_short_work_and_work_of_other_shards_is_not_ordered_once_more() -> None:
    core = SchedulerCore(SchedulerPolicy(recheck_ms=30_000, ledger_refresh_ms=30_000), shards=2)
    core.handle(LedgerLoaded(), 0)
    first, second = a_row("n1", "a/t/0"), a_row("n1", "b/t/0")
    core.handle(a_node("n1", a_topology(zones_per_socket=1)), 0)
    core.handle(LedgerRows(rows=(first,)), 0)
    core.handle(PartitionsHeld(fences=((0, 1), (1, 1))), 0)
    assert _ordered(core, 30_000, {"n1": first}) == []
    core.handle(LedgerRows(rows=(replace(second, revision=2, changes=2),)), 40_000)
    assert _ordered(core, 60_000, {"n1": second}) == []
    core.handle(PartitionsHeld(fences=()), 70_000)
    assert _ordered(core, 90_000, {"n1": second}) == []
