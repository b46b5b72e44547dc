"""The load of one node: the newest report, and aggregates over windows."""

from collections.abc import Mapping

from msgspec import Struct

from colo_common.model.qos import PriorityBand
from colo_scheduler.load.policy import CPU, MEMORY, UsageBasis
from colo_scheduler.numa.amounts import ResourceList

__all__ = [
    "Aggregate",
    "NodeLoad",
    "WorkloadRequest",
    "add",
    "aggregate_usage",
    "resource_of",
]

_TIERS = {PriorityBand.MID: "mid", PriorityBand.BATCH: "batch", PriorityBand.FREE: "batch"}


class Aggregate(Struct, frozen=True, kw_only=True):
    """Usage of a node over a window, by kind of aggregate ("avg", "p95"); a kind without amounts has no value."""

    window_ms: int
    usage: Mapping[str, ResourceList]


class NodeLoad(Struct, frozen=True, kw_only=True):
    """One report of a node. `usage` None: the report carries no numbers; `updated_at_ms` None: the report has no time."""

    updated_at_ms: int | None
    usage: ResourceList | None
    report_interval_ms: int = 60_000
    system_usage: ResourceList = {}
    aggregates: tuple[Aggregate, ...] = ()


class WorkloadRequest(Struct, frozen=True, kw_only=True):
    """A workload that is placed or to be placed. `requests` and `limits` are under the names of its tier (`resource_of`)."""

    band: PriorityBand
    requests: ResourceList = {}
    limits: ResourceList = {}


def resource_of(resource: str, band: PriorityBand) -> str:
    """The name under which work of that band asks for a resource: mid and batch capacity are resources of their own.

    Free work lives on batch capacity. Resources other than CPU and memory have one name for all.
    """
    tier = _TIERS.get(band)
    return f"kubernetes.io/{tier}-{resource}" if tier and resource in (CPU, MEMORY) else resource


def aggregate_usage(load: NodeLoad, basis: UsageBasis) -> ResourceList | None:
    """The usage that a basis names; None when an explicit window has none of that kind.

    Window 0 takes the longest window that has one, and the newest usage when there is none at all. Of two aggregates over the
    same window the later counts.
    """
    found: Aggregate | None = None
    for aggregate in load.aggregates:
        if not aggregate.usage.get(basis.kind):
            continue
        if basis.window_ms == 0:
            if found is None or aggregate.window_ms >= found.window_ms:
                found = aggregate
        elif aggregate.window_ms == basis.window_ms:
            found = aggregate
    if found is not None:
        return found.usage[basis.kind]
    return load.usage if basis.window_ms == 0 else None


def add(total: dict[str, int], amounts: ResourceList) -> None:
    """Add amounts to a sum, resource by resource."""
    for resource, amount in amounts.items():
        total[resource] = total.get(resource, 0) + amount
