"""How good one node is by its real load: the less used, the better."""

from collections.abc import Mapping, Sequence

from colo_common.model.qos import PriorityBand
from colo_scheduler.load.estimate import estimate_of, prod_used, sums_of, used
from colo_scheduler.load.policy import LoadPolicy
from colo_scheduler.load.usage import Amounts, NodeLoad, PlacedWorkload, WorkloadRequest, add

__all__ = ["least_used", "load_score", "weigh"]


def least_used(amount: int, capacity: int) -> int:
    """What is left in percent: floor(100 (capacity - amount) / capacity), 0 when nothing is left or there is no capacity."""
    if capacity <= 0 or amount > capacity:
        return 0
    return (capacity - amount) * 100 // capacity


def weigh(scores: Mapping[str, int], weights: Mapping[str, int], dominant_weight: int) -> int:
    """floor((sum of weight x score + dominant weight x lowest score) / (sum of weights + dominant weight)), 0 without weights.

    The lowest score is taken over all of `scores` and 100, so the scarcest resource counts even when it has no weight.
    """
    lowest = min([100, *scores.values()])
    weight_sum = sum(weights.values()) + dominant_weight
    if weight_sum <= 0:
        return 0
    return (sum(weight * scores[name] for name, weight in weights.items()) + dominant_weight * lowest) // weight_sum


def load_score(
    workload: WorkloadRequest,
    load: NodeLoad | None,
    placed: Sequence[PlacedWorkload],
    capacity: Amounts,
    policy: LoadPolicy,
    now_ms: int,
) -> int:
    """0 to 100 for the node with the workload on it; 0 for a node whose report is missing, empty or expired."""
    if load is None or policy.is_expired(load.updated_at_ms, now_ms) or load.usage is None:
        return 0
    sums = sums_of(load, placed, policy)
    if policy.score_prod_usage and workload.band is PriorityBand.PROD:
        total = prod_used(load, sums, policy)
    else:
        total = used(load, sums, policy.score_basis)
    add(total, estimate_of(workload, policy))
    scores = {name: least_used(total.get(name, 0), capacity.get(name, 0)) for name in policy.scored}
    return weigh(scores, policy.weights, policy.dominant_weight)
