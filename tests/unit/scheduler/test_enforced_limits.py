"""Limits of CPU on a node whose batch CPU is counted in CPUs of a slower machine."""

from __future__ import annotations

import pytest

from colo_common.events.effects import Publish
from colo_common.events.job import PlacementsRequested
from colo_common.events.placement import PlacementsDecided
from colo_common.model.node_rules import NodeRules
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.workload import ResourceLimits, RunSpec
from tests.support.builders import GIB, a_node, a_topology
from tests.support.scheduler_story import Bench, a_placement_request, an_allocatable


@pytest.mark.parametrize(
    ("pct", "band", "limit", "enforced"),
    [
        (100, PriorityBand.BATCH, 2_000, 2_000),
        (120, PriorityBand.BATCH, 2_000, 1_667),  # 1666.7, rounded up
        (120, PriorityBand.FREE, 1_200, 1_000),
        (120, PriorityBand.BATCH, 0, 0),
        (120, PriorityBand.MID, 2_000, 2_000),
        (120, PriorityBand.PROD, 2_000, 2_000),
    ],
)
def test_a_limit_is_divided_where_a_request_counts_in_other_cpus(
    pct: int, band: PriorityBand, limit: int, enforced: int
) -> None:
    bench = Bench()
    rules = NodeRules(cpu_normalization_pct=pct)
    bench.say(a_node("n1", a_topology(zones_per_socket=1), is_online=True, rules=rules))
    bench.say(an_allocatable("n1", [(4_000, 8 * GIB)], mid=[(4_000, 8 * GIB)]))
    qos = QosClass.LS if band is PriorityBand.PROD else QosClass.BE
    run = RunSpec(command=("true",), limits=ResourceLimits(cpu_mcpu=limit, memory_bytes=2 * GIB))
    request = a_placement_request(mcpu=1_000, qos=qos, band=band, run=run)
    effects = bench.say(PlacementsRequested(placement_requests=(request,)))
    (decided,) = [e.fact for e in effects if isinstance(e, Publish) and isinstance(e.fact, PlacementsDecided)]
    (placement,) = decided.placements
    # The request is what the ledger holds, in the units of the promise.
    assert placement.cpu_mcpu == 1_000
    assert placement.run.limits == ResourceLimits(cpu_mcpu=enforced, memory_bytes=2 * GIB)
