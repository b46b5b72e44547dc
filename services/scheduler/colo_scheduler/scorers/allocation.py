"""Scores from what is allocated: spread work over empty nodes, pack it on full ones, or keep a node's resources in balance.

`allocated` counts the newcomer in. Resources are given in any order, capacity and weight in the same; arrays have a column for
each. Amounts are at least 0 and at most AMOUNT_MAX.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = [
    "AMOUNT_MAX",
    "balanced_allocation",
    "balanced_allocation_of_rows",
    "binpack",
    "binpack_of_rows",
    "least_allocated",
    "least_allocated_of_rows",
    "least_allocated_pct",
    "least_allocated_pct_of_rows",
    "most_allocated",
    "most_allocated_of_rows",
    "most_allocated_pct",
    "most_allocated_pct_of_rows",
]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

AMOUNT_MAX: Final = 1 << 52
"""The largest amount of one resource on one node: 1000 times it stays inside 64 bits."""
_SHARE: Final = 1_000
_BINPACK_SHARE: Final = 1_000_000


def least_allocated_pct(amount: int, capacity: int) -> int:
    """floor(100 (capacity - amount) / capacity): the share that stays free; 0 without capacity and beyond it."""
    return 0 if capacity <= 0 or amount > capacity else (capacity - amount) * 100 // capacity


def most_allocated_pct(amount: int, capacity: int) -> int:
    """floor(100 amount / capacity): the share that is used; 0 without capacity, 100 beyond it."""
    return 0 if capacity <= 0 else min(amount, capacity) * 100 // capacity


def least_allocated_pct_of_rows(amount: IntArray, capacity: IntArray) -> IntArray:
    """`least_allocated_pct` of every entry; any equal shapes, int64."""
    left = (capacity - amount) * 100 // np.maximum(capacity, 1)
    pct: IntArray = np.where((capacity <= 0) | (amount > capacity), 0, left)
    return pct


def most_allocated_pct_of_rows(amount: IntArray, capacity: IntArray) -> IntArray:
    """`most_allocated_pct` of every entry; any equal shapes, int64."""
    pct: IntArray = np.where(capacity <= 0, 0, np.minimum(amount, capacity) * 100 // np.maximum(capacity, 1))
    return pct


def _weighted_mean(pcts: Sequence[int], capacity: Sequence[int], weights: Sequence[int]) -> int:
    """floor(sum of w x pct / sum of w) over the resources with capacity; 0 without any."""
    total = weight_sum = 0
    for pct, whole, weight in zip(pcts, capacity, weights, strict=True):
        if whole > 0:
            total += weight * pct
            weight_sum += weight
    return total // weight_sum if weight_sum > 0 else 0


def least_allocated(allocated: Sequence[int], capacity: Sequence[int], weights: Sequence[int]) -> int:
    """floor(sum of w x floor(100 (c - a) / c) / sum of w) over resources with capacity; 0 for one that is exceeded."""
    return _weighted_mean(list(map(least_allocated_pct, allocated, capacity)), capacity, weights)


def most_allocated(allocated: Sequence[int], capacity: Sequence[int], weights: Sequence[int]) -> int:
    """floor(sum of w x floor(100 a / c) / sum of w) over resources with capacity; 100 for one that is exceeded."""
    return _weighted_mean(list(map(most_allocated_pct, allocated, capacity)), capacity, weights)


def balanced_allocation(allocated: Sequence[int], capacity: Sequence[int]) -> int:
    """100 less the standard deviation of the allocated shares in percent, rounded up; 100 where fewer than two have capacity.

    Shares are cut to 1 and taken in thousandths, rounded down, as the deviation of what is promised needs no more.
    """
    shares = [
        min(amount, whole) * _SHARE // whole for amount, whole in zip(allocated, capacity, strict=True) if whole > 0
    ]
    count = len(shares)
    if count < 2:
        return 100
    # n^2 x variance, and then the least whole percent that is not below its root / n.
    spread = count * sum(share * share for share in shares) - sum(shares) ** 2
    root = math.isqrt(spread)
    root += root * root < spread
    return 100 - -(-root // (10 * count))


def binpack(requested: Sequence[int], used: Sequence[int], capacity: Sequence[int], weights: Sequence[int]) -> int:
    """100 x sum of w (used + requested) / capacity / sum of w over the requested resources with a weight, rounded down.

    0 when one of them would not fit; a resource without capacity adds nothing and its weight still counts. After Volcano's binpack
    (plugins/binpack/binpack.go), with each share in millionths, rounded down.
    """
    total = weight_sum = 0
    for amount, before, whole, weight in zip(requested, used, capacity, weights, strict=True):
        if amount <= 0:
            continue
        weight_sum += weight
        if whole <= 0 or weight <= 0:
            continue
        if amount + before > whole:
            return 0
        total += weight * _millionths(amount + before, whole)
    return total * 100 // (weight_sum * _BINPACK_SHARE) if weight_sum > 0 else 0


def _millionths(amount: int, whole: int) -> int:
    """floor(amount x 10^6 / whole) in two steps, each of which stays inside 64 bits."""
    thousandths, rest = divmod(amount * _SHARE, whole)
    return thousandths * _SHARE + rest * _SHARE // whole


def _weighted_mean_of_rows(pcts: IntArray, capacity: IntArray, weights: IntArray) -> IntArray:
    has = capacity > 0
    weight_sum = np.where(has, weights, 0).sum(axis=1)
    total = np.where(has, pcts * weights, 0).sum(axis=1)
    mean: IntArray = np.where(weight_sum > 0, total // np.maximum(weight_sum, 1), 0)
    return mean


def least_allocated_of_rows(allocated: IntArray, capacity: IntArray, weights: IntArray) -> IntArray:
    """`least_allocated` of every row: (nodes, resources) twice and (resources,), int64; gives (nodes,)."""
    return _weighted_mean_of_rows(least_allocated_pct_of_rows(allocated, capacity), capacity, weights)


def most_allocated_of_rows(allocated: IntArray, capacity: IntArray, weights: IntArray) -> IntArray:
    """`most_allocated` of every row: (nodes, resources) twice and (resources,), int64; gives (nodes,)."""
    return _weighted_mean_of_rows(most_allocated_pct_of_rows(allocated, capacity), capacity, weights)


def balanced_allocation_of_rows(allocated: IntArray, capacity: IntArray) -> IntArray:
    """`balanced_allocation` of every row: (nodes, resources) twice, int64; gives (nodes,)."""
    whole, has = np.maximum(capacity, 1), capacity > 0
    shares = np.where(has, np.minimum(allocated, capacity) * _SHARE // whole, 0)
    count = has.sum(axis=1)
    spread = count * (shares * shares).sum(axis=1) - shares.sum(axis=1) ** 2
    # Far below 2^52, where the root of a number that is no square is never rounded to a whole one.
    root = np.ceil(np.sqrt(spread.astype(np.float64))).astype(np.int64)
    step = 10 * np.maximum(count, 1)
    balance: IntArray = np.where(count < 2, 100, 100 - (root + step - 1) // step)
    return balance


def binpack_of_rows(requested: IntArray, used: IntArray, capacity: IntArray, weights: IntArray) -> IntArray:
    """`binpack` of every row: (resources,), (nodes, resources) twice and (resources,), int64; gives (nodes,)."""
    asked = requested > 0
    weight_sum = int(weights[asked].sum())
    nodes = used.shape[0]
    if weight_sum <= 0:
        return np.zeros(nodes, dtype=np.int64)
    total: IntArray = np.zeros(nodes, dtype=np.int64)
    fits: BoolArray = np.ones(nodes, dtype=np.bool_)
    for column in np.flatnonzero(asked & (weights > 0)).tolist():
        amount, whole = used[:, column] + requested[column], np.maximum(capacity[:, column], 1)
        has = capacity[:, column] > 0
        over = has & (amount > capacity[:, column])
        # Beyond capacity the share is not used; cutting it keeps it inside 64 bits.
        thousandths, rest = np.divmod(np.minimum(amount, whole) * _SHARE, whole)
        total += np.where(has, weights[column] * (thousandths * _SHARE + rest * _SHARE // whole), 0)
        fits &= ~over
    return np.where(fits, total * 100 // (weight_sum * _BINPACK_SHARE), 0)
