"""The filters of nodes, in order: the verdict on every node for one request, and how many nodes each reason refuses.

One table runs for decisions, explanations, plans and the search for victims. The static filters come first, from their cache
(`filters.py`). Then come the nodes that the request avoids, the rules of the nodes (RULE_FILTERS), and the free capacity of the
nodes (ROOM_FILTERS). Each filter is one operation on arrays over all rows; a node counts under the first filter that refuses it.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from colo_common.events.placement import ReasonCount
from colo_common.model.reasons import Reason
from colo_scheduler.cluster.facts import BoolArray
from colo_scheduler.cluster.pool import Pool, pool_of
from colo_scheduler.cluster.snapshot import View
from colo_scheduler.numa.zones import IntArray, rows_holding_together
from colo_scheduler.placement.filters import (
    CODE_OF,
    ORDER,
    PASSES,
    VACANT,
    StaticFilterCache,
    VerdictArray,
    reason_for,
    shape_of,
)
from colo_scheduler.requests.request_class import RequestClass

__all__ = [
    "ROOM_FILTERS",
    "RULE_FILTERS",
    "SPARSE",
    "Filter",
    "Inquiry",
    "Verdicts",
    "judge",
    "open_to",
    "rows_in_one_zone",
]

SPARSE: Final = 4
"""Where fewer than one in so many rows is left, arrays are read by the numbers of the rows."""


class Inquiry:
    """One request and the view it is tested in. All arrays that filters return have shape (rows,).

    `in_one_zone`: the rows of which one zone alone holds the request, where the filter of zones tested all rows; else None.
    """

    __slots__ = ("count", "in_one_zone", "pool", "request", "view")

    def __init__(self, view: View, request: RequestClass) -> None:
        self.view, self.request, self.count = view, request, view.count
        self.pool: Pool = view.pool(pool_of(request.band))
        self.in_one_zone: BoolArray | None = None


def rows_in_one_zone(pool: Pool, request: RequestClass, rows: "slice | IntArray") -> BoolArray:
    """For each of these rows whether one zone alone holds the request: bool, an entry a row."""
    found = (pool.free_cpu[rows, 0] >= request.cpu_mcpu) & (pool.free_memory[rows, 0] >= request.memory_bytes)
    for slot in range(1, pool.columns):
        holds = pool.free_cpu[rows, slot] >= request.cpu_mcpu
        holds &= pool.free_memory[rows, slot] >= request.memory_bytes
        found |= holds
    return found


class Filter(NamedTuple):
    """A reason; whether the filter applies to a request at all; and the rows that pass it, of those that pass so far."""

    reason: Reason
    applies: Callable[[View, RequestClass], bool]
    passes: Callable[[Inquiry, BoolArray], BoolArray]


def _always(view: View, request: RequestClass) -> bool:
    return True


def _is_detailed(view: View, request: RequestClass) -> bool:
    return request.is_detailed


def _is_limited(view: View, request: RequestClass) -> bool:
    """Some node limits its batch replicas, and the request is for batch work."""
    return view.inventory_index.limited > 0 and not request.is_prod


def _refuses_load(view: View, request: RequestClass) -> bool:
    return view.signals.refuses(request)


def _wants_devices(view: View, request: RequestClass) -> bool:
    return request.is_detailed and bool(request.place.devices)


def _below_batch_most(ask: Inquiry, passing: BoolArray) -> BoolArray:
    """The node has fewer batch replicas than its operator allows."""
    return passing & (ask.view.inventory_index.batch_left[: ask.count] > 0)


def _below_load(ask: Inquiry, passing: BoolArray) -> BoolArray:
    """The node's load is below every threshold."""
    return passing & ask.view.signals.passing(ask.request, ask.count, ask.view.now_ms)


def _has_cpu(ask: Inquiry, passing: BoolArray) -> BoolArray:
    """Free CPU of all zones is enough."""
    return passing & (ask.pool.node_free_cpu[: ask.count] >= ask.request.cpu_mcpu)


def _has_memory(ask: Inquiry, passing: BoolArray) -> BoolArray:
    """Free memory of all zones is enough."""
    return passing & (ask.pool.node_free_memory[: ask.count] >= ask.request.memory_bytes)


def _has_zones(ask: Inquiry, passing: BoolArray) -> BoolArray:
    """One zone, or several together, hold CPU and memory."""
    request, pool = ask.request, ask.pool
    # Few rows are tested quicker one by one than all rows in long runs of memory.
    few = np.flatnonzero(passing) if np.count_nonzero(passing) * SPARSE < ask.count else None
    if few is None:
        ask.in_one_zone = rows_in_one_zone(pool, request, slice(0, ask.count))
        several = np.flatnonzero(passing & ~ask.in_one_zone)
    else:
        several = few[~rows_in_one_zone(pool, request, few)]
    if not several.size:
        return passing
    found = passing.copy()
    found[several] = rows_holding_together(
        request.cpu_mcpu, request.memory_bytes, pool.free_cpu, pool.free_memory, several
    )
    return found


def _agrees(ask: Inquiry, passing: BoolArray) -> BoolArray:
    """The ledger's holds on the node agree with what the node has."""
    return passing & ask.view.inventory_index.agrees[: ask.count]


def _has_own_cpus(ask: Inquiry, passing: BoolArray) -> BoolArray:
    """Enough CPUs are free to be assigned by number: necessary, not sufficient (`fit.fit_node` decides)."""
    return passing & (ask.view.inventory_index.own_cpus[: ask.count] >= ask.request.own_cpus)


def _has_devices(ask: Inquiry, passing: BoolArray) -> BoolArray:
    """Enough devices of every requested kind have free capacity: necessary, not sufficient."""
    found = passing.copy()
    for device in ask.request.place.devices:
        free = ask.view.inventory_index.free_devices(device.kind)
        found &= False if free is None else free[: ask.count] >= max(1, device.count)
    return found


RULE_FILTERS: Final = (
    Filter(Reason.BATCH_REPLICAS_MOST, _is_limited, _below_batch_most),
    Filter(Reason.LOAD_OVER_THRESHOLD, _refuses_load, _below_load),
)
"""The nodes' rules for new work, whatever is free on them."""

ROOM_FILTERS: Final = (
    Filter(Reason.BATCH_CPU_SHORT, _always, _has_cpu),
    Filter(Reason.BATCH_MEMORY_SHORT, _always, _has_memory),
    Filter(Reason.ZONE_FIT_SHORT, _always, _has_zones),
    Filter(Reason.LEDGER_DISAGREES, _is_detailed, _agrees),
    Filter(Reason.CPUS_SHORT, _is_detailed, _has_own_cpus),
    Filter(Reason.DEVICE_SHORT, _wants_devices, _has_devices),
)
"""The free capacity of nodes: CPU, memory and zones, then what only detailed requests ask for."""


class _Step(NamedTuple):
    """One filter that refused nodes: its verdict, and the rows that passed before it and after it."""

    code: int
    before: BoolArray
    after: BoolArray


class Verdicts:
    """The verdict of the filters on every row for one request. `passing`: the rows that pass, bool of shape (rows,), read only.

    `numbers[code]`: how many rows have that verdict (a place in `filters.ORDER`), `numbers[PASSES]` how many pass.
    """

    def __init__(self, inquiry: Inquiry) -> None:
        self.inquiry = inquiry
        view, request = inquiry.view, inquiry.request
        static = view.facts.derived.of(StaticFilterCache).of(shape_of(request), view.facts, inquiry.count)
        self._codes, self.passing = static.codes, static.passing
        self.numbers: list[int] = list(static.numbers)
        self._steps: list[_Step] = []
        avoided = {view.rows[name] for name, until_ms in request.avoid if until_ms > view.now_ms and name in view.rows}
        if avoided:
            self.refuse(sorted(avoided), Reason.NODE_EXCLUDED)

    def refuse(self, rows: "list[int] | slice", reason: Reason) -> None:
        """Refuse these rows for a reason of the static filters; call it before any filter has `run`."""
        codes = self._codes.copy()
        # A vacant row has no node: it is never refused.
        codes[rows] = np.where(codes[rows] == VACANT, VACANT, np.minimum(codes[rows], CODE_OF[reason]))
        self._codes, self.passing = codes, codes == PASSES
        self.numbers = np.bincount(codes, minlength=VACANT + 1)[:VACANT].tolist()

    def run(self, filters: tuple[Filter, ...]) -> None:
        """Run these filters in order, until no row is left."""
        numbers, inquiry = self.numbers, self.inquiry
        for reason, applies, passes in filters:
            before = self.passing
            if not numbers[PASSES]:
                return
            if not applies(inquiry.view, inquiry.request):
                continue
            after = passes(inquiry, before)
            left = int(np.count_nonzero(after))
            if left < numbers[PASSES]:
                code = CODE_OF[reason]
                numbers[code] = numbers[PASSES] - left
                numbers[PASSES] = left
                self.passing = after
                self._steps.append(_Step(code, before, after))

    @property
    def rows(self) -> IntArray:
        """The rows that pass, ascending."""
        return np.flatnonzero(self.passing)

    @cached_property
    def codes(self) -> VerdictArray:
        """The verdict on each row: the place in ORDER of the first filter that refuses it, or PASSES. Read only."""
        codes = self._codes.copy()
        for code, before, after in self._steps:
            codes[before & ~after] = code
        return codes

    @property
    def counts(self) -> tuple[ReasonCount, ...]:
        """How many nodes each reason refused, in the order of precedence; reasons that refused none are left out."""
        request = self.inquiry.request
        refused = enumerate(self.numbers[:PASSES])
        return tuple([ReasonCount(reason=reason_for(ORDER[code], request), nodes=n) for code, n in refused if n])

    def refused_last(self) -> tuple[Reason, IntArray] | None:
        """The reason that refused the nodes that passed most filters, and their rows, ascending; None where no node was refused."""
        code = max((code for code, number in enumerate(self.numbers[:PASSES]) if number), default=None)
        if code is None:
            return None
        step = self._steps[-1] if self._steps else None
        rows = np.flatnonzero(self._codes == code if step is None else step.before & ~step.after)
        return reason_for(ORDER[code], self.inquiry.request), rows

    def reason_of(self, row: int) -> Reason | None:
        """Why this row is refused; None where it passes, and for a vacant row."""
        code = int(self.codes[row])
        return None if code >= PASSES else reason_for(ORDER[code], self.inquiry.request)


def open_to(view: View, request: RequestClass) -> Verdicts:
    """The verdicts of node facts and node rules: the nodes that may take the request if they have free capacity for it.

    Whether work of its QoS class and band is placed at all is not tested here.
    """
    verdicts = Verdicts(Inquiry(view, request))
    verdicts.run(RULE_FILTERS)
    return verdicts


def judge(view: View, request: RequestClass) -> Verdicts:
    """The verdicts of all filters."""
    verdicts = Verdicts(Inquiry(view, request))
    if request.refusal is Reason.QOS_NOT_ADMITTED:
        verdicts.refuse(slice(None), Reason.QOS_NOT_ADMITTED)
    verdicts.run(RULE_FILTERS)
    verdicts.run(ROOM_FILTERS)
    return verdicts
