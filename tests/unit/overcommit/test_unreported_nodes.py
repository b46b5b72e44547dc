"""Nodes that nobody knows, or that the bus has lost, are asked what they are: soon, spread, and ever more seldom."""

from colo_common.events.effects import Publish, StreamLost, Wake
from colo_common.events.external import ExternalCapacity, ExternalCapacityChanged
from colo_common.events.node import AllocatableChanged, FreshnessChanged, NodeFactsWanted
from colo_common.model.freshness import Freshness, FreshnessPolicy
from colo_common.model.partition import PartitionsHeld
from colo_overcommit.core import Event, OvercommitCore
from colo_overcommit.policy import OvercommitPolicy
from colo_overcommit.unreported_nodes import UnreportedNodes
from tests.support.builders import a_node, a_sample

POLICY = OvercommitPolicy(freshness=FreshnessPolicy(stale_after_ms=10_000, lost_after_ms=60_000, warm_samples=2))


def published(core: OvercommitCore, event: Event, now_ms: int, kind: type[object]) -> list[object]:
    effects = core.handle(event, now_ms)
    return [effect.fact for effect in effects if isinstance(effect, Publish) and isinstance(effect.fact, kind)]


def asked_at(core: OvercommitCore, until_s: int) -> list[int]:
    """The seconds at which the node was asked; a sample of it comes each second."""
    return [
        second
        for second in range(1, until_s)
        if published(core, a_sample("n1", seq=second), second * 1_000, NodeFactsWanted)
    ]


def test_a_node_without_a_topology_is_asked_after_three_seconds_then_ever_more_seldom() -> None:
    assert asked_at(OvercommitCore(POLICY), 1_500) == [4, 14, 34, 74, 154, 314, 634, 1_234]


def test_a_node_that_tells_is_asked_no_more() -> None:
    core = OvercommitCore(POLICY)
    assert asked_at(core, 6) == [4]
    core.handle(a_node("n1"), 6_000)
    assert asked_at(core, 100) == []


def test_of_the_nodes_of_others_nobody_is_asked() -> None:
    core = OvercommitCore(POLICY, partitions=1)
    assert asked_at(core, 10) == []
    core.handle(PartitionsHeld(fences=((0, 7),)), 10_000)
    assert asked_at(core, 10) == [4]


def test_a_fleet_is_not_asked_in_one_second() -> None:
    unreported = UnreportedNodes()
    names = [f"n{n}" for n in range(1_200)]
    asks = {
        second: sum(len(unreported.sampled(name, second * 1_000, is_known=False)) for name in names)
        for second in range(1, 8)
    }
    assert asks == {1: 0, 2: 0, 3: 0, 4: 500, 5: 500, 6: 200, 7: 0}


def test_when_the_stream_was_made_again_numbers_are_published_again_and_nodes_are_asked() -> None:
    core = OvercommitCore(POLICY)
    core.handle(a_node("n1"), 0)
    for second in (1, 2, 3):
        core.handle(a_sample("n1", seq=second), second * 1_000)
    core.handle(StreamLost(stream="COLO_EVT"), 3_500)
    assert not published(core, a_sample("n1", seq=4), 4_000, AllocatableChanged)
    core.handle(StreamLost(stream="COLO_NODE"), 4_500)
    assert published(core, a_sample("n1", seq=5), 5_000, AllocatableChanged)
    assert not published(core, a_sample("n1", seq=6), 6_000, NodeFactsWanted)
    assert published(core, a_sample("n1", seq=7), 8_000, NodeFactsWanted)
    core.handle(a_node("n1"), 8_100)
    assert not published(core, a_sample("n1", seq=8), 60_000, NodeFactsWanted)


def test_bounds_of_systems_outside_are_published_again_where_their_stream_was_lost() -> None:
    core = OvercommitCore(POLICY)
    core.handle(a_node("n1"), 0)
    assert not published(core, StreamLost(stream="COLO_POLICY"), 1_000, ExternalCapacityChanged)
    bound = ExternalCapacityChanged(
        at_ms=5_000, node="n1", entries=(ExternalCapacity(source="yarn", until_ms=90_000, cpu_mcpu=1_000),)
    )
    core.handle(bound, 1_000)
    again = published(core, StreamLost(stream="COLO_POLICY"), 2_000, ExternalCapacityChanged)
    assert again == [bound]


def test_after_a_loss_a_node_is_asked_once_although_its_collector_begins_again_and_tells_before() -> None:
    """Its executor lives, and says what runs only when it is asked."""
    core = OvercommitCore(POLICY)
    core.handle(a_node("n1"), 0)
    core.handle(a_sample("n1", seq=1), 500)
    core.handle(StreamLost(stream="COLO_NODE"), 600)
    core.handle(a_node("n1"), 700)
    assert asked_at(core, 100) == [4]


def test_a_service_that_begins_on_a_young_stream_asks_every_node_once_and_one_on_an_old_stream_none() -> None:
    young, old = OvercommitCore(POLICY), OvercommitCore(POLICY)
    young.handle(StreamLost(stream="COLO_NODE"), 0)
    for core in (young, old):
        core.handle(a_node("n1"), 100)
    assert asked_at(young, 100) == [4]
    assert asked_at(old, 100) == []


def test_a_loss_ends_the_wait_of_a_node_that_has_not_answered_for_long() -> None:
    core = OvercommitCore(POLICY)
    assert asked_at(core, 700)[-1] == 634
    core.handle(StreamLost(stream="COLO_NODE"), 700_000)
    seconds = range(701, 800)
    asked = [s for s in seconds if published(core, a_sample("n1", seq=s), s * 1_000, NodeFactsWanted)]
    assert asked == [704, 714, 734, 774]


def test_nodes_that_are_late_are_said_to_be_late_again_where_that_was_lost_and_fresh_ones_are_not() -> None:
    core = OvercommitCore(POLICY)
    for node in ("n1", "n2"):
        core.handle(a_node(node), 0)
        for second in (1, 2, 3):
            core.handle(a_sample(node, seq=second), second * 1_000)
    core.handle(a_sample("n2", seq=60), 65_000)
    assert published(core, Wake(), 65_000, FreshnessChanged)
    (again,) = published(core, StreamLost(stream="COLO_EVT"), 66_000, FreshnessChanged)
    assert isinstance(again, FreshnessChanged)
    assert (again.node, again.freshness, again.previous, again.sample_seq) == ("n1", Freshness.LOST, Freshness.LOST, 3)
    assert again.age_ms == 63_000
