"""Filters: which nodes a request may go to, and under which reason the others are counted."""

import pytest

from colo_common.events.job import PlacementRequest
from colo_common.model.freshness import Freshness
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import SENTENCES, Reason
from colo_common.model.workload import AttachSpec, RunSpec
from colo_scheduler.cluster.cluster import Cluster
from colo_scheduler.placement.filters import ORDER, judge
from colo_scheduler.requests.request_class import class_of
from tests.support.builders import GIB, a_node, a_topology
from tests.support.scheduler_story import COMMAND, EITHER, WORK, a_placement_request, an_allocatable

NOW_MS = 100_000
FREE = [(4000, 8 * GIB), (4000, 8 * GIB)]


def a_cluster(freshness: Freshness = Freshness.FRESH, *, max_age_ms: int = 0, simulated: bool = False) -> Cluster:
    """n1 with two zones of 4 CPUs and 8 GiB each."""
    cluster = Cluster(max_age_ms)
    cluster.on_topology(a_node("n1", a_topology(zones_per_socket=2), simulated=simulated))
    cluster.on_allocatable(an_allocatable("n1", FREE, freshness=freshness, at_ms=NOW_MS))
    return cluster


def reasons(cluster: Cluster, placement_request: PlacementRequest, now_ms: int = NOW_MS) -> list[Reason]:
    return [each.reason for each in judge(cluster.view(now_ms), class_of(placement_request)).counts]


REQUESTS = {
    "fits": (a_placement_request(), []),
    "needs all of the node": (a_placement_request(mcpu=8000, memory_bytes=16 * GIB), []),
    "1 mcpu more than the node": (a_placement_request(mcpu=8001), [Reason.BATCH_CPU_SHORT]),
    "1 byte more than the node": (a_placement_request(memory_bytes=16 * GIB + 1), [Reason.BATCH_MEMORY_SHORT]),
    "neither CPU nor memory: CPU is named": (
        a_placement_request(mcpu=9000, memory_bytes=99 * GIB),
        [Reason.BATCH_CPU_SHORT],
    ),
    "avoided until later": (a_placement_request(avoid=(("n1", NOW_MS + 1),)), [Reason.NODE_EXCLUDED]),
    "avoided until now": (a_placement_request(avoid=(("n1", NOW_MS),)), []),
    "avoids a node nobody knows": (a_placement_request(avoid=(("n7", NOW_MS + 1),)), []),
    "avoided and too large: the avoidance is named": (
        a_placement_request(mcpu=9000, avoid=(("n1", NOW_MS + 1),)),
        [Reason.NODE_EXCLUDED],
    ),
    "latency-sensitive, where no online work runs": (
        a_placement_request(qos=QosClass.LS, band=PriorityBand.PROD),
        [Reason.RUNTIME_ABSENT],
    ),
    "latency-sensitive in the batch band": (a_placement_request(qos=QosClass.LS), []),
    "reserved, where no online work runs": (
        a_placement_request(qos=QosClass.LSR, band=PriorityBand.PROD),
        [Reason.RUNTIME_ABSENT],
    ),
    "reserved in the batch band": (a_placement_request(qos=QosClass.LSR), [Reason.QOS_NOT_ADMITTED]),
    "exclusive in the mid band": (
        a_placement_request(qos=QosClass.LSE, band=PriorityBand.MID),
        [Reason.QOS_NOT_ADMITTED],
    ),
    "best effort in the prod band": (a_placement_request(band=PriorityBand.PROD), [Reason.QOS_NOT_ADMITTED]),
    "system": (a_placement_request(qos=QosClass.SYSTEM, band=PriorityBand.PROD), [Reason.QOS_NOT_ADMITTED]),
    "best effort, mid, where no mid tier is published": (
        a_placement_request(band=PriorityBand.MID),
        [Reason.MID_TIER_OFF],
    ),
    "best effort, free": (a_placement_request(band=PriorityBand.FREE), []),
}


@pytest.mark.parametrize(("placement_request", "expected"), REQUESTS.values(), ids=REQUESTS.keys())
def test_a_node_is_refused_for_the_first_reason_that_holds(
    placement_request: PlacementRequest, expected: list[Reason]
) -> None:
    assert reasons(a_cluster(), placement_request) == expected


ATTACHED = RunSpec(attach=AttachSpec(unit="web.service"))
RUNTIMES = {
    "a command on a real node": (False, a_placement_request(run=COMMAND), []),
    "work on a real node": (False, a_placement_request(run=WORK), [Reason.RUNTIME_ABSENT]),
    "either on a real node": (False, a_placement_request(run=EITHER), []),
    "a command on a simulated node": (True, a_placement_request(run=COMMAND), [Reason.RUNTIME_ABSENT]),
    "work on a simulated node": (True, a_placement_request(run=WORK), []),
    "either on a simulated node": (True, a_placement_request(run=EITHER), []),
    "work on a real node that is too small as well: the runtime is named": (
        False,
        a_placement_request(mcpu=8001, run=WORK),
        [Reason.RUNTIME_ABSENT],
    ),
    "what runs already on a real node": (False, a_placement_request(run=ATTACHED), []),
    "what runs already on a simulated node": (True, a_placement_request(run=ATTACHED), [Reason.RUNTIME_ABSENT]),
    "the node's own work on a real node: the class is named": (
        False,
        a_placement_request(qos=QosClass.SYSTEM, run=WORK),
        [Reason.QOS_NOT_ADMITTED],
    ),
}


@pytest.mark.parametrize(("simulated", "placement_request", "expected"), RUNTIMES.values(), ids=RUNTIMES.keys())
def test_a_node_takes_only_what_its_runtime_can_run(
    simulated: bool, placement_request: PlacementRequest, expected: list[Reason]
) -> None:
    assert reasons(a_cluster(simulated=simulated), placement_request) == expected


def test_a_node_that_becomes_real_takes_commands_and_no_more_work() -> None:
    cluster = a_cluster(simulated=True)
    cluster.on_topology(a_node("n1", a_topology(zones_per_socket=2)))
    assert reasons(cluster, a_placement_request(run=COMMAND)) == []
    assert reasons(cluster, a_placement_request(run=WORK)) == [Reason.RUNTIME_ABSENT]


def test_wants_that_differ_only_in_what_they_run_are_classes_of_their_own() -> None:
    assert len({class_of(a_placement_request(run=run)) for run in (COMMAND, WORK, EITHER)}) == 3


@pytest.mark.parametrize("freshness", [state for state in Freshness if state is not Freshness.FRESH])
def test_nothing_is_added_to_a_node_that_is_not_fresh(freshness: Freshness) -> None:
    assert reasons(a_cluster(freshness), a_placement_request()) == [Reason.NODE_NOT_FRESH]


def test_a_node_that_never_said_what_it_is_is_unknown() -> None:
    cluster = Cluster()
    cluster.on_allocatable(an_allocatable("n1", FREE))
    assert reasons(cluster, a_placement_request()) == [Reason.TOPOLOGY_UNKNOWN]


def test_a_node_without_a_promise_is_not_fresh() -> None:
    cluster = Cluster()
    cluster.on_topology(a_node("n1"))
    assert reasons(cluster, a_placement_request()) == [Reason.NODE_NOT_FRESH]


@pytest.mark.parametrize(("age_ms", "expected"), [(5_000, []), (5_001, [Reason.NODE_NOT_FRESH])])
def test_a_promise_is_not_fresh_above_its_most_age(age_ms: int, expected: list[Reason]) -> None:
    assert reasons(a_cluster(max_age_ms=5_000), a_placement_request(), NOW_MS + age_ms) == expected


def test_enough_in_sum_and_never_together_is_a_reason_of_its_own() -> None:
    cluster = Cluster()
    cluster.on_topology(a_node("n1", a_topology(zones_per_socket=2)))
    cluster.on_allocatable(an_allocatable("n1", [(4000, 0), (0, 8 * GIB)]))
    assert reasons(cluster, a_placement_request(mcpu=1000)) == [Reason.ZONE_FIT_SHORT]


def test_a_node_whose_row_is_read_again_is_left_out() -> None:
    cluster = a_cluster()
    cluster.settle(cluster.node("n1"), is_reloading=True)
    assert reasons(cluster, a_placement_request()) == [Reason.LEDGER_CONFLICT]


def test_every_reason_of_the_stack_has_its_place_and_its_sentence() -> None:
    places = {reason: place for place, reason in enumerate(ORDER)}
    assert len(places) == len(ORDER)
    # What a node is comes before what is free on it, and amounts before what is counted.
    assert places[Reason.LABELS_DIFFER] < places[Reason.BATCH_CPU_SHORT] < places[Reason.CPUS_SHORT]
    assert all(SENTENCES[reason] for reason in ORDER)


def test_older_facts_do_not_replace_newer_ones() -> None:
    cluster = a_cluster()
    assert not cluster.on_allocatable(an_allocatable("n1", [(0, 0), (0, 0)], at_ms=NOW_MS - 1))
    assert reasons(cluster, a_placement_request()) == []
