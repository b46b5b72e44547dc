"""What the overcommit service tells of one node's workloads."""

from __future__ import annotations

from msgspec.structs import replace

from colo_common.events.fleet import NodeDetail
from colo_common.events.node import WorkloadDetail
from colo_overcommit.known_node import KnownNode
from colo_overcommit.queries import get_node
from tests.support.builders import a_sample, a_topology, an_online_workload


def test_a_workload_keeps_the_last_detail_that_was_told_until_it_is_gone() -> None:
    known = KnownNode(topology=a_topology())
    web, api = an_online_workload("web"), an_online_workload("api")
    detail = WorkloadDetail(span_ms=1_000, remote_pct=40, involuntary_switches=7)
    known.accept(a_sample(seq=1, workloads=(replace(web, detail=detail), api)), (), 1_000)
    known.accept(a_sample(seq=2, workloads=(web, api)), (), 2_000)
    found = get_node("n1", {"n1": known}, 5_000)
    assert isinstance(found, NodeDetail)
    assert {one.workload: one.detail for one in found.workloads} == {"web": detail, "api": None}
    assert found.detail_ages_ms == {"web": 4_000}
    known.accept(a_sample(seq=3, workloads=(api,)), (), 3_000)
    assert known.details == {}
