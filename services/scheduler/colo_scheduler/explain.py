"""Why no node takes a request: how many nodes each reason refuses, and the node that came closest."""

from typing import NamedTuple

import numpy as np

from colo_common.events.placement import NearestMiss, ReasonCount
from colo_common.model.reasons import SENTENCES, Reason
from colo_scheduler.cluster import Cluster, View
from colo_scheduler.pool import Pool, pool_of
from colo_scheduler.request import RequestClass
from colo_scheduler.stack import run_filters
from colo_scheduler.zones import IntArray, parts_of_rows, whole_of

__all__ = ["Report", "capacity_report", "report_of", "sentence"]


class Report(NamedTuple):
    """Why no node takes a request class now. `is_unresolvable`: no more free capacity would change that."""

    nodes: int
    counts: tuple[ReasonCount, ...]
    nearest: NearestMiss | None
    is_unresolvable: bool = False

    @property
    def substance(self) -> tuple[object, ...]:
        """What has to change for the report to be news at once: the reasons, not the numbers."""
        return (*(count.reason for count in self.counts), self.is_unresolvable)


def report_of(view: View, request: RequestClass) -> Report:
    """The report of a class that no node takes now."""
    if not request.is_admitted:
        return Report(view.count, (ReasonCount(reason=Reason.QOS_NOT_ADMITTED, nodes=view.count),), None, True)
    if view.count == 0:
        return Report(0, (ReasonCount(reason=Reason.NO_NODES, nodes=0),), None)
    filtered = run_filters(view, request)
    reason, rows = filtered.refused[-1]
    return Report(view.count, filtered.counts, _nearest(view, request, reason, rows))


def _nearest(view: View, request: RequestClass, reason: Reason, rows: IntArray) -> NearestMiss:
    """The node that came furthest along the filters, and of those the one that lacks least; ties go by name."""
    pool = view.pool(pool_of(request.band))
    have, need, unit = _shortage(pool, request, reason, rows)
    nearest = rows[have == have.max()]
    best = int(nearest[np.argmin(view.facts.rank[nearest])])
    zone = None
    if reason is Reason.ZONE_FIT_SHORT:
        parts = parts_of_rows(request.cpu_mcpu, request.memory_bytes, pool.free_cpu[[best]], pool.free_memory[[best]])
        zone = view.nodes[best].zone_ids[int(np.argmax(parts[0]))]
    value = int(have[np.flatnonzero(rows == best)[0]])
    return NearestMiss(node=view.nodes[best].name, reason=reason, need=need, have=value, unit=unit, zone=zone)


def _shortage(pool: Pool, request: RequestClass, reason: Reason, rows: IntArray) -> tuple[IntArray, int, str]:
    """What each of the rows has, what is needed, and the unit. Reasons without an amount have 0 of 1 "condition"."""
    match reason:
        case Reason.BATCH_CPU_SHORT:
            return pool.node_free_cpu[rows].clip(0), request.cpu_mcpu, "mcpu"
        case Reason.BATCH_MEMORY_SHORT:
            return pool.node_free_memory[rows].clip(0), request.memory_bytes, "bytes"
        case Reason.ZONE_FIT_SHORT:
            parts = parts_of_rows(request.cpu_mcpu, request.memory_bytes, pool.free_cpu[rows], pool.free_memory[rows])
            return cpu_held_together(request, parts), request.cpu_mcpu, "mcpu"
        case _:
            return np.zeros(rows.size, dtype=np.int64), 1, "condition"


def cpu_held_together(request: RequestClass, parts: IntArray) -> IntArray:
    """How much of the request's CPU the zones of each row can take with its memory: mcpu, rounded down."""
    whole = whole_of(request.cpu_mcpu, request.memory_bytes)
    shares = [request.cpu_mcpu * min(total, whole) // whole for total in parts.sum(axis=1).tolist()]
    return np.array(shares, dtype=np.int64)


def capacity_report(cluster: Cluster, request: RequestClass, report: Report) -> Report | None:
    """The report of a request that is larger than every node as a whole, or None when some node could hold it empty.

    None as well while no node has said what it is: then nothing is known to be too large.
    """
    if cluster.could_hold(request.cpu_mcpu, request.memory_bytes):
        return None
    capacity_cpu, capacity_memory = cluster.capacity()
    cpu, memory = capacity_cpu.sum(axis=1), capacity_memory.sum(axis=1)
    known = np.flatnonzero(cpu > 0)
    if known.size == 0:
        return None
    if int(cpu.max()) < request.cpu_mcpu:
        reason, have, need, unit = Reason.BATCH_CPU_SHORT, cpu[known], request.cpu_mcpu, "mcpu"
    elif int(memory.max()) < request.memory_bytes:
        reason, have, need, unit = Reason.BATCH_MEMORY_SHORT, memory[known], request.memory_bytes, "bytes"
    else:
        reason, have, need, unit = (
            Reason.ZONE_FIT_SHORT,
            cpu_held_together(
                request,
                parts_of_rows(request.cpu_mcpu, request.memory_bytes, capacity_cpu[known], capacity_memory[known]),
            ),
            request.cpu_mcpu,
            "mcpu",
        )
    most = int(have.max())
    name = min(cluster.nodes[row].name for row in known[have == most].tolist())
    nearest = NearestMiss(node=name, reason=reason, need=need, have=most, unit=unit)
    return report._replace(nearest=nearest, is_unresolvable=True)


def sentence(report: Report) -> str:
    """The report for people: "0/12 nodes: 7 batch-cpu-short (not enough ...), 5 ...; nearest n3: 3000 of 4000 mcpu"."""
    counts = ", ".join(f"{c.nodes} {c.reason.value} ({SENTENCES[c.reason]})" for c in report.counts)
    text = f"0/{report.nodes} nodes: {counts}"
    near = report.nearest
    if near is not None and near.unit != "condition":
        zone = "" if near.zone is None else f" zone {near.zone}"
        text += f"; nearest {near.node}{zone}: {near.have} of {near.need} {near.unit}"
    return text + ("; no node could hold it even when empty" if report.is_unresolvable and near is not None else "")
