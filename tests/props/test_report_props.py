"""The report on a request that no node takes: each number as one who asks node by node would count it."""

from __future__ import annotations

from hypothesis import assume, given

from colo_common.model.reasons import Reason
from colo_scheduler.placement.explain import report_of
from colo_scheduler.placement.filters import ORDER
from colo_scheduler.requests.request_class import RequestClass
from tests.props.test_candidates_props import MIB, NOW_MS, Dumb, Machine, cluster_of, fleets, wanted
from tests.support.profiles import examples


def has(dumb: Dumb, row: int, reason: Reason, request: RequestClass) -> int:
    """What a node has of what it was refused for."""
    free = dumb.free[row]
    match reason:
        case Reason.BATCH_CPU_SHORT:
            return max(0, sum(cpu for cpu, _ in free))
        case Reason.BATCH_MEMORY_SHORT:
            return max(0, sum(memory for _, memory in free))
        case Reason.ZONE_FIT_SHORT:
            mib = -(-request.memory_bytes // MIB)
            whole = request.cpu_mcpu * mib
            parts = [max(0, min(whole, cpu * mib, memory // MIB * request.cpu_mcpu)) for cpu, memory in free]
            return request.cpu_mcpu * min(whole, sum(parts)) // whole
        case _:
            return 0


@examples(4)
@given(fleets, wanted)
def test_a_report_counts_every_node_and_tells_the_one_that_came_closest(
    fleet: list[Machine], request: RequestClass
) -> None:
    dumb = Dumb(fleet)
    assume(fleet and not dumb.fitting(request))
    report = report_of(cluster_of(fleet).view(NOW_MS), request)
    assert {each.reason: each.nodes for each in report.counts} == dumb.counts(request)
    assert [each.reason for each in report.counts] == sorted(dumb.counts(request), key=ORDER.index)
    last = report.counts[-1].reason
    rows = [row for row in range(len(fleet)) if dumb.refusal(row, request) is last]
    best = max(rows, key=lambda row: (has(dumb, row, last, request), -dumb.rank[row]))
    assert report.nearest is not None
    assert (report.nearest.node, report.nearest.reason) == (f"n{best:02}", last)
    assert report.nearest.have == has(dumb, best, last, request)
