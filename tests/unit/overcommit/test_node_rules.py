"""What an operator rules for a node: no batch work there, or more CPU claimed than there is."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_common.events.effects import Publish, Reply, RequestReceived, Wake
from colo_common.events.job import PlacementsRequested
from colo_common.events.node import AllocatableChanged
from colo_common.events.requests import ExplainAllocatable, NodeExplained
from colo_common.model.node_rules import UNRULED, NodeRules
from colo_common.model.placement import ZoneShare
from colo_common.model.qos import PriorityBand, QosClass
from colo_overcommit.allocatable import Limit
from colo_overcommit.core import OvercommitCore
from colo_overcommit.explain import recompute
from colo_overcommit.policy import OvercommitPolicy
from colo_scheduler.cluster.holding import amplified
from tests.support.builders import GIB, a_batch_workload, a_node, a_placement, a_sample, decided
from tests.support.scheduler_story import Bench, a_placement_request, an_allocatable

OFF = NodeRules(is_colocated=False)
CAPACITY_MCPU = 16_000


class Published:
    """A core with one node of two zones, 16 CPUs and 64 GiB each, that sends a sample every second."""

    def __init__(self, rules: NodeRules = UNRULED) -> None:
        self.core = OvercommitCore(OvercommitPolicy())
        self.now_ms = 0
        self.core.handle(a_node(rules=rules), 0)

    def sample(self, zones: Any = ((4000, 8), (4000, 8)), **about: Any) -> AllocatableChanged | None:
        """Take a sample; return the publication that it causes."""
        self.now_ms += 1_000
        effects = self.core.handle(
            a_sample(seq=self.now_ms // 1_000, zones=zones, at_ms=self.now_ms, **about), self.now_ms
        )
        self.core.check()
        facts = [effect.fact for effect in effects if isinstance(effect, Publish)]
        return next((fact for fact in facts if isinstance(fact, AllocatableChanged)), None)

    def promised(self, **about: Any) -> AllocatableChanged:
        """The first publication."""
        self.sample(**about)
        published = self.sample(**about)
        assert published is not None
        return published


def limits(published: AllocatableChanged) -> set[tuple[int, str]]:
    """The reclaim percentages of an explanation, and who set them."""
    return {(term.value, term.source) for term in published.explanation.terms if term.name.endswith("reclaim_pct")}


def test_a_node_without_batch_work_promises_nothing_and_explains_why() -> None:
    published = Published(OFF).promised()
    assert (published.batch_cpu_mcpu, published.batch_memory_bytes) == (0, 0)
    assert limits(published) == {(0, Limit.RULES.value)}
    assert recompute(published.explanation) == published.zones
    assert limits(Published().promised()) == {(75, "policy"), (85, "policy")}


def test_what_runs_there_already_stays_in_the_promise_until_it_is_released() -> None:
    node = Published()
    node.promised()
    node.core.handle(decided(a_placement(mcpu=3000, gib=4)), node.now_ms)
    node.core.handle(a_node(rules=OFF, at_ms=1), node.now_ms)
    published = node.sample()
    assert published is not None
    assert [(zone.batch_cpu_mcpu, zone.batch_memory_bytes) for zone in published.zones] == [(3000, 4 * GIB), (0, 0)]
    assert limits(published) == {(0, Limit.RULES.value)}
    assert published.headroom_cpu_mcpu < 0


def test_a_rule_that_changes_is_published_with_the_next_sample_however_little_moved() -> None:
    node = Published()
    busy = ((11_400, 8), (11_400, 8))
    first = node.promised(zones=busy)
    assert first.zones[0].batch_cpu_mcpu == 100, "less than what is worth saying by itself"
    node.core.handle(a_node(rules=OFF, at_ms=1), node.now_ms)
    published = node.sample(zones=busy)
    assert published is not None
    assert (published.batch_cpu_mcpu, limits(published)) == (0, {(0, Limit.RULES.value)})
    assert node.sample(zones=busy) is None
    node.core.handle(a_node(rules=OFF, at_ms=2), node.now_ms)
    assert node.sample(zones=busy) is None, "the same rules again publish nothing"
    node.core.handle(a_node(at_ms=3), node.now_ms)
    again = node.sample(zones=busy)
    assert again is not None
    assert again.zones == first.zones


@pytest.mark.parametrize(("rules", "limit", "left"), [(UNRULED, Limit.POLICY, {80}), (OFF, Limit.RULES, set())])
def test_a_late_node_names_its_age_as_the_reason_unless_a_rule_is(
    rules: NodeRules, limit: Limit, left: set[int]
) -> None:
    node = Published(rules)
    node.promised()
    late_ms = node.core.deadline_ms()
    assert late_ms is not None
    node.core.handle(Wake(), late_ms)
    node.core.check()
    (reply,) = node.core.handle(RequestReceived(request="r", body=ExplainAllocatable(node="n1")), late_ms)
    assert isinstance(reply, Reply)
    assert isinstance(reply.body, NodeExplained)
    published = reply.body.published
    assert {source for _, source in limits(published)} == {limit.value}
    assert {term.value for term in published.explanation.terms if term.name.endswith("_age_pct")} == left


@given(
    st.integers(100, 1_000),
    st.lists(st.tuples(st.sampled_from(list(QosClass)), st.integers(0, 1), st.integers(1, 8)), max_size=4),
    st.lists(st.integers(0, 20_000), min_size=4, max_size=4),
)
def test_no_promise_counts_cpu_that_a_node_only_claims_to_have(pct, placed, used) -> None:
    """Real CPU on every side: what the machine has, what is used, what batch work holds, the CPUs of LSE."""
    found = []
    for rules in (UNRULED, NodeRules(amplification_pct=pct)):
        node = Published(rules)
        for index, (qos, zone, cpus) in enumerate(placed):
            share = ZoneShare(zone=zone, cpu_mcpu=1000 * cpus, memory_bytes=GIB)
            band = PriorityBand.BATCH if qos is QosClass.BE else PriorityBand.PROD
            held = node.core.nodes["n1"].held
            held.take(f"j/t/{index}", 1, (share,), 0, qos=qos, band=band)
        workloads = tuple(
            a_batch_workload(f"j/t/{index}", mcpu=used[index], zones=(zone,))
            for index, (qos, zone, _) in enumerate(placed)
            if qos is QosClass.BE
        )
        found.append(node.promised(zones=((9_000, 8), (9_000, 8)), workloads=workloads))
    plain, claimed = found
    assert (claimed.zones, claimed.explanation) == (plain.zones, plain.explanation)
    for zone in claimed.zones:
        held_mcpu = sum(1000 * cpus for qos, at, cpus in placed if qos is QosClass.BE and at == zone.zone)
        assert held_mcpu <= zone.batch_cpu_mcpu <= max(held_mcpu, CAPACITY_MCPU * 75 // 100)


def test_the_cpus_that_lse_work_is_given_on_such_a_node_cost_what_they_are() -> None:
    """The scheduler takes them of the prod pool at their claimed price, and tells overcommit of CPUs."""
    rules = NodeRules(amplification_pct=150)
    bench = Bench()
    bench.say(a_node(is_online=True, rules=rules))
    bench.say(an_allocatable("n1", [(8_000, 64 * GIB)] * 2))
    placement_request = a_placement_request("web/main/0", qos=QosClass.LSE, band=PriorityBand.PROD, mcpu=4_000)
    bench.say(PlacementsRequested(placement_requests=(placement_request,)))
    (held,) = bench.core.commits.held.values()
    assert sum(share.cpu_mcpu for share in held.placement.zones) == 4_000
    assert amplified(4_000, rules) == 6_000
    node = Published(rules)
    node.core.handle(decided(held.placement), 0)
    published = node.promised(zones=((0, 0), (0, 0)))
    idle = {term.zone: term.value for term in published.explanation.terms if term.name == "cpu_lse_requested"}
    assert sum(idle.values()) == 4_000
    assert published.batch_cpu_mcpu == 2 * (CAPACITY_MCPU * 75 // 100 - 500) - 4_000
