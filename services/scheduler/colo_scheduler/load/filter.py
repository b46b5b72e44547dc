"""Whether one node is too busy for a workload.

The plain form for one node. The scheduler asks about all nodes at once (`rows`); properties hold both to the same answers.
"""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from colo_common.model.qos import PriorityBand
from colo_scheduler.load.estimate import estimate_of, prod_used, sums_of, used
from colo_scheduler.load.policy import LoadPolicy, OwnThresholds
from colo_scheduler.load.usage import Amounts, NodeLoad, PlacedWorkload, WorkloadRequest, add

__all__ = ["LoadRefusal", "RefusalKind", "refusal_of", "usage_pct"]


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
    """amount / capacity in percent, rounded half up: floor((200 amount + capacity) / (2 capacity)); 0 without capacity."""
    return (200 * amount + capacity) // (2 * capacity) if capacity > 0 else 0


def refusal_of(
    workload: WorkloadRequest,
    load: NodeLoad | None,
    placed: Sequence[PlacedWorkload],
    capacity: Amounts,
    policy: LoadPolicy,
    now_ms: int,
    own: OwnThresholds | None = None,
) -> LoadRefusal | None:
    """Why the node must not take the workload, None when it may.

    A node without a report passes: load-awareness improves a placement, it does not forbid one. So does every node where all
    thresholds are 0, an expired report too. What exceeds a threshold already is named before what would with the newcomer;
    resources in order of name.
    """
    if workload.is_daemon:
        return None
    is_prod = workload.band is PriorityBand.PROD
    thresholds, basis = policy.thresholds_of(own, is_prod=is_prod)
    if not any(thresholds.values()) or load is None:
        return None
    if policy.filter_expired and policy.is_expired(load.updated_at_ms, now_ms):
        return None if policy.place_when_expired else LoadRefusal(kind=RefusalKind.EXPIRED)
    if load.usage is None:
        return None
    sums = sums_of(load, placed, policy)
    if policy.is_judged_by_prod(own, is_prod=is_prod):
        total = prod_used(load, sums, policy)
    else:
        total = used(load, sums, basis)
    kind = RefusalKind.USAGE if basis is None else RefusalKind.AGGREGATED_USAGE
    refusal = _first_above(total, capacity, thresholds, kind)
    if refusal is None:
        add(total, estimate_of(workload, policy))
        refusal = _first_above(total, capacity, thresholds, kind)
    return refusal


def _first_above(total: Amounts, capacity: Amounts, thresholds: Amounts, kind: RefusalKind) -> LoadRefusal | None:
    for resource, threshold in sorted(thresholds.items()):
        if threshold == 0:
            continue
        pct = usage_pct(total.get(resource, 0), capacity.get(resource, 0))
        if pct > threshold:
            return LoadRefusal(kind=kind, resource=resource, used_pct=pct, threshold_pct=threshold)
    return None
