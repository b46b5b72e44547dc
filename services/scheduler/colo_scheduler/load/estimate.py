"""What a node will use: its measured usage, more for work that was not measured yet, and the newcomer.

estimated = base + sum over placed work that needs it of max(0, estimate - reported) + estimate of the newcomer. All integers. After
Koordinator's LoadAware (plugins/loadaware/pod_assign_cache.go, estimator/default_estimator.go).
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from colo_common.model.qos import PriorityBand
from colo_scheduler.load.policy import CPU, MEMORY, LoadPolicy, UsageBasis
from colo_scheduler.load.usage import (
    Amounts,
    NodeLoad,
    PlacedWorkload,
    WorkloadLoad,
    WorkloadRequest,
    add,
    aggregate_usage,
    resource_of,
)

__all__ = [
    "DEFAULT_CPU_MCPU",
    "DEFAULT_MEMORY_BYTES",
    "Contribution",
    "Sums",
    "contribution_of",
    "estimate_of",
    "estimation_until_ms",
    "needs_estimation",
    "prod_used",
    "reports_of",
    "sums_of",
    "used",
]

DEFAULT_CPU_MCPU: Final = 250
DEFAULT_MEMORY_BYTES: Final = 200 << 20
_DEFAULTS: Final = {CPU: DEFAULT_CPU_MCPU, MEMORY: DEFAULT_MEMORY_BYTES}


def estimate_of(workload: WorkloadRequest, policy: LoadPolicy) -> dict[str, int]:
    """What the workload is expected to use of each resource that has a factor.

    q = max(limit, request); round half up of q x factor / 100, never above a limit. Work that asks for nothing is taken for
    250 milli-CPU and 200 MiB, mid work for nothing.
    """
    factors = policy.factors_pct
    if policy.allow_own_estimation:
        factors = {**factors, **workload.factors_pct}
    return {resource: _estimate(workload, resource, factor) for resource, factor in factors.items()}


def _estimate(workload: WorkloadRequest, resource: str, factor_pct: int) -> int:
    name = resource_of(resource, workload.band)
    limit = workload.limits.get(name, 0)
    asked = max(limit, workload.requests.get(name, 0))
    if asked == 0:
        return 0 if workload.band is PriorityBand.MID else _DEFAULTS.get(resource, 0)
    expected = (2 * asked * factor_pct + 100) // 200
    return min(expected, limit) if limit > 0 else expected


def estimation_until_ms(placed: PlacedWorkload, policy: LoadPolicy) -> int | None:
    """Until when the workload is estimated although it reports, None when it is not.

    From its start when the time after the start is above 0 and it has started, else from its placement when that time is.
    """
    after_placed, after_started = policy.estimated_after_placed_ms, policy.estimated_after_started_ms
    if policy.allow_own_estimation:
        after_placed = _own_or(placed.workload.estimated_after_placed_ms, after_placed)
        after_started = _own_or(placed.workload.estimated_after_started_ms, after_started)
    if after_started and after_started > 0 and placed.started_at_ms is not None:
        return placed.started_at_ms + after_started
    if after_placed and after_placed > 0:
        return placed.placed_at_ms + after_placed
    return None


def _own_or(own_ms: int | None, policy_ms: int | None) -> int | None:
    """A workload's own time; one below 0 says as little as none."""
    return own_ms if own_ms is not None and own_ms >= 0 else policy_ms


def needs_estimation(placed: PlacedWorkload, report: WorkloadLoad | None, load: NodeLoad, policy: LoadPolicy) -> bool:
    """Whether the report does not say yet what the workload uses: not in it, in it for part of an interval, or told to wait."""
    if report is None or load.updated_at_ms is None:
        return True
    if load.updated_at_ms - load.report_interval_ms < placed.placed_at_ms:
        return True
    until_ms = estimation_until_ms(placed, policy)
    return until_ms is not None and until_ms > load.updated_at_ms


class Contribution(NamedTuple):
    """What one placed workload adds to its node.

    `delta` and `prod_delta` come on top of measured usage; `full` replaces measured usage where there is none; `prod_usage` is
    what the report says of it, when it and the report both call it prod.
    """

    delta: Amounts
    full: Amounts
    prod_usage: Amounts
    prod_delta: Amounts


def contribution_of(
    placed: PlacedWorkload, report: WorkloadLoad | None, load: NodeLoad, policy: LoadPolicy
) -> Contribution:
    """What a placed workload adds; `report` is what the node says of it, None when nothing."""
    estimate = estimate_of(placed.workload, policy)
    is_prod = placed.workload.band is PriorityBand.PROD
    counts_as_prod = is_prod and report is not None and report.is_prod
    needs = needs_estimation(placed, report, load, policy)
    reported: Amounts = report.usage if report is not None else {}
    delta = _above(estimate, reported) if needs else {}
    if not is_prod:
        return Contribution(delta, estimate, {}, {})
    if counts_as_prod:
        return Contribution(delta, estimate, reported, delta)
    # Prod work that the report takes for something else is not in the prod usage, so all of it is estimated.
    return Contribution(delta, estimate, {}, estimate)


def _above(estimate: Amounts, reported: Amounts) -> dict[str, int]:
    return {resource: max(0, amount - reported.get(resource, 0)) for resource, amount in estimate.items()}


def reports_of(load: NodeLoad) -> Mapping[str, WorkloadLoad]:
    """The report of each workload by name; those without any usage count as not reported."""
    return {report.name: report for report in load.workloads if report.usage}


class Sums(NamedTuple):
    """The contributions of everything that is placed on a node, added up. `prod` is reported usage and what comes on top of it."""

    delta: dict[str, int]
    full: dict[str, int]
    prod: dict[str, int]


def sums_of(load: NodeLoad, placed: Iterable[PlacedWorkload], policy: LoadPolicy) -> Sums:
    """Add up what all placed work contributes."""
    sums = Sums({}, {}, {})
    reports = reports_of(load)
    for entry in placed:
        part = contribution_of(entry, reports.get(entry.workload.name), load, policy)
        add(sums.delta, part.delta)
        add(sums.full, part.full)
        add(sums.prod, part.prod_usage)
        add(sums.prod, part.prod_delta)
    return sums


def used(load: NodeLoad, sums: Sums, basis: UsageBasis | None = None) -> dict[str, int]:
    """What a node uses with everything that is placed there: the newest usage, or an aggregate when a basis is named.

    Where the aggregate has no value, the full estimates of all placed work stand for it.
    """
    base = load.usage if basis is None else aggregate_usage(load, basis)
    total: dict[str, int] = dict(base or {})
    add(total, sums.full if base is None else sums.delta)
    return total


def prod_used(load: NodeLoad, sums: Sums, policy: LoadPolicy) -> dict[str, int]:
    """What prod work uses on a node, with the system's usage when the policy counts it in."""
    total: dict[str, int] = dict(load.system_usage) if policy.prod_usage_includes_system else {}
    add(total, sums.prod)
    return total
