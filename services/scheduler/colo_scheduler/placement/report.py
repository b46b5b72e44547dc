"""The report on a request that no node takes: the nodes that each reason refuses, and the node that came closest."""

from collections.abc import Sequence
from typing import NamedTuple

from colo_common.events.placement import NearestMiss, ReasonCount
from colo_common.model.reasons import Reason
from colo_common.model.shortage import CONDITION
from colo_scheduler.cluster.cluster import View
from colo_scheduler.requests.request_class import RequestClass

__all__ = ["Report", "least_busy"]


class Report(NamedTuple):
    """Why no node takes a request class now. `is_unresolvable`: no more free capacity would change that.

    The counts sum to `nodes` less the nodes that were not tried: the exact fit tries at most `fit.TRIES_MOST` nodes.
    """

    nodes: int
    counts: tuple[ReasonCount, ...]
    nearest: NearestMiss | None
    is_unresolvable: bool = False

    @property
    def substance(self) -> tuple[object, ...]:
        """The part of the report whose change is published at once: the reasons, not the numbers."""
        return (*(count.reason for count in self.counts), self.is_unresolvable)


def least_busy(view: View, request: RequestClass, rows: Sequence[int]) -> NearestMiss:
    """Of the nodes above a load limit, the node least above; `have` is its load in percent, `need` the most allowed."""
    overloads = view.signals.overloads(request, view.count, view.now_ms)
    busy = [(row, overload) for row in rows if (overload := overloads[row]) is not None]
    if not busy:
        row = min(rows, key=lambda row: int(view.facts.rank[row]))
        return NearestMiss(node=view.nodes[row].name, reason=Reason.LOAD_OVER_THRESHOLD, need=1, have=0, unit=CONDITION)
    row, least = min(busy, key=lambda each: (each[1].have_pct - each[1].most_pct, int(view.facts.rank[each[0]])))
    return NearestMiss(
        node=view.nodes[row].name,
        reason=Reason.LOAD_OVER_THRESHOLD,
        need=least.most_pct,
        have=least.have_pct,
        unit=least.unit,
    )
