"""A ledger row that cannot be read: nothing more is placed on its node, it is counted, and nothing else is disturbed."""

from colo_common.events.effects import Wake
from colo_common.events.job import PlacementsRequested
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger.port import CommitLedger, Hold, LedgerLoaded, LedgerRows, NodeRow
from tests.support.builders import GIB, a_node, a_placement
from tests.support.scheduler_story import a_placement_request, an_allocatable

HELD = Hold(placement=a_placement("old/t/0", node="n1"), generation=1)


def a_row(*unreadable: str) -> NodeRow:
    return NodeRow(node="n1", revision=1, changes=1, holds=(HELD,), unreadable=unreadable)


def a_core(*nodes: str) -> SchedulerCore:
    core = SchedulerCore()
    for name in nodes:
        core.handle(a_node(name), 0)
        core.handle(an_allocatable(name, ((8_000, 32 * GIB), (8_000, 32 * GIB))), 0)
    core.handle(LedgerRows(rows=(a_row("h:x#1: rubbish"),)), 0)
    core.handle(LedgerLoaded(), 0)
    return core


def placed(core: SchedulerCore) -> list[str]:
    core.handle(PlacementsRequested(placement_requests=(a_placement_request("j/t/0"),)), 0)
    calls = [effect for effect in core.handle(Wake(), 0) if isinstance(effect, CommitLedger)]
    return [reserve.node for call in calls for reserve in call.reserves]


def test_nothing_is_placed_beside_what_cannot_be_read_and_what_can_be_read_stays_held() -> None:
    core = a_core("n1")
    assert placed(core) == []
    assert core.counts["rows_unreadable"] == 1
    assert core.commits.unreadable == {"n1": ("h:x#1: rubbish",)}
    assert HELD.attempt in core.commits.held
    core.check()


def test_other_nodes_take_work_as_ever() -> None:
    assert placed(a_core("n1", "n2")) == ["n2"]


def test_a_row_that_was_put_right_takes_its_node_back_in() -> None:
    core = a_core("n1")
    core.handle(LedgerRows(rows=(a_row(),)), 0)
    assert core.commits.unreadable == {}
    assert placed(core) == ["n1"]
