"""Two overcommit cores that share the nodes: one publishes for each, and the other one goes on from what it published."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import structs

from colo_common.events.effects import Publish, Reply, RequestReceived, Wake
from colo_common.events.fact import Fact
from colo_common.events.fleet import GetNode, NodeDetail
from colo_common.events.node import AllocatableChanged, FreshnessChanged, LeaseRenewed, NodeUsageSampled
from colo_common.events.registry import event_of
from colo_common.events.requests import ListNodes, NodeList
from colo_common.events.undecoded import Undecoded
from colo_common.events.wire import encode
from colo_common.model.freshness import Freshness, FreshnessPolicy
from colo_common.model.invalid import InvalidInput
from colo_common.model.partition import PartitionsHeld, partition_of
from colo_overcommit.core import Event, OvercommitCore
from colo_overcommit.histories import HistoriesLoaded, LoadHistories
from colo_overcommit.policy import OvercommitPolicy
from tests.support.builders import a_node, a_sample

NODES = {partition_of(name, 2): name for name in ("n1", "n2", "n3", "n4", "n5", "n6")}
POLICY = OvercommitPolicy(freshness=FreshnessPolicy(stale_after_ms=10_000, lost_after_ms=60_000, warm_samples=2))


class Two:
    """Two instances that hear the same; what one of them says both hear."""

    def __init__(self, policy: OvercommitPolicy = POLICY) -> None:
        self.cores = [OvercommitCore(policy, partitions=2) for _ in range(2)]
        self.dead: list[OvercommitCore] = []
        for core, partition in zip(self.cores, (0, 1), strict=True):
            core.handle(PartitionsHeld(fences=((partition, 1),)), 0)
        for name in NODES.values():
            self.hear(a_node(name), 0)

    def hear(self, event: Event, now_ms: int) -> list[Fact]:
        """What they say to it."""
        published = [fact for core in self.cores if core not in self.dead for fact in facts(core, event, now_ms)]
        for fact in published:
            if isinstance(fact, AllocatableChanged | FreshnessChanged):
                assert not self.hear(fact, now_ms), "an echo is answered"
        return published

    def sample(self, second: int, cpu_mcpu: int = 4000) -> list[Fact]:
        """A sample of each node."""
        zones = ((cpu_mcpu, 8), (cpu_mcpu, 8))
        return [
            fact
            for name in NODES.values()
            for fact in self.hear(
                as_it_came(a_sample(name, seq=1 + second, zones=zones, at_ms=second * 1_000)), second * 1_000
            )
        ]


def as_it_came(sample: NodeUsageSampled) -> Undecoded:
    return Undecoded.of(event_of(NodeUsageSampled).subject.of(node=sample.node), encode(sample))


def answer(core: OvercommitCore, body: ListNodes | GetNode, now_ms: int) -> object:
    (reply,) = core.handle(RequestReceived(request="q", body=body, traceparent=""), now_ms)
    assert isinstance(reply, Reply)
    return reply.body


def facts(core: OvercommitCore, event: Event, now_ms: int) -> list[Fact]:
    effects = core.handle(event, now_ms)
    core.check()
    return [effect.fact for effect in effects if isinstance(effect, Publish)]


def kinds(published: Sequence[Fact]) -> set[type[Fact]]:
    return {type(fact) for fact in published}


def test_each_node_is_promised_by_one_and_known_to_both() -> None:
    two = Two()
    published = [fact for second in range(4) for fact in two.sample(second)]
    renewed = [fact.node for fact in published if isinstance(fact, LeaseRenewed)]
    assert sorted(renewed) == sorted([*NODES.values()] * 4)
    one, other = two.cores
    for name in NODES.values():
        assert one.nodes[name].published == other.nodes[name].published is not None
        assert one.nodes[name].freshness is other.nodes[name].freshness is Freshness.FRESH


def test_a_sample_of_anothers_node_is_computed_when_somebody_asks_and_counts_as_of_its_arrival() -> None:
    two = Two()
    for second in range(4):
        two.sample(second)
    one, other = two.cores
    for core, node in ((one, NODES[1]), (other, NODES[0])):
        assert core.nodes[node].sample is None
        assert core.nodes[node].inputs == ()
    lists = [answer(core, ListNodes(), 5_000) for core in two.cores]
    assert lists[0] == lists[1]
    assert isinstance(lists[0], NodeList)
    assert [row.sample_age_ms for row in lists[0].nodes] == [2_000, 2_000]
    two.sample(6, cpu_mcpu=5000)
    details = [answer(core, GetNode(node=NODES[0]), 6_500) for core in two.cores]
    assert details[0] == details[1]
    assert isinstance(details[0], NodeDetail)
    assert details[0].summary.cpu_used_mcpu == 10_000
    # Whoever asked for it by name is told of all of its samples for a while.
    for second, is_read in ((66, True), (67, False)):
        two.sample(second)
        assert (other.nodes[NODES[0]].unread is None) is is_read


def test_a_malformed_sample_of_anothers_node_is_counted_when_it_is_read_and_changes_nothing() -> None:
    two = Two()
    for second in range(4):
        two.sample(second)
    one = two.cores[0]
    subject = event_of(NodeUsageSampled).subject.of(node=NODES[1])
    malformed = Undecoded.of(subject, b"\xc1")
    assert one.handle(malformed, 4_000) == []
    with pytest.raises(InvalidInput, match=r"n\d\.usage"):
        two.cores[1].handle(malformed, 4_000)
    assert one.dropped.malformed_sample == 0
    assert isinstance(answer(one, GetNode(node=NODES[1]), 5_000), NodeDetail)
    assert one.dropped.malformed_sample == 1


def test_what_the_last_holder_learned_comes_with_the_node() -> None:
    two = Two(structs.replace(POLICY, estimator="peak"))
    holder, next_one = two.cores
    for second in range(0, 1_200, 10):
        two.sample(second, cpu_mcpu=4_000 + second)
    rows = {node: row for node, row in holder.due_histories(1_200_000, 0, 10).items() if row is not None}
    assert list(rows) == [NODES[0]]
    (asked,) = [
        effect
        for effect in next_one.handle(PartitionsHeld(fences=((0, 2), (1, 1))), 1_200_000)
        if not isinstance(effect, Publish)
    ]
    assert asked == LoadHistories(partitions=(0,))
    own = next_one.nodes[NODES[1]].history()
    next_one.handle(HistoriesLoaded(rows={**rows, NODES[1]: b"not asked for"}, partitions=(0,)), 1_200_000)
    learned, known = holder.nodes[NODES[0]].history(), next_one.nodes[NODES[0]].history()
    assert learned is not None
    assert known is not None
    assert known.zones == learned.zones
    assert next_one.nodes[NODES[1]].history() == own


def test_a_node_that_changes_hands_keeps_its_number_and_its_freshness() -> None:
    two = Two()
    for second in range(4):
        two.sample(second)
    survivor = two.cores[1]
    two.dead.append(two.cores[0])
    # Samples go on while nobody promises for the nodes of the dead one.
    published = [fact for second in range(4, 9) for fact in two.sample(second)]
    assert {fact.node for fact in published if isinstance(fact, LeaseRenewed)} == {NODES[1]}
    assert facts(survivor, PartitionsHeld(fences=((0, 2), (1, 1))), 9_000) == []
    published = two.sample(10)
    assert kinds(published) == {LeaseRenewed}
    assert {fact.node for fact in published if isinstance(fact, LeaseRenewed)} == set(NODES.values())
    # A rise still waits for a quiet time after the last fall, whoever saw that fall.
    assert AllocatableChanged in kinds(two.sample(11, cpu_mcpu=9000))
    assert AllocatableChanged not in kinds(two.sample(13, cpu_mcpu=4000))


def test_a_fall_that_another_one_published_holds_back_a_rise_of_the_next_holder() -> None:
    two = Two()
    for second in range(4):
        two.sample(second)
    two.sample(5, cpu_mcpu=9000)
    two.dead.append(two.cores[0])
    facts(two.cores[1], PartitionsHeld(fences=((0, 2), (1, 1))), 7_000)
    assert AllocatableChanged not in kinds(two.sample(8))
    grow_hold_s = POLICY.grow_hold_ms // 1_000
    assert AllocatableChanged in kinds(two.sample(6 + grow_hold_s))


def test_what_was_lost_while_nobody_held_it_is_said_by_the_next_holder() -> None:
    two = Two()
    for second in range(4):
        two.sample(second)
    two.dead.append(two.cores[0])
    survivor = two.cores[1]
    for second in range(4, 30):
        two.hear(as_it_came(a_sample(NODES[1], seq=1 + second, zones=((4000, 8), (4000, 8)))), second * 1_000)
        due_ms = survivor.deadline_ms()
        if due_ms is not None and due_ms <= second * 1_000:
            assert facts(survivor, Wake(), second * 1_000) == []
    published = facts(survivor, PartitionsHeld(fences=((0, 2), (1, 1))), 30_000)
    assert [(fact.node, fact.freshness) for fact in published if isinstance(fact, FreshnessChanged)] == [
        (NODES[0], Freshness.STALE)
    ]


def test_a_number_of_an_instance_that_was_replaced_is_not_taken_over_and_is_published_over() -> None:
    two = Two()
    for second in range(4):
        two.sample(second)
    old, holder = two.cores
    assert facts(holder, PartitionsHeld(fences=((0, 3), (1, 1))), 4_000) == []
    node = NODES[0]
    last = holder.nodes[node].published
    assert last is not None
    # The one that has lost the store goes on for a while, and its number is what the bus keeps last.
    two.hear(structs.replace(last, boot_id="new", fence=3), 4_100)
    late = structs.replace(last, batch_cpu_mcpu=last.batch_cpu_mcpu + 1_000, boot_id="old", fence=2)
    assert facts(holder, late, 4_200) == []
    assert holder.nodes[node].published == last
    second = as_it_came(a_sample(node, seq=9, zones=((4000, 8), (4000, 8)), at_ms=5_000))
    published = facts(holder, second, 5_000)
    assert kinds(published) == {AllocatableChanged, LeaseRenewed}
    # One that does not hold the node takes over the number of the holder and no other.
    assert old.nodes[node].published is not None
    facts(old, PartitionsHeld(fences=()), 5_000)
    facts(old, late, 5_100)
    assert old.nodes[node].published.batch_cpu_mcpu == last.batch_cpu_mcpu


@pytest.mark.parametrize("is_number_first", [True, False])
def test_an_instance_that_starts_learns_that_a_node_is_fresh_from_whoever_said_so_last(is_number_first: bool) -> None:
    two = Two()
    for second in range(4):
        two.sample(second)
    last = two.cores[0].nodes[NODES[0]].published
    assert last is not None
    # It became fresh under its first holder, and the second one published numbers only.
    number = structs.replace(last, boot_id="second", fence=8)
    fresh = FreshnessChanged(
        node=NODES[0],
        freshness=Freshness.FRESH,
        previous=Freshness.WARMING,
        sample_seq=2,
        age_ms=0,
        boot_id="first",
        seq=2,
        fence=5,
    )
    starts = OvercommitCore(POLICY, partitions=2)
    starts.handle(a_node(NODES[0]), 5_000)
    for fact in (number, fresh) if is_number_first else (fresh, number):
        assert facts(starts, fact, 5_000) == []
    assert starts.nodes[NODES[0]].freshness is Freshness.FRESH
    assert starts.nodes[NODES[0]].published == number


def test_a_number_of_a_clock_that_was_an_hour_ahead_is_published_again_in_time() -> None:
    two = Two()
    for second in range(4):
        two.sample(second)
    holder, last = two.cores[1], two.cores[0].nodes[NODES[0]].published
    assert last is not None
    facts(holder, structs.replace(last, at_ms=last.at_ms + 3_600_000, boot_id="ahead"), 4_000)
    two.dead.append(two.cores[0])
    facts(holder, PartitionsHeld(fences=((0, 2), (1, 1))), 5_000)
    published = [fact for second in range(6, 66) for fact in two.sample(second)]
    assert NODES[0] in {fact.node for fact in published if isinstance(fact, AllocatableChanged)}


def test_what_is_given_up_is_not_acted_on_any_more() -> None:
    two = Two()
    for second in range(4):
        two.sample(second)
    facts(two.cores[0], PartitionsHeld(fences=()), 4_000)
    published = two.sample(5, cpu_mcpu=9000)
    assert {fact.node for fact in published if isinstance(fact, AllocatableChanged)} == {NODES[1]}
    assert two.cores[0].own_nodes() == {}


def test_a_new_instance_goes_on_from_what_is_published_before_it_has_seen_a_sample() -> None:
    two = Two()
    for second in range(4):
        two.sample(second)
    last = two.cores[0].nodes[NODES[0]].published
    assert last is not None
    young = OvercommitCore(POLICY, partitions=2)
    fresh = FreshnessChanged(
        node=NODES[0], freshness=Freshness.FRESH, previous=Freshness.WARMING, sample_seq=2, age_ms=0
    )
    for received in (a_node(NODES[0]), last, fresh, PartitionsHeld(fences=((0, 2),))):
        assert facts(young, received, 5_000) == []
    published = facts(young, a_sample(NODES[0], seq=7, zones=((4000, 8), (4000, 8))), 6_000)
    assert kinds(published) == {LeaseRenewed}
