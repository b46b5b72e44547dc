"""The expected use of a node: its measured usage, estimates for work that was not measured yet, and the newcomer.

estimated = base + sum of the estimates of the placed work that the report does not show yet + estimate of the newcomer. All
integers. After Koordinator's LoadAware (plugins/loadaware/pod_assign_cache.go, estimator/default_estimator.go).
"""

from typing import Final, NamedTuple

from colo_common.model.qos import PriorityBand
from colo_scheduler.load.policy import CPU, MEMORY, LoadPolicy, UsageBasis
from colo_scheduler.load.usage import NodeLoad, WorkloadRequest, add, aggregate_usage, resource_of

__all__ = ["DEFAULT_CPU_MCPU", "DEFAULT_MEMORY_BYTES", "Sums", "estimate_of", "prod_used", "used"]

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
