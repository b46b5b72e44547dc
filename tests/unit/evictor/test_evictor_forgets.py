"""Nodes that left for good are forgotten by the evictor, with their stored rows."""

from colo_common.events.effects import Effect, Record, Wake, Write
from colo_common.events.node import FreshnessChanged
from colo_common.events.placement import NodeRelease, PlacementsDecided, PlacementsReleased
from colo_common.model.freshness import Freshness
from colo_evictor.core import EvictorCore
from colo_evictor.policy import EvictorPolicy
from colo_evictor.stored import ROW_KIND, EvictorRowsLoaded, StoredNode
from colo_evictor.watched import EvictorRow
from tests.support.builders import a_node, a_placement

HOUR_MS = 3_600_000


def at(core: EvictorCore, now_ms: int) -> list[Effect]:
    effects: list[Effect] = []
    while (due_ms := core.deadline_ms()) is not None and due_ms <= now_ms:
        effects += core.handle(Wake(), due_ms)
    core.check()
    return effects


def freshness(core: EvictorCore, state: Freshness, now_ms: int) -> None:
    fact = FreshnessChanged(node="n1", freshness=state, previous=Freshness.FRESH, sample_seq=1, age_ms=0, at_ms=now_ms)
    core.handle(fact, now_ms)


def a_core(version: int = 0) -> EvictorCore:
    core = EvictorCore(EvictorPolicy(), HOUR_MS)
    if version:
        core.handle(EvictorRowsLoaded(rows=(StoredNode(node="n1", version=version, row=EvictorRow()),)), 0)
    core.handle(a_node("n1"), 0)
    freshness(core, Freshness.FRESH, 0)
    return core


def test_a_node_that_is_lost_for_long_is_forgotten_with_its_row() -> None:
    core = a_core(version=3)
    freshness(core, Freshness.LOST, 10)
    assert at(core, HOUR_MS) == []
    assert at(core, HOUR_MS + 10) == [Record(writes=(Write(kind=ROW_KIND, id="n1", value=None, expect=3),))]
    assert core.nodes == {}


def test_a_node_without_a_row_leaves_nothing_to_delete_and_one_that_came_back_stays() -> None:
    core = a_core()
    freshness(core, Freshness.LOST, 10)
    freshness(core, Freshness.WARMING, 20)
    assert core.deadline_ms() is None
    freshness(core, Freshness.LOST, 30)
    assert at(core, HOUR_MS + 30) == []
    assert core.nodes == {}


def test_what_is_placed_there_keeps_a_node() -> None:
    core = a_core()
    core.handle(PlacementsDecided(placements=(a_placement("j/t/0", node="n1"),)), 1)
    freshness(core, Freshness.LOST, 10)
    at(core, 2 * HOUR_MS)
    assert list(core.nodes) == ["n1"]
    core.handle(PlacementsReleased(nodes=(NodeRelease(node="n1", attempts=(("j/t/0", 1),)),)), 2 * HOUR_MS)
    at(core, 4 * HOUR_MS)
    assert core.nodes == {}


def test_an_instance_of_overcommit_that_was_replaced_loses_no_node() -> None:
    core = a_core()
    for state, fence in ((Freshness.FRESH, 8), (Freshness.LOST, 5)):
        fact = FreshnessChanged(
            node="n1", freshness=state, previous=Freshness.FRESH, sample_seq=1, age_ms=0, at_ms=10, fence=fence
        )
        core.handle(fact, 10)
    assert core.deadline_ms() is None
