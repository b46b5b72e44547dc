"""How Crane predicts from the past alone: a percentile of a value-weighted histogram (gocrane/crane:pkg/prediction/percentile)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Buckets(NamedTuple):
    """The buckets of a histogram: linear of `size`, or, with `growth`, each so much wider than the one before it."""

    most: float
    size: float
    growth: float = 0.0

    @property
    def count(self) -> int:
        """How many buckets there are; the last one has no end."""
        if not self.growth:
            return math.ceil(self.most / self.size) + 1
        ratio = 1 + self.growth
        return math.ceil(math.log(self.most * self.growth / self.size + 1) / math.log(ratio)) + 1

    def of(self, value: float) -> int:
        """The bucket of a value; the first and the last one take what lies outside."""
        if not self.growth:
            number = int(value / self.size)
        else:
            number = (
                0
                if value < self.size
                else int(math.log(value * self.growth / self.size + 1) / math.log(1 + self.growth))
            )
        return min(max(number, 0), self.count - 1)

    def start(self, number: int) -> float:
        """Where a bucket begins."""
        if not self.growth:
            return number * self.size
        return float(self.size * ((1 + self.growth) ** number - 1) / self.growth)


def weighted_percentile(
    samples: Sequence[float], buckets: Buckets, percentile: float, least_weight: float, epsilon: float
) -> float:
    """The end of the bucket that holds the percentile of the weight; each sample weighs as much as it is. 0 without samples."""
    weights: dict[int, float] = {}
    for sample in samples:
        number = buckets.of(sample)
        weights[number] = weights.get(number, 0.0) + max(least_weight, sample)
    used = sorted(number for number, weight in weights.items() if weight >= epsilon)
    if not used:
        return 0.0
    threshold, reached, found = percentile * sum(weights.values()), 0.0, used[-1]
    for number in range(used[0], used[-1] + 1):
        reached += weights.get(number, 0.0)
        if reached >= threshold:
            found = number
            break
    return buckets.start(found + 1) if found < buckets.count - 1 else buckets.start(found)
