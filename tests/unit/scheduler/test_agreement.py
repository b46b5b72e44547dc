"""A ledger row that contradicts its node: the node is left out with a reason, and nothing else is disturbed."""

import pytest
from msgspec import structs

from colo_common.events.effects import Publish, Wake
from colo_common.events.job import ReplicasWanted
from colo_common.events.placement import PlacementRejected
from colo_common.model.placement import ZoneShare
from colo_common.model.reasons import Reason
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger import CommitLedger, LedgerLoaded, LedgerRows, NodeRow, Reservation
from tests.support.builders import GIB, a_node, a_placement, a_topology
from tests.support.scheduler_story import a_want, an_allocatable


def a_row(*zones: ZoneShare, unreadable: tuple[str, ...] = ()) -> NodeRow:
    placement = structs.replace(a_placement("old/t/0", node="n1"), zones=zones)
    held = (Reservation(placement=placement, generation=1),) if zones else ()
    return NodeRow(node="n1", revision=1, changes=1, reservations=held, unreadable=unreadable)


def a_share(zone: int = 0, mcpu: int = 1_000, memory_bytes: int = GIB) -> ZoneShare:
    return ZoneShare(zone=zone, cpu_mcpu=mcpu, memory_bytes=memory_bytes)


def a_core(row: NodeRow) -> SchedulerCore:
    """A node of 2 zones, each of 8 CPUs and 32 GiB, and its row."""
    core = SchedulerCore()
    core.handle(a_node("n1", a_topology(zones_per_socket=2, cpus=8, memory_gib=32)), 0)
    core.handle(an_allocatable("n1", ((8_000, 32 * GIB), (8_000, 32 * GIB))), 0)
    core.handle(LedgerRows(rows=(row,)), 0)
    core.handle(LedgerLoaded(), 0)
    return core


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (a_row(a_share(zone=7)), "the ledger holds CPU in zone 7, which the node lacks"),
        (a_row(a_share(mcpu=5_000), a_share(mcpu=5_000)), "batch work holds 10000 mCPU in zone 0, which has 8000"),
        (a_row(a_share(memory_bytes=1 << 40)), f"batch work holds {1 << 40} bytes in zone 0, which has {32 * GIB}"),
        (
            a_row(unreadable=("h:x#1: rubbish",)),
            "1 entries of the ledger row cannot be read; the first: h:x#1: rubbish",
        ),
    ],
    ids=["unknown zone", "more CPU than there is", "more memory than there is", "unreadable"],
)
def test_a_node_whose_row_contradicts_it_is_left_out_with_the_reason(row: NodeRow, why: str) -> None:
    core = a_core(row)
    assert core.cluster.node("n1").disagreement == why
    assert core.counts["nodes_disagreed"] == 1
    core.handle(ReplicasWanted(wants=(a_want("j/t/0"),)), 0)
    (rejected,) = [e.fact for e in core.handle(Wake(), 0) if isinstance(e, Publish)]
    assert isinstance(rejected, PlacementRejected)
    assert [(count.reason, count.nodes) for count in rejected.counts] == [(Reason.LEDGER_DISAGREES, 1)]
    core.check()


def test_other_nodes_take_work_as_ever() -> None:
    core = a_core(a_row(a_share(zone=7)))
    core.handle(a_node("n2"), 0)
    core.handle(an_allocatable("n2", ((8_000, 32 * GIB), (8_000, 32 * GIB))), 0)
    core.handle(ReplicasWanted(wants=(a_want("j/t/0"),)), 0)
    (commit,) = [e for e in core.handle(Wake(), 0) if isinstance(e, CommitLedger)]
    assert [reserve.node for reserve in commit.reserves] == ["n2"]


def test_a_node_is_taken_back_when_its_row_or_its_topology_is_put_right() -> None:
    core = a_core(a_row(a_share(zone=7)))
    core.handle(LedgerRows(rows=(a_row(),)), 0)
    assert core.cluster.node("n1").disagreement == ""
    grown = a_core(a_row(a_share(mcpu=10_000)))
    grown.handle(structs.replace(a_node("n1", a_topology(cpus=32)), at_ms=1), 1)
    assert grown.cluster.node("n1").disagreement == ""


def test_what_is_held_within_the_machine_is_no_contradiction_although_less_is_promised_now() -> None:
    core = a_core(a_row(a_share(mcpu=6_000)))
    core.handle(an_allocatable("n1", ((1_000, GIB), (1_000, GIB)), at_ms=1), 1)
    assert core.cluster.node("n1").disagreement == ""
