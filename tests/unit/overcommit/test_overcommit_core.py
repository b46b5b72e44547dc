"""What the core says about samples, late nodes and questions."""

import pytest

from colo_common.events.effects import Publish, Reply, RequestReceived, Wake
from colo_common.events.node import AllocatableChanged, FreshnessChanged, LeaseRenewed
from colo_common.events.placement import NodeRelease, PlacementsReleased
from colo_common.events.requests import (
    ExplainAllocatable,
    HoldEntry,
    HoldsListed,
    HoldsReply,
    ListNodes,
    NodeExplained,
    NodeList,
    Refusal,
)
from colo_common.model.freshness import FORGET_NODE_MS, Freshness, FreshnessPolicy
from colo_common.model.invalid import InvalidInput
from colo_overcommit.core import Event, OvercommitCore
from colo_overcommit.explain import recompute
from colo_overcommit.policy import OvercommitPolicy
from tests.support.builders import a_node, a_placement, a_sample, decided

POLICY = OvercommitPolicy(freshness=FreshnessPolicy(stale_after_ms=10_000, lost_after_ms=60_000, warm_samples=2))


def facts(core: OvercommitCore, event: Event, now_ms: int) -> list[object]:
    effects = core.handle(event, now_ms)
    core.check()
    return [effect.fact for effect in effects if isinstance(effect, Publish)]


def a_fresh_core() -> OvercommitCore:
    core = OvercommitCore(POLICY)
    core.handle(a_node(), 0)
    core.handle(a_sample(seq=1), 1000)
    core.handle(a_sample(seq=2), 2000)
    return core


def test_the_first_sample_warms_and_the_second_publishes() -> None:
    core = OvercommitCore(POLICY)
    assert facts(core, a_node(), 0) == []
    first = facts(core, a_sample(seq=1), 1000)
    assert [type(fact) for fact in first] == [FreshnessChanged, LeaseRenewed]
    second = facts(core, a_sample(seq=2), 2000)
    assert [type(fact) for fact in second] == [FreshnessChanged, AllocatableChanged, LeaseRenewed]
    published = next(fact for fact in second if isinstance(fact, AllocatableChanged))
    assert published.batch_cpu_mcpu == 2 * (16_000 - 4_000 - 500 - 4_000)
    assert published.sample_seq == 2
    assert recompute(published.explanation) == published.zones


def test_a_sample_of_an_unknown_node_is_counted_and_changes_nothing() -> None:
    core = OvercommitCore(POLICY)
    assert core.handle(a_sample("ghost"), 1000) == []
    assert core.dropped.no_topology == 1


def test_an_older_sample_of_the_same_boot_is_dropped() -> None:
    core = a_fresh_core()
    assert core.handle(a_sample(seq=1), 3000) == []
    assert core.dropped.old_sample == 1


def test_a_small_rise_is_not_published_and_a_fall_is_published_at_once() -> None:
    core = a_fresh_core()
    quiet = facts(core, a_sample(seq=3, zones=((3800, 8), (4000, 8))), 3000)
    assert [type(fact) for fact in quiet] == [LeaseRenewed]
    loud = facts(core, a_sample(seq=4, zones=((5000, 8), (4000, 8))), 4000)
    assert [type(fact) for fact in loud] == [AllocatableChanged, LeaseRenewed]


def test_a_rise_waits_until_nothing_fell_for_the_hold() -> None:
    core = a_fresh_core()
    facts(core, a_sample(seq=3, zones=((8000, 8), (4000, 8))), 3000)
    assert len(facts(core, a_sample(seq=4), 4000)) == 1
    assert len(facts(core, a_sample(seq=5), 12_999)) == 1
    assert [type(fact) for fact in facts(core, a_sample(seq=6), 13_000)] == [AllocatableChanged, LeaseRenewed]


def test_a_late_node_is_promised_less_and_less_down_to_what_it_holds() -> None:
    core = a_fresh_core()
    core.handle(decided(a_placement(mcpu=3000, gib=4)), 2500)
    assert core.deadline_ms() == 12_000
    published = facts(core, Wake(), 12_000)
    changed, allocatable = published
    assert isinstance(changed, FreshnessChanged)
    assert (changed.freshness, changed.previous, changed.age_ms) == (Freshness.STALE, Freshness.FRESH, 10_000)
    assert isinstance(allocatable, AllocatableChanged)
    numbers = [allocatable.batch_cpu_mcpu]
    while (due_ms := core.deadline_ms()) is not None and due_ms < 62_000:
        (allocatable,) = facts(core, Wake(), due_ms)
        assert isinstance(allocatable, AllocatableChanged)
        numbers.append(allocatable.batch_cpu_mcpu)
    assert numbers == sorted(numbers, reverse=True)
    assert (len(numbers), allocatable.batch_cpu_mcpu, allocatable.batch_memory_bytes) == (5, 3000, 4 << 30)
    assert core.deadline_ms() == 62_000
    lost = facts(core, Wake(), 62_000)
    assert isinstance(lost[0], FreshnessChanged)
    assert lost[0].freshness is Freshness.LOST
    assert core.deadline_ms() == lost[0].at_ms + FORGET_NODE_MS


def test_a_node_that_comes_back_warms_up_before_it_is_promised_again() -> None:
    core = a_fresh_core()
    facts(core, Wake(), 12_000)
    facts(core, Wake(), 62_000)
    back = facts(core, a_sample(seq=3), 70_000)
    assert [fact.freshness for fact in back if isinstance(fact, FreshnessChanged)] == [Freshness.WARMING]
    again = facts(core, a_sample(seq=4), 71_000)
    assert [type(fact) for fact in again] == [FreshnessChanged, AllocatableChanged, LeaseRenewed]


def test_holds_are_counted_once_and_released() -> None:
    core = a_fresh_core()
    placement = a_placement(mcpu=2000)
    core.handle(decided(placement), 2100)
    core.handle(decided(placement), 2200)
    hold = HoldEntry(node="n1", replica=placement.replica, attempt=1, zones=placement.zones)
    core.handle(HoldsReply(holds=(hold,), total=1), 2300)
    assert core.nodes["n1"].held.cpu_mcpu == 2000
    released = PlacementsReleased(nodes=(NodeRelease(node="n1", attempts=((placement.replica, 1),)),))
    core.handle(released, 2400)
    core.handle(released, 2500)
    assert core.nodes["n1"].held.cpu_mcpu == 0


def test_a_topology_that_contradicts_itself_is_refused_and_nothing_changes() -> None:
    core = a_fresh_core()
    before = core.nodes["n1"].topology
    good = a_node().topology
    bad = a_node(topology=type(good)(zones=good.zones[:1], cpus=good.cpus))
    with pytest.raises(InvalidInput, match="names a zone that the node lacks"):
        core.handle(bad, 3000)
    assert core.nodes["n1"].topology is before


def test_questions_are_answered() -> None:
    core = a_fresh_core()

    def ask(body: object) -> object:
        (reply,) = core.handle(RequestReceived(request="r1", body=body), 3000)  # type: ignore[arg-type]
        assert isinstance(reply, Reply)
        return reply.body

    nodes = ask(ListNodes())
    assert isinstance(nodes, NodeList)
    assert (nodes.nodes[0].node, nodes.nodes[0].freshness, nodes.nodes[0].sample_age_ms) == (
        "n1",
        Freshness.FRESH,
        1000,
    )
    explained = ask(ExplainAllocatable(node="n1"))
    assert isinstance(explained, NodeExplained)
    assert recompute(explained.newest) == explained.published.zones
    refused = ask(ExplainAllocatable(node="nowhere"))
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.field) == (404, "node")


def test_a_node_that_is_known_and_sends_no_sample_is_lost_in_the_end() -> None:
    """It died before this service started: its replicas wait for somebody to say so."""
    core = OvercommitCore(POLICY)
    core.handle(a_node(), 1_000)
    assert facts(core, Wake(), 11_000) == []
    (lost,) = facts(core, Wake(), 61_000)
    assert isinstance(lost, FreshnessChanged)
    assert (lost.previous, lost.freshness, lost.age_ms) == (Freshness.UNKNOWN, Freshness.LOST, 60_000)
    assert core.deadline_ms() == 61_000 + FORGET_NODE_MS
    (back, _) = facts(core, a_sample(seq=1), 70_000)
    assert isinstance(back, FreshnessChanged)
    assert back.freshness is Freshness.WARMING


def test_a_placement_that_is_delivered_again_after_its_release_holds_nothing() -> None:
    core = a_fresh_core()
    placement = a_placement(mcpu=2000)
    core.handle(decided(placement), 2100)
    core.handle(PlacementsReleased(nodes=(NodeRelease(node="n1", attempts=((placement.replica, 1),)),)), 2200)
    core.handle(decided(placement), 32_100)
    assert core.nodes["n1"].held.cpu_mcpu == 0


def test_the_ledgers_list_heals_what_was_missed() -> None:
    core = a_fresh_core()
    stale, missed = a_placement("job/main/0", mcpu=2000), a_placement("job/main/1", mcpu=500)
    core.handle(decided(stale), 2100)
    hold = HoldEntry(node="n1", replica=missed.replica, attempt=1, zones=missed.zones)
    core.handle(HoldsListed(holds=(hold,), asked_at_ms=30_000), 30_100)
    assert core.nodes["n1"].held.attempts == ("job/main/0#1", "job/main/1#1"), "too young to be let go"
    core.handle(HoldsListed(holds=(hold,), asked_at_ms=0), 90_000)
    assert len(core.nodes["n1"].held) == 2, "a list that may lack something lets nothing go"
    core.handle(HoldsListed(holds=(hold,), asked_at_ms=90_000), 90_100)
    assert core.nodes["n1"].held.attempts == ("job/main/1#1",)
    assert core.dropped.unlisted_holds == 1


def test_what_the_newest_sample_allows_is_known_whether_it_was_published_or_not() -> None:
    core = a_fresh_core()
    (known,) = core.nodes.values()
    assert known.published is not None
    assert known.possible_mcpu == known.published.batch_cpu_mcpu == 15_000
    used = known.sample.zones if known.sample is not None else ()
    little_more = ((used[0].cpu_used_mcpu + 10, 8), (used[1].cpu_used_mcpu, 8))
    assert [type(fact) for fact in facts(core, a_sample(seq=3, zones=little_more), 3000)] == [LeaseRenewed]
    assert known.possible_mcpu == 14_990


def test_no_more_is_believed_to_be_held_than_a_zone_has() -> None:
    core = a_fresh_core()
    core.handle(decided(a_placement("ghost/main/0", mcpu=288_000)), 2100)
    effects = core.handle(a_sample(seq=9), 3000)
    (published,) = [e.fact for e in effects if isinstance(e, Publish) and isinstance(e.fact, AllocatableChanged)]
    topology = core.nodes["n1"].topology
    assert topology is not None
    assert 0 < published.batch_cpu_mcpu <= topology.cpu_capacity_mcpu
    assert recompute(published.explanation) == published.zones
