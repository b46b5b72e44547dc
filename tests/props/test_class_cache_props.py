"""What is kept of a request class between turns: whatever changes meanwhile, it is as a pass over all nodes would find it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from colo_common.model.freshness import Freshness
from colo_common.model.placement import ZoneShare
from colo_scheduler.cluster.cluster import Cluster
from colo_scheduler.cluster.node import Node
from colo_scheduler.cluster.pool import ChangeLog
from colo_scheduler.cluster.snapshot import View
from colo_scheduler.placement.candidates import Candidates, ranked
from colo_scheduler.placement.class_cache import ClassCache
from colo_scheduler.placement.stack import scoring_of
from colo_scheduler.requests.request_class import class_of
from colo_scheduler.scorers.weights import ScorerWeights
from tests.props.test_candidates_props import MACHINES, NOW_MS, Machine, cluster_of, fleets
from tests.support.builders import GIB, a_node
from tests.support.scheduler_story import a_placement_request, an_allocatable

REQUESTS = tuple(
    class_of(a_placement_request(mcpu=mcpu, memory_bytes=memory))
    for mcpu, memory in ((500, GIB // 2), (3_000, GIB), (9_000, 9 * GIB))
)
BOTH = (ScorerWeights(), ScorerWeights(fewest_zones=1, most_free=7, binpack=3))
Change = Callable[[Cluster, int], None]


def node_at(cluster: Cluster, at: int) -> Node:
    rows = sorted(cluster.rows.values())
    return cluster.nodes[rows[at % len(rows)]]


def holds(mcpu: int, size_bytes: int, zone: int) -> Change:
    def change(cluster: Cluster, at: int) -> None:
        node = node_at(cluster, at)
        if node.zone_ids:
            share = ZoneShare(zone=zone % len(node.zone_ids), cpu_mcpu=mcpu, memory_bytes=size_bytes)
            cluster.hold(node, (f"r{at}", 1), (share,))

    return change


def drops(cluster: Cluster, at: int) -> None:
    node = node_at(cluster, at)
    for attempt in sorted(node.holds):
        cluster.drop(node, attempt)


def promises(mcpu: int, size_bytes: int, freshness: Freshness) -> Change:
    def change(cluster: Cluster, at: int) -> None:
        node = node_at(cluster, at)
        zones = ((mcpu, size_bytes),) * max(1, len(node.zone_ids))
        cluster.on_allocatable(an_allocatable(node.name, zones, freshness=freshness, at_ms=NOW_MS))

    return change


def settles(*, is_reloading: bool) -> Change:
    return lambda cluster, at: cluster.settle(node_at(cluster, at), is_reloading)


def becomes(shape: int) -> Change:
    def change(cluster: Cluster, at: int) -> None:
        cluster.on_topology(a_node(node_at(cluster, at).name, MACHINES[shape], at_ms=NOW_MS + at))

    return change


def joins(cluster: Cluster, at: int) -> None:
    name = f"new{at}"
    cluster.on_topology(a_node(name, MACHINES[1]))
    cluster.on_allocatable(an_allocatable(name, ((8_000, 8 * GIB),) * 2))


def leaves(cluster: Cluster, at: int) -> None:
    node = node_at(cluster, at)
    if len(cluster.rows) > 1 and not node.holds:
        cluster.forget(node)


amounts = st.sampled_from([0, 500, 4_000, 9_000]), st.sampled_from([0, GIB, 8 * GIB])
changes = st.one_of(
    st.builds(holds, *amounts, st.integers(0, 3)),
    st.builds(holds, *amounts, st.integers(0, 3)),
    st.just(drops),
    st.builds(promises, *amounts, st.sampled_from([Freshness.FRESH, Freshness.FRESH, Freshness.STALE])),
    st.builds(lambda is_reloading: settles(is_reloading=is_reloading), st.booleans()),
    st.builds(becomes, st.integers(0, len(MACHINES) - 1)),
    st.just(joins),
    st.just(leaves),
)
turns = st.lists(st.lists(st.tuples(changes, st.integers(0, 60)), max_size=3), min_size=2, max_size=8)


def found(view: View, *, is_new: bool = False) -> list[object]:
    """What there is for each request; `is_new`: as if none had come before."""
    scored = []
    for request in REQUESTS:
        scoring = scoring_of(BOTH[request.cpu_mcpu == REQUESTS[1].cpu_mcpu])
        Candidates(view, request, scoring).check()
        candidates = Candidates(replace(view, class_caches=OrderedDict()) if is_new else view, request, scoring)
        top = [(each.row, each.key) for each in candidates.top(3)]
        bounds = candidates.above()
        scored.append((candidates.counts, top, bounds, list(ranked(candidates))))
    return scored


@given(fleets.filter(bool), turns)
def test_a_class_that_comes_again_finds_what_a_pass_over_all_nodes_finds(
    fleet: list[Machine], story: list[list[tuple[Change, int]]]
) -> None:
    cluster = cluster_of(fleet)
    found(cluster.view(NOW_MS))
    for turn in story:
        for change, at in turn:
            change(cluster, at)
        view = cluster.view(NOW_MS)
        assert found(view) == found(view, is_new=True)
    view = cluster.view(NOW_MS)
    found(view)
    # With nothing changed since, all of them are kept.
    assert all(isinstance(view.class_caches[request], ClassCache) for request in REQUESTS)
    cluster.check()


def test_a_log_of_more_changes_than_it_keeps_tells_nobody() -> None:
    log = ChangeLog()
    begin = log.end
    log.note([3, 4, 3], most=4)
    assert (log.since(begin, most=2), log.since(begin, most=1), log.since(log.end, most=0)) == ({3, 4}, None, set())
    behind = log.end
    log.note([5, 6], most=4)
    assert log.since(begin, most=9) is None
    assert log.since(behind, most=9) is None
    assert log.since(log.end, most=9) == set()
