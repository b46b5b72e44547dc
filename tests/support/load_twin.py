"""Load-aware verdicts once more, for one node and in plain Python: what the rows of all nodes are compared with.

The twin takes what placed work adds (`Sums`) and what the newcomer is estimated to use from the product; judging is its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from colo_common.model.qos import PriorityBand
from colo_common.model.resource_list import ResourceList
from colo_scheduler.load.usage import LoadPolicy, NodeLoad, Sums, WorkloadRequest, add, estimate_of, prod_used, used
from colo_scheduler.peers.crane.dynamic_loads import DynamicPolicy, Metric, is_usable
from colo_scheduler.peers.crane.hot_value import HotPolicy

NO_SUMS = Sums({}, {}, {})


class RefusalKind(StrEnum):
    """Why a node is refused for its load."""

    EXPIRED = "report-expired"
    USAGE = "usage"
    AGGREGATED_USAGE = "aggregated-usage"


class LoadRefusal(Struct, frozen=True, kw_only=True):
    """Why a node is refused: how much would be used of which resource, and its threshold; neither for an expired report."""

    kind: RefusalKind
    resource: str = ""
    used_pct: int = 0
    threshold_pct: int = 0


def usage_pct(amount: int, capacity: int) -> int:
    """amount / capacity in percent, rounded half up; 0 without capacity."""
    return (200 * amount + capacity) // (2 * capacity) if capacity > 0 else 0


def refusal_of(
    workload: WorkloadRequest,
    load: NodeLoad | None,
    sums: Sums,
    capacity: ResourceList,
    policy: LoadPolicy,
    now_ms: int,
) -> LoadRefusal | None:
    """Why the node must not take the workload, None when it may."""
    is_prod = workload.band is PriorityBand.PROD
    thresholds, basis = policy.thresholds_of(is_prod=is_prod)
    if not any(thresholds.values()) or load is None:
        return None
    if policy.filter_expired and policy.is_expired(load.updated_at_ms, now_ms):
        return None if policy.place_when_expired else LoadRefusal(kind=RefusalKind.EXPIRED)
    if load.usage is None:
        return None
    by_prod = policy.is_judged_by_prod(is_prod=is_prod)
    total = prod_used(load, sums, policy) if by_prod else used(load, sums, basis)
    kind = RefusalKind.USAGE if basis is None else RefusalKind.AGGREGATED_USAGE
    refusal = _first_above(total, capacity, thresholds, kind)
    if refusal is None:
        add(total, estimate_of(workload, policy))
        refusal = _first_above(total, capacity, thresholds, kind)
    return refusal


def _first_above(
    total: ResourceList, capacity: ResourceList, thresholds: ResourceList, kind: RefusalKind
) -> LoadRefusal | None:
    for resource, threshold in sorted(thresholds.items()):
        pct = usage_pct(total.get(resource, 0), capacity.get(resource, 0))
        if threshold and pct > threshold:
            return LoadRefusal(kind=kind, resource=resource, used_pct=pct, threshold_pct=threshold)
    return None


def load_score(
    workload: WorkloadRequest,
    load: NodeLoad | None,
    sums: Sums,
    capacity: ResourceList,
    policy: LoadPolicy,
    now_ms: int,
) -> int:
    """0 to 100 for the node with the workload on it; 0 for a node whose report is missing, empty or expired."""
    if load is None or policy.is_expired(load.updated_at_ms, now_ms) or load.usage is None:
        return 0
    by_prod = policy.score_prod_usage and workload.band is PriorityBand.PROD
    total = prod_used(load, sums, policy) if by_prod else used(load, sums, policy.score_basis)
    add(total, estimate_of(workload, policy))
    scores = {name: _left_pct(total.get(name, 0), capacity.get(name, 0)) for name in policy.scored}
    weight_sum = sum(policy.weights.values()) + policy.dominant_weight
    if weight_sum <= 0:
        return 0
    weighted = sum(weight * scores[name] for name, weight in policy.weights.items())
    return (weighted + policy.dominant_weight * min([100, *scores.values()])) // weight_sum


def _left_pct(amount: int, capacity: int) -> int:
    return 0 if capacity <= 0 or amount > capacity else (capacity - amount) * 100 // capacity


def refused_by(metrics: Mapping[str, Metric], policy: DynamicPolicy) -> str | None:
    """The first metric in the order of the policy that is above its limit, None when the node may take work."""
    for name, limit in policy.limits_ratio.items():
        metric = metrics.get(name)
        if metric is not None and is_usable(metric, policy.window_ms(name)) and 0 != limit < metric.value:
            return name
    return None


def hot_value(ages_ms: Iterable[int], policies: Sequence[HotPolicy]) -> int:
    """The hot value of one node from the ages of its arrivals; an age equal to a range is outside."""
    ages = list(ages_ms)
    return sum(sum(age < policy.range_ms for age in ages) // policy.count for policy in policies)
