"""How the scores of resources make the score of a node by its real load."""

from collections.abc import Mapping

__all__ = ["weigh"]


def weigh(scores: Mapping[str, int], weights: Mapping[str, int], dominant_weight: int) -> int:
    """floor((sum of weight x score + dominant weight x lowest score) / (sum of weights + dominant weight)), 0 without weights.

    The lowest score is taken over all of `scores` and 100, so the scarcest resource counts even when it has no weight.
    """
    lowest = min([100, *scores.values()])
    weight_sum = sum(weights.values()) + dominant_weight
    if weight_sum <= 0:
        return 0
    return (sum(weight * scores[name] for name, weight in weights.items()) + dominant_weight * lowest) // weight_sum
