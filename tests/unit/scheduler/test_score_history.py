"""What the scheduler tells of replicas that it decided together: each as it was at its own moment."""

from __future__ import annotations

from colo_common.events.effects import Reply, RequestReceived
from colo_common.events.job import PlacementsRequested
from colo_common.events.requests import CreateReservation, DecisionRecord, ExplainPlacement, PlacementsExplained
from colo_common.model.node_rules import NodeRules
from colo_common.model.reasons import Reason
from tests.support.builders import GIB, a_node
from tests.support.reserve_story import ReservingBench, a_claim, a_reservation
from tests.support.scheduler_story import Bench, a_placement_request, an_allocatable, topology_of


def explained(bench: Bench, replica: str = "") -> tuple[DecisionRecord, ...]:
    effects = bench.say(RequestReceived(request="r", body=ExplainPlacement(job="job", replica=replica)))
    (answer,) = [each.body for each in effects if isinstance(each, Reply)]
    assert isinstance(answer, PlacementsExplained)
    return answer.decisions


def place(bench: Bench, count: int, **how: int) -> None:
    bench.say(
        PlacementsRequested(
            placement_requests=tuple(a_placement_request(f"job/main/{number}", **how) for number in range(count))
        )
    )


def test_a_replica_that_takes_two_zones_is_told_so_though_one_was_enough_before_it() -> None:
    bench = Bench()
    for name in ("n1", "n2"):
        bench.say(a_node(name, topology_of(2)))
        bench.say(an_allocatable(name, [(3_000, 64 * GIB)] * 2))
    # Four find 2 CPUs in one zone; two of the last one's CPUs are on either side.
    place(bench, 7, mcpu=2_000)
    records = explained(bench)
    assert [record.number for record in records] == [1, 2, 3, 4, 5, 6, 0]
    assert {record.together for record in records[:6]} == {6}
    scores = [record.scores[0].scores["fewest-zones"] for record in records[:6]]
    zones = [len(record.placement.zones) for record in records[:6] if record.placement is not None]
    assert (zones, scores) == ([1, 1, 1, 1, 2, 2], [100, 100, 100, 100, 50, 50])
    for record in records[:6]:
        assert record.placement is not None
        assert record.scores[0].node == record.placement.node
        assert record.fitting == record.nodes - sum(count.nodes for count in record.counts)
    assert [record.fitting for record in records[:6]] == [2, 2, 2, 2, 2, 1]
    assert records[6].placement is None
    assert explained(bench, "job/main/4") == (records[4],)


def test_a_node_that_takes_no_more_by_its_own_rule_fits_no_more() -> None:
    bench = Bench()
    for name, rules in (("n1", NodeRules(batch_replicas_most=1)), ("n2", NodeRules())):
        bench.say(a_node(name, topology_of(1), rules=rules))
        bench.say(an_allocatable(name, [(8_000, 64 * GIB)]))
    place(bench, 3)
    records = explained(bench)
    assert [record.placement.node for record in records if record.placement] == ["n1", "n2", "n2"]
    assert [record.fitting for record in records] == [2, 1, 1]
    delivered = [{count.reason: count.nodes for count in record.counts} for record in records]
    assert delivered == [{}, {Reason.BATCH_REPLICAS_MOST: 1}, {Reason.BATCH_REPLICAS_MOST: 1}]


def test_an_owner_is_told_its_reservation_and_no_scores_for_none_were_compared() -> None:
    bench = ReservingBench()
    for name in ("n1", "n2"):
        bench.say(a_node(name, topology_of(1)))
        bench.say(an_allocatable(name, [(8_000, 64 * GIB)]))
    bench.ask(CreateReservation(spec=a_reservation("night", mcpu=2_000, allocate_once=False)))
    bench.say(
        PlacementsRequested(placement_requests=tuple(a_claim(f"web/main/{number}", mcpu=1_000) for number in range(3)))
    )
    answer = bench.ask(ExplainPlacement(job="web"))
    places = [record.placement for record in answer.decisions]
    assert [place.reservation for place in places if place] == ["night"] * 3
    assert [(record.number, record.together) for record in answer.decisions] == [(1, 3), (2, 3), (3, 3)]
    assert [(record.scores, record.fitting) for record in answer.decisions] == [((), None)] * 3
