"""The order of the reasons for which a node is refused, the tests of node facts, and their cached verdicts, kept up to date.

A node is counted under the first reason of ORDER that holds for it. A verdict is a place in ORDER, or PASSES. The static filters
read nothing that is held or free: one verdict a node for all requests of the same shape. Verdicts change when facts change, which
is rare beside decisions, so a repeated shape tests again only the rows that the log of the facts names since its last use.
`verdicts.py` runs all filters.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from colo_common.model.constraints import Toleration
from colo_common.model.node_selector import Requirement, Selector
from colo_common.model.reasons import Reason
from colo_scheduler.cluster.facts import BoolArray, NodeFacts
from colo_scheduler.cluster.restricted import BATCH_BITS, PROD_BITS
from colo_scheduler.devices.never import NOTHING_ASKED, DeviceAsk, ask_of, never_holds
from colo_scheduler.numa.zones import IntArray
from colo_scheduler.requests.request_class import RequestClass

__all__ = [
    "CODE_OF",
    "ORDER",
    "PASSES",
    "STATIC_FILTERS",
    "VACANT",
    "Shape",
    "StaticFilter",
    "StaticFilterCache",
    "StaticVerdicts",
    "VerdictArray",
    "reason_for",
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
    """What is decided about the node is written there."""
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
