"""Why no node takes a request: how many nodes each reason refuses, and the node that came closest."""

from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction

import numpy as np

from colo_common.events.placement import NearestMiss, ReasonCount
from colo_common.model.reasons import Reason
from colo_common.model.restriction import restriction_text
from colo_scheduler.cluster.cluster import Cluster, View
from colo_scheduler.cluster.pool import Pool, pool_of
from colo_scheduler.cluster.restricted import restriction_behind
from colo_scheduler.devices.never import ask_of
from colo_scheduler.numa.zones import IntArray, cpu_held_together, parts_of_rows
from colo_scheduler.placement.capacity import layout_shortage, too_large
from colo_scheduler.placement.filters import PASSES, Verdicts, judge
from colo_scheduler.placement.fit import TRIES_MOST, NodeFit, Rejection, fit_node_exactly
from colo_scheduler.placement.report import Report, least_busy
from colo_scheduler.requests.request_class import RequestClass

__all__ = ["full_report", "report_of"]

_NOBODY: Mapping[int, Rejection] = {}
_REASONS = tuple(Reason)
_RESTRICTIONS_SHOWN = 3
_BY_NATURE = frozenset({Reason.CPUS_NOT_WHOLE_CORES})
"""Reasons that follow from the request and the node's hardware: no work that ends there changes them."""


def report_of(view: View, request: RequestClass, refused: Mapping[int, Rejection] = _NOBODY) -> Report:
    """The report of a class that no node takes now. `refused`: the rejections that the exact fit has found already."""
    if request.refusal is not None:
        is_final = request.refusal is Reason.QOS_NOT_ADMITTED
        return Report(view.node_count, (ReasonCount(reason=request.refusal, nodes=view.node_count),), None, is_final)
    if view.node_count == 0:
        return Report(0, (ReasonCount(reason=Reason.NO_NODES, nodes=0),), None)
    verdicts = judge(view, request)
    if verdicts.numbers[PASSES] and view.needs_search(request):
        return _closely(view, request, verdicts, refused)
    last = verdicts.refused_last()
    if last is None:
        return Report(view.node_count, (), None)
    return Report(view.node_count, verdicts.counts, _nearest(view, request, *last))


def _closely(view: View, request: RequestClass, verdicts: Verdicts, refused: Mapping[int, Rejection]) -> Report:
    """The report where nodes passed all filters: the rejections of the exact fit, on no more nodes than are ever tried."""
    tries, counts_before = 0, verdicts.counts
    misfits: dict[int, Rejection] = {}
    for row in verdicts.rows.tolist():
        known = refused.get(row)
        if known is None and tries < TRIES_MOST - len(refused):
            tries += 1
            found = fit_node_exactly(view, row, request)
            known = None if isinstance(found, NodeFit) else found
        if known is not None:
            misfits[row] = known
    numbers = Counter({count.reason: count.nodes for count in counts_before})
    numbers.update(rejection.reason for rejection in misfits.values())
    order = list(dict.fromkeys([*(count.reason for count in counts_before), *_REASONS]))
    counts = tuple(ReasonCount(reason=reason, nodes=numbers[reason]) for reason in order if numbers[reason])
    return Report(view.node_count, counts, _least_missing(view, misfits))


def _least_missing(view: View, misfits: Mapping[int, Rejection]) -> NearestMiss | None:
    """Of the nodes tried exactly, the node that lacks the smallest part; nodes that lack no amount come last; ties by name."""
    if not misfits:
        return None

    def lacking(row: int) -> tuple[bool, Fraction, int]:
        rejection = misfits[row]
        return (
            rejection.unit == "condition",
            Fraction(rejection.need - rejection.have, max(1, rejection.need)),
            int(view.facts.rank[row]),
        )

    row = min(misfits, key=lacking)
    return NearestMiss(node=view.nodes[row].name, **misfits[row]._asdict())


def _nearest(view: View, request: RequestClass, reason: Reason, rows: IntArray) -> NearestMiss:
    """The node that passed most filters, and of equal nodes the one that lacks least; ties go by name."""
    if reason is Reason.LOAD_OVER_THRESHOLD:
        return least_busy(view, request, rows.tolist())
    if reason is Reason.BATCH_REPLICAS_MOST:
        return _most_room(view, rows)
    pool = view.pool(pool_of(request.band))
    have, need, unit = _shortage(view, pool, request, reason, rows)
    nearest = rows[have == have.max()]
    best = int(nearest[np.argmin(view.facts.rank[nearest])])
    zone = None
    if reason is Reason.ZONE_FIT_SHORT:
        parts = parts_of_rows(request.cpu_mcpu, request.memory_bytes, pool.free_cpu[[best]], pool.free_memory[[best]])
        zone = view.nodes[best].zone_ids[int(np.argmax(parts[0]))]
    value = int(have[np.flatnonzero(rows == best)[0]])
    return NearestMiss(node=view.nodes[best].name, reason=reason, need=need, have=value, unit=unit, zone=zone)


def _most_room(view: View, rows: IntArray) -> NearestMiss:
    """Of the nodes at their limit of batch replicas, the node whose limit exceeds its replicas most."""
    left = view.inventory_index.batch_left[rows]
    nearest = rows[left == left.max()]
    best = int(nearest[np.argmin(view.facts.rank[nearest])])
    reported = view.nodes[best].reported
    most = (reported.rules.batch_replicas_most if reported else None) or 0
    have = most - int(view.inventory_index.batch_left[best])
    return NearestMiss(
        node=view.nodes[best].name, reason=Reason.BATCH_REPLICAS_MOST, need=most, have=have, unit="batch-replicas"
    )


def _shortage(
    view: View, pool: Pool, request: RequestClass, reason: Reason, rows: IntArray
) -> tuple[IntArray, int, str]:
    """The amount of each of the rows, the amount needed, and the unit. Reasons without an amount have 0 of 1 "condition"."""
    match reason:
        case Reason.BATCH_CPU_SHORT | Reason.MID_CPU_SHORT | Reason.CPU_SHORT:
            return pool.node_free_cpu[rows].clip(0), request.cpu_mcpu, "mcpu"
        case Reason.BATCH_MEMORY_SHORT | Reason.MID_MEMORY_SHORT | Reason.MEMORY_SHORT:
            return pool.node_free_memory[rows].clip(0), request.memory_bytes, "bytes"
        case Reason.ZONE_FIT_SHORT:
            parts = parts_of_rows(request.cpu_mcpu, request.memory_bytes, pool.free_cpu[rows], pool.free_memory[rows])
            return cpu_held_together(request.cpu_mcpu, request.memory_bytes, parts), request.cpu_mcpu, "mcpu"
        case Reason.CPUS_SHORT:
            return view.inventory_index.own_cpus[rows], request.own_cpus, "cpus"
        case Reason.DEVICE_LAYOUT:
            return layout_shortage(view.facts.layouts, ask_of(request.place), view.facts.layout[rows])[:3]
        case Reason.DEVICE_SHORT:
            short = [each for each in _devices_short(view, request, rows) if (each[0] >= 0).any()]
            if short:
                return min(short, key=lambda each: each[1] - int(each[0].max()))
        case _:
            pass
    return np.zeros(rows.size, dtype=np.int64), 1, "condition"


def _devices_short(view: View, request: RequestClass, rows: IntArray) -> Iterator[tuple[IntArray, int, str]]:
    """For each kind of device: the amount of each of the rows, -1 where it is enough; the amount needed; and the kind."""
    for device in request.place.devices:
        free, need = view.inventory_index.free_devices(device.kind), max(1, device.count)
        if free is not None:
            yield np.where(free[rows] < need, free[rows], -1), need, device.kind


def _with_detail(cluster: Cluster, count: ReasonCount) -> ReasonCount:
    """The count with who and why, of at most three restrictions."""
    found = restriction_behind(cluster.restrictions, count.reason)
    if not found:
        return count
    texts = [f"{each.target} {restriction_text(each)}".strip() for each in found[:_RESTRICTIONS_SHOWN]]
    more = len(found) - len(texts)
    detail = "; ".join([*texts, *([f"and {more} more"] if more > 0 else [])])
    return ReasonCount(reason=count.reason, nodes=count.nodes, detail=detail)


def full_report(
    cluster: Cluster, view: View, request: RequestClass, refused: Mapping[int, Rejection] = _NOBODY
) -> Report:
    """`report_of`, and whether the request is larger than every whole node: the nearest miss is then that of the largest node.

    The same where every node is of a kind that cannot hold the request, however empty. While no node has reported its topology, no
    request counts as too large.
    """
    report = report_of(view, request, refused)
    if len(cluster.restrictions):
        report = report._replace(counts=tuple([_with_detail(cluster, count) for count in report.counts]))
    if report.nodes and sum(count.nodes for count in report.counts if count.reason in _BY_NATURE) == report.nodes:
        return report._replace(is_unresolvable=True)
    nearest = too_large(cluster, view, request) if request.is_admitted else None
    return report if nearest is None else report._replace(nearest=nearest, is_unresolvable=True)
