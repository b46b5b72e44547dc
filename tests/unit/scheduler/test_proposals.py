"""Who would have to leave is said beside a rejection: only when that was said, only of what is less important, and of what fits."""

from typing import Any

from msgspec import structs

from colo_common.events.effects import Publish, Wake
from colo_common.events.job import PlacementsRequested, ReplicasWithdrawn
from colo_common.events.placement import PlacementRejected, PreemptionProposed
from colo_common.model.constraints import Constraints, DeviceRequest
from colo_common.model.node_rules import NodeRules
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import Reason
from colo_scheduler.cluster.pool import PoolName
from tests.support.builders import GIB, a_node, a_topology
from tests.support.scheduler_story import Bench, a_placement_request, an_allocatable, gpus


def a_bench(*nodes: str, cpus: int = 8, is_online: bool = False) -> Bench:
    bench = Bench()
    for name in nodes:
        bench.say(a_node(name, a_topology(zones_per_socket=1, cpus=cpus, memory_gib=64), is_online=is_online))
        bench.say(an_allocatable(name, [(4_000, 32 * GIB)]))
    return bench


def say(bench: Bench, *placement_requests: Any) -> list[Any]:
    """The facts that come of these wants, up to the moment when nothing is due."""
    effects = bench.say(PlacementsRequested(placement_requests=placement_requests))
    return [effect.fact for effect in effects if isinstance(effect, Publish)]


def proposals(facts: list[Any]) -> list[PreemptionProposed]:
    return [fact for fact in facts if isinstance(fact, PreemptionProposed)]


def test_the_least_important_and_as_few_as_will_do_are_named_with_the_revision_of_their_node() -> None:
    bench = a_bench("n1")
    say(bench, a_placement_request("low/t/0", mcpu=2_000), a_placement_request("mid/t/0", mcpu=2_000, priority=3))
    (proposed,) = proposals(say(bench, a_placement_request("high/t/0", mcpu=2_000, priority=9)))
    assert (proposed.replica, proposed.job, proposed.attempt) == ("high/t/0", "high", 1)
    assert proposed.reason is Reason.BATCH_CPU_SHORT
    assert proposed.proposal.node == "n1"
    assert [victim.replica for victim in proposed.proposal.victims] == ["low/t/0"]
    # Two classes, so two commits.
    assert proposed.proposal.revision == 2
    assert bench.core.counts["preemptions_proposed"] == 1


def test_it_is_said_no_more_often_than_the_rejection() -> None:
    bench = a_bench("n1")
    bench.started.add(("low/t/0", 1))
    say(bench, a_placement_request("low/t/0", mcpu=4_000))
    first = say(bench, a_placement_request("high/t/0", mcpu=2_000, priority=9))
    assert (len(first), len(proposals(first))) == (2, 1)
    for now_ms in range(1_000, 30_000, 1_000):
        bench.now_ms = now_ms
        assert [e for e in bench.wake() if isinstance(e, Publish)] == []
    assert not is_searching(bench)


def test_nobody_is_named_who_is_as_important_or_of_another_pool_or_not_enough() -> None:
    bench = a_bench("n1")
    say(bench, a_placement_request("same/t/0", mcpu=2_000, priority=5), a_placement_request("low/t/0", mcpu=1_000))
    facts = say(bench, a_placement_request("high/t/0", mcpu=3_000, priority=5))
    assert [type(fact) for fact in facts] == [PlacementRejected]
    online = a_placement_request("online/t/0", mcpu=9_000, priority=5, qos=QosClass.LS, band=PriorityBand.PROD)
    assert proposals(say(bench, online)) == []


def test_where_nobody_helps_any_more_the_explanation_names_nobody() -> None:
    bench = a_bench("n1")
    say(bench, a_placement_request("low/t/0", mcpu=4_000))
    say(bench, a_placement_request("high/t/0", mcpu=2_000, priority=9))
    (record,) = bench.core._records.explain("high", "high/t/0", None)
    assert record.preemption is not None
    # Its next rejection, not said, keeps what was found; one that is said asks anew.
    bench.now_ms = 2_000
    bench.wake()
    (record,) = bench.core._records.explain("high", "high/t/0", None)
    assert record.preemption is not None
    bench.say(ReplicasWithdrawn(attempts=(("low/t/0", 1),), reason=Reason.CANCELLED))
    (record,) = bench.core._records.explain("high", "high/t/0", None)
    assert (record.placement is not None, record.preemption) == (True, None)


def test_where_own_cpus_are_asked_for_the_place_is_tried_out() -> None:
    bench = a_bench("n1", cpus=4, is_online=True)
    lesser = a_placement_request("low/t/0", mcpu=2_000, qos=QosClass.LSR, band=PriorityBand.PROD)
    say(bench, lesser)
    assert ("low/t/0", 1) in bench.core.commits.held
    before = {attempt: held.placement for attempt, held in bench.core.commits.held.items()}
    higher = a_placement_request("high/t/0", mcpu=3_000, priority=9, qos=QosClass.LSR, band=PriorityBand.PROD)
    facts = say(bench, higher)
    (proposed,) = proposals(facts)
    assert [victim.replica for victim in proposed.proposal.victims] == ["low/t/0"]
    assert {attempt: held.placement for attempt, held in bench.core.commits.held.items()} == before
    bench.core.check()


def test_who_holds_cpus_that_the_node_gives_out_no_more_is_no_victim_in_vain() -> None:
    bench = a_bench("n1", cpus=4, is_online=True)
    online: dict[str, Any] = {"qos": QosClass.LSR, "band": PriorityBand.PROD}
    say(bench, a_placement_request("low/t/0", mcpu=2_000, **online))
    say(bench, a_placement_request("peer/t/0", mcpu=1_000, priority=9, **online))
    # The operator keeps back what somebody holds by now.
    kept = bench.core.commits.held["low/t/0", 1].placement.cpus[0]
    reported = bench.core.cluster.node("n1").reported
    assert reported is not None
    rules = NodeRules(reserved_cpus=kept, reserved_cpus_only=True)
    bench.say(structs.replace(reported, rules=rules, at_ms=1))
    facts = say(bench, a_placement_request("high/t/0", mcpu=2_000, priority=9, **online))
    assert [type(fact) for fact in facts] == [PlacementRejected]
    assert ("low/t/0", 1) in bench.core.commits.held
    bench.core.check()


def test_searches_wait_for_decisions_and_their_number_is_limited() -> None:
    bench = a_bench("n1")
    say(bench, a_placement_request("low/t/0", mcpu=4_000))
    placement_requests = tuple(
        a_placement_request(f"j{number}/t/0", mcpu=2_000 + number, priority=9) for number in range(100)
    )
    facts = say(bench, *placement_requests)
    assert len(facts) - len(proposals(facts)) == 100
    for now_ms in range(1, 100):
        bench.now_ms = now_ms
        facts += [effect.fact for effect in bench.wake() if isinstance(effect, Publish)]
    assert len(proposals(facts)) == 64
    assert bench.core.counts["preemptions_left_out"] == 36


def test_what_is_held_is_known_by_importance_until_it_is_released() -> None:
    bench = a_bench("n1", "n2")
    levels = bench.core.cluster.pools[PoolName.BATCH].preemptible
    batch = PriorityBand.BATCH.rank
    assert levels.below((9, 0)) == ()
    say(bench, a_placement_request("mid/t/0", mcpu=1_000, priority=5))
    say(
        bench,
        a_placement_request("low/t/0", mcpu=1_000, priority=2),
        a_placement_request("high/t/0", mcpu=1_000, priority=9),
    )
    assert [level.least for level in levels.below((batch, 9))] == [(batch, 2), (batch, 5)]
    bench.say(ReplicasWithdrawn(attempts=(("low/t/0", 1),), reason=Reason.CANCELLED))
    assert [level.least for level in levels.below((9, 0))] == [(batch, 5), (batch, 9)]
    bench.core.check()


CROWD = 48
"""More nodes than four steps of a search look at."""


def a_crowd(nodes: int) -> Bench:
    """Full nodes, with nobody on most of them who could leave for others; no step is long enough to look at all of them."""
    bench = a_bench(*(f"n{number:03}" for number in range(nodes)))
    for number in range(nodes):
        say(
            bench,
            *(a_placement_request(f"j{number}/t/{each}", mcpu=500, memory_bytes=GIB, priority=1) for each in range(8)),
        )
    return bench


def pending(bench: Bench, *placement_requests: Any) -> list[Any]:
    """The facts that come of these wants and of one Wake."""
    effects = [*bench.tell(PlacementsRequested(placement_requests=placement_requests)), *bench.tell(Wake())]
    return [effect.fact for effect in effects if isinstance(effect, Publish)]


def is_searching(bench: Bench) -> bool:
    """Whether the core wants to be woken again at once, as it does while a search is under way."""
    due_ms = bench.core.deadline_ms()
    return due_ms is not None and due_ms <= bench.now_ms + 1


def in_time(bench: Bench, wakes_most: int = 1_000) -> list[Any]:
    """The facts that come until no search is due, or of so many wakes."""
    effects = []
    for _ in range(wakes_most):
        if not is_searching(bench):
            break
        bench.now_ms += 1
        effects += bench.wake()
    return [effect.fact for effect in effects if isinstance(effect, Publish)]


def test_a_search_goes_on_from_wake_to_wake_and_lets_decisions_go_first() -> None:
    bench = a_crowd(CROWD)
    assert proposals(pending(bench, a_placement_request("high/t/0", mcpu=3_000, priority=9))) == []
    assert bench.core.deadline_ms() == 1
    (proposed,) = proposals(in_time(bench))
    assert len(proposed.proposal.victims) == 6
    assert bench.core.counts["preemptions_given_up"] == 0


def test_what_changed_while_it_was_searched_is_searched_again() -> None:
    whole = a_crowd(CROWD)
    pending(whole, a_placement_request("high/t/0", mcpu=3_000, priority=9))
    (undisturbed,) = proposals(in_time(whole))
    victims = undisturbed.proposal.victims
    assert len(victims) == 6
    # One of them leaves on its own: when the search has begun, when it is under way, and before the last of its steps.
    assert whole.now_ms > 4
    for wakes in (0, whole.now_ms // 2, whole.now_ms - 2, whole.now_ms - 1):
        bench = a_crowd(CROWD)
        pending(bench, a_placement_request("high/t/0", mcpu=3_000, priority=9))
        assert proposals(in_time(bench, wakes)) == []
        bench.tell(ReplicasWithdrawn(attempts=((victims[0].replica, victims[0].attempt),), reason=Reason.CANCELLED))
        (proposed,) = proposals(in_time(bench))
        assert proposed.proposal.node == undisturbed.proposal.node
        assert proposed.proposal.victims == victims[1:]


def test_who_waits_no_more_is_searched_nothing_for() -> None:
    bench = a_crowd(CROWD)
    assert proposals(pending(bench, a_placement_request("high/t/0", mcpu=3_000, priority=9))) == []
    bench.tell(ReplicasWithdrawn(attempts=(("high/t/0", 1),), reason=Reason.CANCELLED))
    assert proposals(in_time(bench)) == []


def test_a_search_is_given_up_where_nodes_change_faster_than_they_are_looked_at() -> None:
    bench = a_crowd(CROWD)
    pending(bench, a_placement_request("high/t/0", mcpu=3_000, priority=9))
    for number in range(8):
        bench.tell(a_node(f"more{number}"))
        bench.tell(Wake())
    assert bench.core.counts["preemptions_given_up"] == 1
    assert not is_searching(bench)


def test_the_holder_of_the_device_that_is_short_is_named_and_nobody_beside() -> None:
    bench = Bench()
    topology = structs.replace(a_topology(zones_per_socket=1, cpus=8, memory_gib=64), devices=gpus(1, 1))
    bench.say(a_node("n1", topology))
    bench.say(an_allocatable("n1", [(8_000, 32 * GIB)]))
    one = Constraints(devices=(DeviceRequest(kind="gpu", count=1),))
    say(
        bench,
        a_placement_request("a/t/0", mcpu=1_000),
        a_placement_request("b/t/0", mcpu=1_000, constraints=one),
        a_placement_request("c/t/0", mcpu=1_000),
    )
    (proposed,) = proposals(say(bench, a_placement_request("high/t/0", mcpu=1_000, priority=9, constraints=one)))
    assert [victim.replica for victim in proposed.proposal.victims] == ["b/t/0"]
