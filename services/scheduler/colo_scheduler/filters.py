"""Which nodes may take a request. One filter a reason; each says True for the rows that pass.

FACT_FILTERS look at what a node is, FREE_FILTERS at what is free on it, and `avoid` of a request names nodes one by one. A node is
counted under the first filter that refuses it, in the order of `stack.ORDER`.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from colo_common.model.reasons import Reason
from colo_scheduler.facts import BoolArray, NodeFacts
from colo_scheduler.pool import Pool
from colo_scheduler.request import RequestClass
from colo_scheduler.zones import IntArray, rows_holding

__all__ = ["FACT_FILTERS", "FREE_FILTERS", "FactFilter", "FreeFilter", "Shape", "shape_of"]


class Shape(NamedTuple):
    """All that the fact filters look at in a request: requests that are alike in it are taken by the same nodes."""

    has_command: bool
    has_work: bool


def shape_of(request: RequestClass) -> Shape:
    """The shape of a request class."""
    return Shape(request.has_command, request.has_work)


class FactFilter(NamedTuple):
    """A reason and the test that a node passes when the reason does not hold for it."""

    reason: Reason
    passes: Callable[[NodeFacts, IntArray, Shape], BoolArray]


class FreeFilter(NamedTuple):
    """As FactFilter, by what is free in a pool."""

    reason: Reason
    passes: Callable[[Pool, IntArray, RequestClass], BoolArray]


def is_known(facts: NodeFacts, rows: IntArray, shape: Shape) -> BoolArray:
    """The node has said what it is."""
    return facts.known[rows]


def is_fresh(facts: NodeFacts, rows: IntArray, shape: Shape) -> BoolArray:
    """The node's facts are fresh."""
    return facts.fresh[rows]


def has_runtime(facts: NodeFacts, rows: IntArray, shape: Shape) -> BoolArray:
    """A simulated node runs an amount of work, a real one a command."""
    passes: BoolArray = np.where(facts.simulated[rows], shape.has_work, shape.has_command)
    return passes


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
    FactFilter(Reason.LEDGER_CONFLICT, is_settled),
)

FREE_FILTERS: Final = (
    FreeFilter(Reason.BATCH_CPU_SHORT, has_cpu),
    FreeFilter(Reason.BATCH_MEMORY_SHORT, has_memory),
    FreeFilter(Reason.ZONE_FIT_SHORT, has_zones),
)
