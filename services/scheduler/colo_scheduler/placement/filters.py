"""Which nodes may take a request. One filter a reason; each says True for the rows that pass.

FACT_FILTERS look at what a node is, FREE_FILTERS at what is free on it, and `avoid` of a request names nodes one by one.
STOCK_FILTERS look at what is left beside CPU and memory, for requests that want of it. A node is counted under the first filter
that refuses it, in the order of `stack.ORDER`.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from colo_common.model.constraints import Toleration
from colo_common.model.node_selector import Requirement
from colo_common.model.reasons import Reason
from colo_scheduler.cluster.facts import BoolArray, NodeFacts
from colo_scheduler.cluster.inventory_index import InventoryIndex
from colo_scheduler.cluster.pool import Pool
from colo_scheduler.devices.layout import NOTHING_ASKED, DeviceAsk, ask_of, never_holds
from colo_scheduler.eligibility.selector import Selector
from colo_scheduler.numa.zones import IntArray, rows_holding
from colo_scheduler.requests.request_class import RequestClass

__all__ = [
    "FACT_FILTERS",
    "FREE_FILTERS",
    "INVENTORY_FILTERS",
    "FactFilter",
    "FreeFilter",
    "Shape",
    "InventoryFilter",
    "free_reason",
    "shape_of",
]


class Shape(NamedTuple):
    """All that the fact filters look at in a request: requests that are alike in it are taken by the same nodes."""

    has_command: bool
    has_work: bool
    is_prod: bool = False
    node_labels: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    devices: DeviceAsk = NOTHING_ASKED
    node_requirements: tuple[Requirement, ...] = ()


def shape_of(request: RequestClass) -> Shape:
    """The shape of a request class."""
    place = request.constraints
    if place is None:
        return Shape(request.has_command, request.has_work, request.is_prod)
    return Shape(
        request.has_command,
        request.has_work,
        request.is_prod,
        place.node_labels,
        place.tolerations,
        ask_of(place),
        place.node_requirements,
    )


class FactFilter(NamedTuple):
    """A reason and the test that a node passes when the reason does not hold for it."""

    reason: Reason
    passes: Callable[[NodeFacts, IntArray, Shape], BoolArray]


class FreeFilter(NamedTuple):
    """As FactFilter, by what is free in a pool."""

    reason: Reason
    passes: Callable[[Pool, IntArray, RequestClass], BoolArray]


class InventoryFilter(NamedTuple):
    """As FactFilter, by what is left beside CPU and memory: necessary, not yet enough (`fit.fit_node` decides)."""

    reason: Reason
    passes: Callable[[InventoryIndex, IntArray, RequestClass], BoolArray]


def is_known(facts: NodeFacts, rows: IntArray, shape: Shape) -> BoolArray:
    """The node has said what it is."""
    return facts.known[rows]


def is_fresh(facts: NodeFacts, rows: IntArray, shape: Shape) -> BoolArray:
    """The node's facts are fresh."""
    return facts.fresh[rows]


def has_runtime(facts: NodeFacts, rows: IntArray, shape: Shape) -> BoolArray:
    """A simulated node runs an amount of work, a real one a command; online work only where it is kept apart."""
    passes: BoolArray = np.where(facts.simulated[rows], shape.has_work, shape.has_command)
    return passes & facts.online[rows] if shape.is_prod else passes


def has_labels(facts: NodeFacts, rows: IntArray, shape: Shape) -> BoolArray:
    """The node has every label that is asked for, and its labels meet every demand."""
    if not shape.node_labels and not shape.node_requirements:
        return np.ones(rows.size, dtype=np.bool_)
    selector = Selector(labels=dict(shape.node_labels), requirements=shape.node_requirements)
    passes: BoolArray = facts.labels.selected(selector, facts.known.size)[rows]
    return passes


def is_tolerated(facts: NodeFacts, rows: IntArray, shape: Shape) -> BoolArray:
    """Every taint of the node that keeps work away is tolerated."""
    if facts.taints.is_empty:
        return np.ones(rows.size, dtype=np.bool_)
    passes: BoolArray = facts.taints.tolerated(shape.tolerations, facts.known.size)[rows]
    return passes


def is_colocated(facts: NodeFacts, rows: IntArray, shape: Shape) -> BoolArray:
    """The node's operator admits batch work, or this is online work."""
    return np.ones(rows.size, dtype=np.bool_) if shape.is_prod else facts.colocated[rows]


def has_kinds(facts: NodeFacts, rows: IntArray, shape: Shape) -> BoolArray:
    """The node has a device of every kind, and with all labels, that is asked for, healthy or not."""
    return _could_hold(facts, rows, shape, Reason.DEVICE_UNKNOWN)


def has_layout(facts: NodeFacts, rows: IntArray, shape: Shape) -> BoolArray:
    """The node's devices lie so that all of them together could hold the request, if nobody held any."""
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
    """The node's ledger row is the newest that is known of."""
    return facts.settled[rows]


def has_cpu(pool: Pool, rows: IntArray, request: RequestClass) -> BoolArray:
    """Free CPU of all zones is enough."""
    passes: BoolArray = pool.node_free_cpu[rows] >= request.cpu_mcpu
    return passes


def has_memory(pool: Pool, rows: IntArray, request: RequestClass) -> BoolArray:
    """Free memory of all zones is enough."""
    passes: BoolArray = pool.node_free_memory[rows] >= request.memory_bytes
    return passes


def has_zones(pool: Pool, rows: IntArray, request: RequestClass) -> BoolArray:
    """Some set of zones holds CPU and memory together."""
    return rows_holding(request.cpu_mcpu, request.memory_bytes, pool.free_cpu, pool.free_memory, rows)


FACT_FILTERS: Final = (
    FactFilter(Reason.TOPOLOGY_UNKNOWN, is_known),
    FactFilter(Reason.NODE_NOT_FRESH, is_fresh),
    FactFilter(Reason.RUNTIME_ABSENT, has_runtime),
    FactFilter(Reason.LABELS_DIFFER, has_labels),
    FactFilter(Reason.TAINT_NOT_TOLERATED, is_tolerated),
    FactFilter(Reason.COLOCATION_OFF, is_colocated),
    FactFilter(Reason.DEVICE_UNKNOWN, has_kinds),
    FactFilter(Reason.DEVICE_LAYOUT, has_layout),
    FactFilter(Reason.LEDGER_CONFLICT, is_settled),
)


def is_agreed(inventory_index: InventoryIndex, rows: IntArray, request: RequestClass) -> BoolArray:
    """What the ledger holds on the node can be held there."""
    return inventory_index.agrees[rows]


def has_own_cpus(inventory_index: InventoryIndex, rows: IntArray, request: RequestClass) -> BoolArray:
    """So many CPUs are free to be given out by number."""
    passes: BoolArray = inventory_index.own_cpus[rows] >= request.own_cpus
    return passes


def has_devices(inventory_index: InventoryIndex, rows: IntArray, request: RequestClass) -> BoolArray:
    """Of every kind that is asked for so many devices have something free."""
    passes: BoolArray = np.ones(rows.size, dtype=np.bool_)
    for device in request.place.devices:
        free = inventory_index.free_devices(device.kind)
        passes &= False if free is None else free[rows] >= max(1, device.count)
    return passes


FREE_FILTERS: Final = (
    FreeFilter(Reason.BATCH_CPU_SHORT, has_cpu),
    FreeFilter(Reason.BATCH_MEMORY_SHORT, has_memory),
    FreeFilter(Reason.ZONE_FIT_SHORT, has_zones),
)

INVENTORY_FILTERS: Final = (
    InventoryFilter(Reason.LEDGER_DISAGREES, is_agreed),
    InventoryFilter(Reason.CPUS_SHORT, has_own_cpus),
    InventoryFilter(Reason.DEVICE_SHORT, has_devices),
)

_OF_PROD: Final = {Reason.BATCH_CPU_SHORT: Reason.CPU_SHORT, Reason.BATCH_MEMORY_SHORT: Reason.MEMORY_SHORT}


def free_reason(reason: Reason, request: RequestClass) -> Reason:
    """The reason of a free filter in the words of the request's pool: it is not batch CPU that online work lacks."""
    return _OF_PROD.get(reason, reason) if request.is_prod else reason
