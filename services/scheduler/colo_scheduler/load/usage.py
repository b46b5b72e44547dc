"""The load of one node: the newest report, and aggregates over windows, and the expected use.

estimated = base + sum of the estimates of the placed work that the report does not show yet + estimate of the newcomer. All
integers. After Koordinator's LoadAware (plugins/loadaware/pod_assign_cache.go, estimator/default_estimator.go).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from colo_common.model.qos import PriorityBand
from colo_scheduler.load.policy import CPU, MEMORY, LoadPolicy, UsageBasis
from colo_scheduler.numa.amounts import ResourceList

__all__ = [
    "Aggregate",
    "NodeLoad",
    "Sums",
    "WorkloadRequest",
    "add",
    "aggregate_usage",
    "estimate_of",
    "prod_used",
    "resource_of",
    "used",
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


DEFAULT_CPU_MCPU: Final = 250
DEFAULT_MEMORY_BYTES: Final = 200 << 20
_DEFAULTS: Final = {CPU: DEFAULT_CPU_MCPU, MEMORY: DEFAULT_MEMORY_BYTES}


def estimate_of(workload: WorkloadRequest, policy: LoadPolicy) -> dict[str, int]:
    """The expected use of the workload of each resource that has a factor.

    q = max(limit, request); round half up of q x factor / 100, never above a limit. Work without a request counts as
    250 milli-CPU and 200 MiB, mid work as nothing.
    """
    return {resource: _estimate(workload, resource, factor) for resource, factor in policy.factors_pct.items()}


def _estimate(workload: WorkloadRequest, resource: str, factor_pct: int) -> int:
    name = resource_of(resource, workload.band)
    limit = workload.limits.get(name, 0)
    asked = max(limit, workload.requests.get(name, 0))
    if asked == 0:
        return 0 if workload.band is PriorityBand.MID else _DEFAULTS.get(resource, 0)
    expected = (2 * asked * factor_pct + 100) // 200
    return min(expected, limit) if limit > 0 else expected


class Sums(NamedTuple):
    """The sums that the work placed on a node adds to its report.

    `delta` is added to measured usage, `full` replaces it where there is none, `prod` is the measured usage of prod work with its
    delta.
    """

    delta: dict[str, int]
    full: dict[str, int]
    prod: dict[str, int]


def used(load: NodeLoad, sums: Sums, basis: UsageBasis | None = None) -> dict[str, int]:
    """The use of a node with all placed work: by the newest usage, or by an aggregate when a basis is named.

    Where the aggregate has no value, the full estimates of all placed work stand for it.
    """
    base = load.usage if basis is None else aggregate_usage(load, basis)
    total: dict[str, int] = dict(base or {})
    add(total, sums.full if base is None else sums.delta)
    return total


def prod_used(load: NodeLoad, sums: Sums, policy: LoadPolicy) -> dict[str, int]:
    """The use of prod work on a node, with the system's usage when the policy includes it."""
    total: dict[str, int] = dict(load.system_usage) if policy.prod_usage_includes_system else {}
    add(total, sums.prod)
    return total
