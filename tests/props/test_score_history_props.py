"""What is told of replicas that were searched for one by one is what scoring all nodes at the moment of each gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from colo_common.model.constraints import Constraints, DeviceRequest
from colo_common.model.placement import ZoneShare
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.topology import Device
from colo_scheduler.cluster.cluster import Cluster, View
from colo_scheduler.cluster.pool import PoolName, pool_of
from colo_scheduler.numa.zones import IntArray, costs_of_rows
from colo_scheduler.placement.choice import Choice
from colo_scheduler.placement.decide import decide
from colo_scheduler.placement.filters import judge
from colo_scheduler.placement.fit import NodeFit, fit_node_exactly
from colo_scheduler.placement.scoring import FitRows, score_rows, scoring_for, scoring_of, scorings_of
from colo_scheduler.policy import SchedulerPolicy, ScorerWeights
from colo_scheduler.requests.request_class import RequestClass, class_of
from tests.support.builders import GIB, a_node, a_topology
from tests.support.profiles import examples
from tests.support.scheduler_story import a_placement_request, an_allocatable

ROWS = 4
nodes = st.lists(
    st.tuples(
        st.sampled_from([2, 4, 8]),
        st.lists(st.tuples(st.integers(0, 1), st.integers(1, 3)), max_size=2),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=7,
)
"""CPUs a zone; what is held: zone, CPUs; GPUs."""
requests = st.builds(
    lambda qos, cpus, gpus, spread: class_of(
        a_placement_request(
            mcpu=cpus * 1_000,
            qos=qos,
            band=PriorityBand.PROD,
            constraints=Constraints(spread=spread, devices=(DeviceRequest(kind="gpu", count=gpus),) if gpus else ()),
        )
    ),
    st.sampled_from([QosClass.LSE, QosClass.LSR]),
    st.integers(1, 6),
    st.integers(0, 2),
    st.booleans(),
)
weights = st.builds(
    ScorerWeights,
    fewest_zones=st.sampled_from([0, 10]),
    most_free=st.sampled_from([1, 7]),
    spread=st.sampled_from([0, 4, 100]),
    devices_least_allocated=st.sampled_from([0, 50]),
    devices_most_allocated=st.sampled_from([0, 50]),
)


def cluster_of(fleet: list[tuple[int, list[tuple[int, int]], int]]) -> Cluster:
    cluster = Cluster()
    for number, (cpus, held, gpus) in enumerate(fleet):
        name = f"n{number:02}"
        devices = tuple(
            Device(kind="gpu", device=at, zone=at % 2, memory_bytes=GIB, pcie=f"p{at % 2}") for at in range(gpus)
        )
        topology = structs.replace(a_topology(cpus=cpus, memory_gib=8), devices=devices)
        cluster.on_topology(a_node(name, topology, is_online=True))
        cluster.on_allocatable(an_allocatable(name, [(cpus * 1_000, 8 * GIB)] * 2))
        for index, (zone, taken) in enumerate(held):
            share = ZoneShare(zone=zone, cpu_mcpu=taken * 1_000, memory_bytes=GIB)
            cluster.hold(cluster.node(name), (f"old/main/{number}{index}", 1), (share,), PoolName.PROD)
    return cluster


def scored(view: View, request: RequestClass, rows: IntArray, by: ScorerWeights) -> dict[int, dict[str, int]]:
    """Every score of each row, by the forms for all rows at once."""
    scoring, pool = scoring_for(view, request, scoring_of(by)), view.pool(pool_of(request.band))

    def costs() -> IntArray:
        free = (pool.free_cpu[rows], pool.free_memory[rows])
        return costs_of_rows(request.cpu_mcpu, request.memory_bytes, *free, view.facts.socket[rows])

    fits = FitRows(pool, rows, request, costs)
    columns = {scorer.value: forms.of_rows(fits).tolist() for _, scorer, forms in scoring.weighed}
    return {row: {name: column[at] for name, column in columns.items()} for at, row in enumerate(rows.tolist())}


@examples(1.5)
@given(nodes, requests, st.integers(1, 6), weights)
def test_a_replica_that_was_searched_for_is_told_the_nodes_as_it_found_them(
    fleet: list[tuple[int, list[tuple[int, int]], int]], request: RequestClass, count: int, by: ScorerWeights
) -> None:
    cluster = cluster_of(fleet)
    view = cluster.view(0)
    expected: list[tuple[dict[str, int], list[tuple[str, int, dict[str, int]]]]] = []
    refused: set[int] = set()

    def take(number: int, choice: Choice) -> None:
        verdicts = judge(view, request)
        scoring = scoring_for(view, request, scoring_of(by))
        keys = score_rows(view, request, verdicts.rows, scoring).tolist()
        scores = scored(view, request, verdicts.rows, by)
        order = [row for _, row in sorted(zip(keys, verdicts.rows.tolist(), strict=True), reverse=True)]
        for row in order[: order.index(choice.row)]:
            assert not isinstance(fit_node_exactly(view, row, request), NodeFit)
            refused.add(row)
        delivered = []
        for row in [row for row in order if row not in refused][:ROWS]:
            weighed = sum(getattr(by, name.replace("-", "_")) * score for name, score in scores[row].items())
            delivered.append((f"n{row:02}", weighed // scoring.total, scores[row]))
        assert delivered[0][0] == f"n{choice.row:02}"
        expected.append(({each.reason: each.nodes for each in verdicts.counts}, delivered))
        attempt = (f"{request.job or 'job'}/main/{number}", 1)
        cluster.hold(cluster.nodes[choice.row], attempt, choice.shares, PoolName.PROD, choice.holding, is_choice=True)

    decision = decide(view, request, count, scorings_of(SchedulerPolicy(prod_weights=by)), take, best_rows=ROWS)
    snapshots = list(decision.matrix.snapshots()) if decision.matrix is not None else []
    assert len(snapshots) == len(decision.choices) == len(expected)
    for moment, (counts, delivered) in zip(snapshots, expected, strict=True):
        assert moment.fitting is None
        assert {each.reason: each.nodes for each in moment.counts} == counts
        assert [(each.node, each.total, each.scores) for each in moment.scores] == delivered
