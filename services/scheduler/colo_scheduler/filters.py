"""Which nodes may take a request. One filter a reason; each says True for the rows that pass.

The order in `stack.FILTERS` is the precedence of the reasons: a node is counted under the first filter that refuses it.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from colo_common.model.reasons import Reason
from colo_scheduler.cluster import BoolArray, View
from colo_scheduler.request import RequestClass
from colo_scheduler.zones import parts_of_rows, whole_of

__all__ = [
    "Filter",
    "has_batch_cpu",
    "has_batch_memory",
    "has_runtime",
    "has_zones",
    "is_admitted",
    "is_fresh",
    "is_known",
    "is_not_avoided",
    "is_settled",
]


class Filter(NamedTuple):
    """A reason and the test that a node passes when the reason does not hold for it."""

    reason: Reason
    passes: Callable[[View, RequestClass], BoolArray]


def is_known(view: View, request: RequestClass) -> BoolArray:
    """The node has said what it is."""
    return view.known


def is_fresh(view: View, request: RequestClass) -> BoolArray:
    """The node's facts are fresh."""
    return view.fresh


def is_not_avoided(view: View, request: RequestClass) -> BoolArray:
    """The node neither refused nor evicted this replica a short while ago."""
    passes = np.ones(view.count, dtype=np.bool_)
    for node, until_ms in request.avoid:
        row = view.rows.get(node)
        if row is not None and until_ms > view.now_ms:
            passes[row] = False
    return passes


def is_admitted(view: View, request: RequestClass) -> BoolArray:
    """Batch capacity is for best-effort work below the prod band."""
    return np.full(view.count, request.is_admitted, dtype=np.bool_)


def has_runtime(view: View, request: RequestClass) -> BoolArray:
    """A simulated node runs an amount of work, a real one a command."""
    passes: BoolArray = np.where(view.simulated, request.has_work, request.has_command)
    return passes


def is_settled(view: View, request: RequestClass) -> BoolArray:
    """The node's ledger row is the newest that is known of."""
    return view.settled


def has_batch_cpu(view: View, request: RequestClass) -> BoolArray:
    """Free batch CPU of all zones is enough."""
    passes: BoolArray = view.node_free_cpu >= request.cpu_mcpu
    return passes


def has_batch_memory(view: View, request: RequestClass) -> BoolArray:
    """Free batch memory of all zones is enough."""
    passes: BoolArray = view.node_free_memory >= request.memory_bytes
    return passes


def has_zones(view: View, request: RequestClass) -> BoolArray:
    """Some set of zones holds CPU and memory together."""
    passes: BoolArray = np.any((view.free_cpu >= request.cpu_mcpu) & (view.free_memory >= request.memory_bytes), axis=1)
    rest = np.flatnonzero(~passes)
    if rest.size:
        parts = parts_of_rows(request.cpu_mcpu, request.memory_bytes, view.free_cpu[rest], view.free_memory[rest])
        passes[rest] = parts.sum(axis=1) >= whole_of(request.cpu_mcpu, request.memory_bytes)
    return passes
