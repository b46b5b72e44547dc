"""The filters of nodes, in order: the verdict on every node for one request, and how many nodes each reason refuses.

One table runs for decisions, explanations, plans and the search for victims. A node is counted under the first reason of ORDER that
holds for it; a verdict is a place in ORDER, or PASSES. Each filter is one operation on arrays over all rows.

The static filters come first. They read nothing that is held or free: one verdict a node for all requests of the same shape, kept
in a cache. These verdicts change when facts change, which is rare beside decisions, so a repeated shape tests again only the rows
that the log of the facts names since its last use. Then come the nodes that the request avoids, the rules of the nodes
(RULE_FILTERS), and the free capacity of the nodes (ROOM_FILTERS).
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from colo_common.events.placement import ReasonCount
from colo_common.model.constraints import Toleration
from colo_common.model.node_selector import Requirement, Selector
from colo_common.model.reasons import Reason
from colo_scheduler.cluster.cluster import View
from colo_scheduler.cluster.node import BoolArray, NodeFacts
from colo_scheduler.cluster.pool import Pool, pool_of
from colo_scheduler.cluster.restricted import BATCH_BITS, PROD_BITS
from colo_scheduler.devices.never import NOTHING_ASKED, DeviceAsk, ask_of, never_holds
from colo_scheduler.numa.zones import IntArray, rows_holding_together
from colo_scheduler.requests.request_class import RequestClass

__all__ = [
    "CODE_OF",
    "Filter",
    "Inquiry",
    "ORDER",
    "PASSES",
    "ROOM_FILTERS",
    "RULE_FILTERS",
    "SPARSE",
    "STATIC_FILTERS",
    "Shape",
    "StaticFilter",
    "StaticFilterCache",
    "StaticVerdicts",
    "VACANT",
    "VerdictArray",
    "Verdicts",
    "judge",
    "open_to",
    "reason_for",
    "rows_in_one_zone",
    "shape_of",
]


_SHAPES_MAX: Final = 256
VerdictArray = npt.NDArray[np.int8]

ORDER: Final = (
    Reason.TOPOLOGY_UNKNOWN,
    Reason.NODE_NOT_FRESH,
    Reason.BATCH_QUIESCED,
    Reason.NODE_PAUSED,
    Reason.NODE_DRAINED,
    Reason.NODE_CORDONED,
    Reason.NODE_EXCLUDED,
    Reason.QOS_NOT_ADMITTED,
    Reason.NODE_OBSERVES,
    Reason.RUNTIME_ABSENT,
    Reason.LABELS_DIFFER,
    Reason.TAINT_NOT_TOLERATED,
    Reason.COLOCATION_OFF,
    Reason.MID_TIER_OFF,
    Reason.DEVICE_UNKNOWN,
    Reason.DEVICE_LAYOUT,
    Reason.LEDGER_CONFLICT,
    Reason.BATCH_REPLICAS_MOST,
    Reason.LOAD_OVER_THRESHOLD,
    Reason.BATCH_CPU_SHORT,
    Reason.BATCH_MEMORY_SHORT,
    Reason.ZONE_FIT_SHORT,
    Reason.LEDGER_DISAGREES,
    Reason.CPUS_SHORT,
    Reason.DEVICE_SHORT,
)
"""The precedence of the reasons. The reasons of the exact fit of one node (`fit.py`) come behind these."""

CODE_OF: Final = {reason: code for code, reason in enumerate(ORDER)}
PASSES: Final = len(ORDER)
"""The verdict on a node that no filter refuses."""
VACANT: Final = PASSES + 1
"""The verdict on a vacant row: it passes no filter and is counted under no reason."""


class Shape(NamedTuple):
    """All that the static filters read of a request: requests of equal shape are taken by the same nodes."""

    has_command: bool
    has_work: bool
    is_prod: bool = False
    node_labels: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    devices: DeviceAsk = NOTHING_ASKED
    node_requirements: tuple[Requirement, ...] = ()
    is_mid: bool = False


def shape_of(request: RequestClass) -> Shape:
    """The shape of a request class."""
    place = request.constraints
    if place is None:
        return Shape(request.has_command, request.has_work, request.is_prod, is_mid=request.is_mid)
    return Shape(
        request.has_command,
        request.has_work,
        request.is_prod,
        place.node_labels,
        place.tolerations,
        ask_of(place),
        place.node_requirements,
        request.is_mid,
    )


class StaticFilter(NamedTuple):
    """A reason, and the test that a row passes when the reason does not hold for it. The test reads node facts only."""

    reason: Reason
    passes: Callable[[NodeFacts, IntArray, Shape], BoolArray]


def is_known(facts: NodeFacts, rows: IntArray, shape: Shape) -> BoolArray:
    """The node has reported its topology."""
    return facts.known[rows]


def is_fresh(facts: NodeFacts, rows: IntArray, shape: Shape) -> BoolArray:
    """The node's facts are fresh."""
    return facts.fresh[rows]


def is_enforced(facts: NodeFacts, rows: IntArray, shape: Shape) -> BoolArray:
    """Whether the node's executor writes the decisions about it."""
    return facts.enforced[rows]


def has_runtime(facts: NodeFacts, rows: IntArray, shape: Shape) -> BoolArray:
    """A simulated node runs an amount of work, a real node a command; online work runs only where it is isolated."""
    passes: BoolArray = np.where(facts.simulated[rows], shape.has_work, shape.has_command)
    return passes & facts.online[rows] if shape.is_prod else passes


def has_labels(facts: NodeFacts, rows: IntArray, shape: Shape) -> BoolArray:
    """The node has every requested label, and its labels meet every required expression."""
    if not shape.node_labels and not shape.node_requirements:
        return np.ones(rows.size, dtype=np.bool_)
    selector = Selector(labels=dict(shape.node_labels), requirements=shape.node_requirements)
    passes: BoolArray = facts.labels.selected(selector, facts.known.size)[rows]
    return passes


def is_tolerated(facts: NodeFacts, rows: IntArray, shape: Shape) -> BoolArray:
    """Every taint of the node that excludes work is tolerated."""
    if facts.taints.is_empty:
        return np.ones(rows.size, dtype=np.bool_)
    passes: BoolArray = facts.taints.tolerated(shape.tolerations, facts.known.size)[rows]
    return passes


def is_colocated(facts: NodeFacts, rows: IntArray, shape: Shape) -> BoolArray:
    """The node's operator admits batch work, or the request is for online work."""
    return np.ones(rows.size, dtype=np.bool_) if shape.is_prod else facts.colocated[rows]


def has_mid_tier(facts: NodeFacts, rows: IntArray, shape: Shape) -> BoolArray:
    """Overcommit publishes a mid tier for the node, or the request is not for it."""
    return facts.mid[rows] if shape.is_mid else np.ones(rows.size, dtype=np.bool_)


def _is_open(reason: Reason) -> Callable[[NodeFacts, IntArray, Shape], BoolArray]:
    """The test that no operator closed the node to such work by the restriction that this reason stands for."""

    def passes(facts: NodeFacts, rows: IntArray, shape: Shape) -> BoolArray:
        bits = (PROD_BITS if shape.is_prod else BATCH_BITS).get(reason, 0)
        closed: BoolArray = (facts.restricted[rows] & bits) != 0
        return ~closed

    return passes


def has_kinds(facts: NodeFacts, rows: IntArray, shape: Shape) -> BoolArray:
    """The node has a device of every requested kind with all requested labels, healthy or not."""
    return _could_hold(facts, rows, shape, Reason.DEVICE_UNKNOWN)


def has_layout(facts: NodeFacts, rows: IntArray, shape: Shape) -> BoolArray:
    """The node's devices together could hold the request if all were free."""
    return _could_hold(facts, rows, shape, Reason.DEVICE_LAYOUT)


def _could_hold(facts: NodeFacts, rows: IntArray, shape: Shape, reason: Reason) -> BoolArray:
    if not shape.devices.requests:
        return np.ones(rows.size, dtype=np.bool_)
    asked = facts.layout[rows]
    passes: BoolArray = np.ones(len(facts.layouts), dtype=np.bool_)
    for layout in np.unique(asked).tolist():
        refused = never_holds(facts.layouts[layout], shape.devices)
        passes[layout] = refused is None or refused.reason is not reason
    return passes[asked]


def is_settled(facts: NodeFacts, rows: IntArray, shape: Shape) -> BoolArray:
    """The node's ledger row is the newest known one."""
    return facts.settled[rows]


STATIC_FILTERS: Final = (
    StaticFilter(Reason.TOPOLOGY_UNKNOWN, is_known),
    StaticFilter(Reason.NODE_NOT_FRESH, is_fresh),
    *(StaticFilter(reason, _is_open(reason)) for reason in BATCH_BITS),
    StaticFilter(Reason.NODE_OBSERVES, is_enforced),
    StaticFilter(Reason.RUNTIME_ABSENT, has_runtime),
    StaticFilter(Reason.LABELS_DIFFER, has_labels),
    StaticFilter(Reason.TAINT_NOT_TOLERATED, is_tolerated),
    StaticFilter(Reason.COLOCATION_OFF, is_colocated),
    StaticFilter(Reason.MID_TIER_OFF, has_mid_tier),
    StaticFilter(Reason.DEVICE_UNKNOWN, has_kinds),
    StaticFilter(Reason.DEVICE_LAYOUT, has_layout),
    StaticFilter(Reason.LEDGER_CONFLICT, is_settled),
)

_OF_PROD: Final = {Reason.BATCH_CPU_SHORT: Reason.CPU_SHORT, Reason.BATCH_MEMORY_SHORT: Reason.MEMORY_SHORT}
_OF_MID: Final = {Reason.BATCH_CPU_SHORT: Reason.MID_CPU_SHORT, Reason.BATCH_MEMORY_SHORT: Reason.MID_MEMORY_SHORT}


def reason_for(reason: Reason, request: RequestClass) -> Reason:
    """A reason of ORDER by the request's pool: work of another pool does not lack batch CPU."""
    if request.is_prod:
        return _OF_PROD.get(reason, reason)
    return _OF_MID.get(reason, reason) if request.is_mid else reason


class StaticVerdicts(NamedTuple):
    """`codes`: the verdict on each row, int8 of shape (rows,); `passing`: the rows with PASSES, bool of the same shape.

    `numbers[code]`: how many rows have that verdict, PASSES included. Read only.
    """

    codes: VerdictArray
    passing: BoolArray
    numbers: tuple[int, ...]


class _Kept:
    def __init__(self, count: int) -> None:
        self.position = -1
        self.codes: VerdictArray = np.full(count, PASSES, dtype=np.int8)
        self.verdicts: StaticVerdicts | None = None


class StaticFilterCache:
    """The verdicts of the shapes used last, at most 256; the shape unused for longest is deleted."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Shape, _Kept] = OrderedDict()

    def of(self, shape: Shape, facts: NodeFacts, count: int) -> StaticVerdicts:
        """The verdicts on the first `count` rows."""
        kept = self._kept.get(shape)
        if kept is None or kept.codes.size != count:
            kept = self._kept[shape] = _Kept(count)
            if len(self._kept) > _SHAPES_MAX:
                self._kept.popitem(last=False)
        self._kept.move_to_end(shape)
        if kept.verdicts is not None and kept.position == facts.log_end:
            return kept.verdicts
        changed = facts.changed_since(kept.position)
        if changed is None:
            changed = np.arange(count, dtype=np.int64)
        if changed.size or kept.verdicts is None:
            # Verdicts that were returned to a caller are not changed any more.
            codes = kept.codes.copy()
            codes[changed] = _judge(facts, changed, shape)
            numbers = tuple(np.bincount(codes, minlength=VACANT + 1)[:VACANT].tolist())
            kept.codes, kept.verdicts = codes, StaticVerdicts(codes, codes == PASSES, numbers)
        kept.position = facts.log_end
        return kept.verdicts


def _judge(facts: NodeFacts, rows: IntArray, shape: Shape) -> VerdictArray:
    codes: VerdictArray = np.full(rows.size, PASSES, dtype=np.int8)
    for each in reversed(STATIC_FILTERS):
        codes[~each.passes(facts, rows, shape)] = CODE_OF[each.reason]
    codes[~facts.taken[rows]] = VACANT
    return codes


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
