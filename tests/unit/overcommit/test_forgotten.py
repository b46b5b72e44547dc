"""Nodes that left for good are forgotten by the overcommit service, once they hold nothing."""

from colo_common.events.effects import Wake
from colo_common.events.node import NodeUsageSampled, ZoneUsage
from colo_common.events.placement import NodeRelease, PlacementsDecided, PlacementsReleased
from colo_overcommit.core import OvercommitCore
from colo_overcommit.policy import OvercommitPolicy
from tests.support.builders import a_node, a_placement

HOUR_MS = 3_600_000


def at(core: OvercommitCore, now_ms: int) -> None:
    while (due_ms := core.deadline_ms()) is not None and due_ms <= now_ms:
        core.handle(Wake(), due_ms)
    core.check()


def a_core(forget_node_ms: int = HOUR_MS) -> OvercommitCore:
    core = OvercommitCore(OvercommitPolicy(), forget_node_ms)
    core.handle(a_node("n1"), 0)
    return core


def test_a_node_that_is_lost_for_long_is_forgotten() -> None:
    core = a_core()
    at(core, HOUR_MS)
    assert list(core.nodes) == ["n1"]
    at(core, HOUR_MS + 60_000)
    assert core.nodes == {}
    assert core.deadline_ms() is None


def test_one_that_holds_something_is_forgotten_when_it_holds_nothing() -> None:
    core = a_core()
    core.handle(PlacementsDecided(placements=(a_placement("j/t/0", node="n1"),)), 1)
    at(core, 3 * HOUR_MS)
    assert list(core.nodes) == ["n1"]
    core.handle(PlacementsReleased(nodes=(NodeRelease(node="n1", attempts=(("j/t/0", 1),)),)), 3 * HOUR_MS)
    at(core, 5 * HOUR_MS)
    assert core.nodes == {}


def test_a_node_without_a_topology_is_forgotten_and_one_that_sends_samples_is_not() -> None:
    core = OvercommitCore(OvercommitPolicy(), HOUR_MS)
    core.handle(PlacementsReleased(nodes=(NodeRelease(node="n9", attempts=(("j/t/0", 1),)),)), 0)
    core.handle(PlacementsReleased(nodes=(NodeRelease(node="n1", attempts=(("j/t/0", 1),)),)), 0)
    node = a_node("n1")
    core.handle(node, 10)
    for number, now_ms in enumerate(range(5_000, 2 * HOUR_MS, 5_000)):
        sample = NodeUsageSampled(
            at_ms=now_ms,
            node="n1",
            sample_seq=number + 1,
            interval_ms=1_000,
            cpu_used_mcpu=0,
            memory_used_bytes=0,
            zones=tuple(ZoneUsage(zone=z.zone, cpu_used_mcpu=0, memory_used_bytes=0) for z in node.topology.zones),
            workloads=(),
        )
        core.handle(sample, now_ms)
        at(core, now_ms)
    assert list(core.nodes) == ["n1"]


def test_zero_means_that_no_node_is_ever_forgotten() -> None:
    core = a_core(0)
    at(core, HOUR_MS)
    assert list(core.nodes) == ["n1"]
    assert core.deadline_ms() is None
