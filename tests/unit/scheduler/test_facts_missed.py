"""Ends that a stream discarded before a scheduler received them: whoever runs what is held, or has ended it, says so again."""

from colo_common.events.effects import FactsMissed, Publish
from colo_common.events.placement import ApplyPlacements
from colo_common.model.partition import PartitionsHeld
from colo_scheduler.commit.jobs_asked import AskPending
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger.port import Hold, LedgerLoaded, LedgerRows, LoadLedgerRows, NodeRow
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
    assert AskPending() in effects
    assert [effect.nodes for effect in effects if isinstance(effect, LoadLedgerRows)] == [("n1", "n2")]
    published = [effect.fact for effect in core.handle(LedgerRows(rows=rows[:2]), 6) if isinstance(effect, Publish)]
    orders = [fact for fact in published if isinstance(fact, ApplyPlacements)]
    assert [(order.node, [one.replica for one in order.placements]) for order in orders] == [
        ("n1", ["a/t/0", "b/t/0"]),
        ("n2", ["c/t/0"]),
    ]
