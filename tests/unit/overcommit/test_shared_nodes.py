"""Two overcommit cores that share the nodes: one publishes for each, and the other one goes on from what it published."""

from __future__ import annotations

from collections.abc import Sequence

from colo_common.events.effects import Publish, Wake
from colo_common.events.fact import Fact
from colo_common.events.node import AllocatableChanged, FreshnessChanged, LeaseRenewed
from colo_common.model.freshness import Freshness, FreshnessPolicy
from colo_common.model.partition import PartitionsHeld, partition_of
from colo_overcommit.core import Event, OvercommitCore
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
            for fact in self.hear(a_sample(name, seq=1 + second, zones=zones), second * 1_000)
        ]


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
        two.hear(a_sample(NODES[1], seq=1 + second, zones=((4000, 8), (4000, 8))), second * 1_000)
        due_ms = survivor.deadline_ms()
        if due_ms is not None and due_ms <= second * 1_000:
            assert facts(survivor, Wake(), second * 1_000) == []
    published = facts(survivor, PartitionsHeld(fences=((0, 2), (1, 1))), 30_000)
    assert [(fact.node, fact.freshness) for fact in published if isinstance(fact, FreshnessChanged)] == [
        (NODES[0], Freshness.STALE)
    ]


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
