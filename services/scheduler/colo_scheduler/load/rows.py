"""The load of all nodes as rows of integers, with verdicts and scores for all of them at once.

A node is a row, a resource of the policy a column. The sums over what is placed on a node are kept, not computed: a newcomer
without a report adds its estimate, and a new report writes the row again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt

from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import PriorityBand
from colo_common.model.resource_list import ResourceList
from colo_scheduler.load.usage import LoadPolicy, NodeLoad, Sums, prod_used, used
from colo_scheduler.scorers.allocation import least_allocated_pct, least_allocated_pct_of_rows

__all__ = [
    "EXPIRED",
    "FIRST_RESOURCE",
    "LoadArrays",
    "LoadTable",
    "PASSES",
    "kept_rows",
    "loads_passing",
    "newcomers_in_row",
    "overloads_of_rows",
    "refusal_codes_of_rows",
    "score_in_row",
    "scores_of_rows",
    "usage_pct_of_rows",
    "weigh",
]


def weigh(scores: Mapping[str, int], weights: Mapping[str, int], dominant_weight: int) -> int:
    """floor((sum of weight x score + dominant weight x lowest score) / (sum of weights + dominant weight)), 0 without weights.

    The lowest score is taken over all of `scores` and 100, so the scarcest resource counts even when it has no weight.
    """
    lowest = min([100, *scores.values()])
    weight_sum = sum(weights.values()) + dominant_weight
    if weight_sum <= 0:
        return 0
    return (sum(weight * scores[name] for name, weight in weights.items()) + dominant_weight * lowest) // weight_sum


IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

NEVER_MS: Final = -(1 << 62)
"""The time of a report that never said when."""
AMOUNT_MAX: Final = 1 << 53
"""Larger amounts are cut to this, so that 200 of them stay inside 64 bits."""
PASSES: Final = 0
EXPIRED: Final = 1
FIRST_RESOURCE: Final = 2
"""Refusal codes: 0 passes, 1 the report is expired, 2 + c resource c of the columns exceeds its threshold."""


@dataclass(frozen=True, slots=True)
class LoadArrays:
    """Views of the table; nothing in them is a copy.

    Shape (nodes,): `updated_at_ms` int64 (NEVER_MS: a report without a time), `reported` and `measured` bool (there is a report; it
    carries numbers), `has_limits` and `has_prod_limits` bool (the node has thresholds for other and for prod work).
    Shape (nodes, resources), int64, in the units of the resource: `capacity`; `filter_used`, `score_used`, `prod_used`: what is
    used with all placed work, by the basis of the filter, of the score, and by prod work alone.
    Shape (nodes, resources), int64, percent, 0 for off: `limit_pct`, `prod_limit_pct`.
    """

    resources: tuple[str, ...]
    updated_at_ms: IntArray
    reported: BoolArray
    measured: BoolArray
    has_limits: BoolArray
    has_prod_limits: BoolArray
    capacity: IntArray
    filter_used: IntArray
    score_used: IntArray
    prod_used: IntArray
    limit_pct: IntArray
    prod_limit_pct: IntArray


class LoadTable:
    """The rows of all nodes. A row that was never written has no report."""

    def __init__(self, policy: LoadPolicy, size: int = 64) -> None:
        policy.validate()
        self.policy = policy
        self.resources = policy.resources
        self._column = {name: number for number, name in enumerate(self.resources)}
        self._all = _empty(self.resources, max(size, 1))

    @property
    def size(self) -> int:
        """How many rows there is room for."""
        return len(self._all.updated_at_ms)

    def grow(self, size: int) -> None:
        """Make room for at least that many rows; what is there stays. Views that were handed out keep the old arrays."""
        if size <= self.size:
            return
        before, self._all = self._all, _empty(self.resources, max(size, 2 * self.size))
        for name in _COLUMNS:
            old = getattr(before, name)
            getattr(self._all, name)[: len(old)] = old

    def write_sums(self, row: int, load: NodeLoad | None, sums: Sums, capacity: ResourceList) -> None:
        """Write all of a row from a report, and from what everything that is placed adds to it."""
        policy = self.policy
        limits, basis = policy.thresholds_of(is_prod=False)
        is_prod_judged = policy.is_judged_by_prod(is_prod=True)
        prod_limits = policy.thresholds_of(is_prod=True)[0] if is_prod_judged else {}
        self.grow(row + 1)
        rows = self._all
        rows.limit_pct[row], rows.prod_limit_pct[row] = self.row_of(limits), self.row_of(prod_limits)
        rows.has_limits[row], rows.has_prod_limits[row] = any(limits.values()), is_prod_judged
        rows.capacity[row] = self.row_of(capacity)
        rows.reported[row] = load is not None
        rows.measured[row] = load is not None and load.usage is not None
        rows.updated_at_ms[row] = NEVER_MS if load is None or load.updated_at_ms is None else load.updated_at_ms
        if load is None:
            for column in (rows.filter_used, rows.score_used, rows.prod_used):
                column[row] = 0
            return
        rows.filter_used[row] = self.row_of(used(load, sums, basis))
        rows.score_used[row] = self.row_of(used(load, sums, policy.score_basis))
        rows.prod_used[row] = self.row_of(prod_used(load, sums, policy))

    def place_estimate(self, row: int, estimate: IntArray, *, is_prod: bool) -> None:
        """Add work that no report names yet and that is expected to use so much in all; a negative amount takes it away again."""
        if row >= self.size or not self._all.reported[row]:
            return
        self._all.filter_used[row] += estimate
        self._all.score_used[row] += estimate
        if is_prod:
            self._all.prod_used[row] += estimate

    def fork(self) -> "LoadTable":
        """A table that changes for itself."""
        other = LoadTable(self.policy, 1)
        other._all = LoadArrays(
            resources=self.resources, **{name: getattr(self._all, name).copy(order="K") for name in _COLUMNS}
        )
        return other

    def rows(self, count: int) -> LoadArrays:
        """The first `count` rows. Raises InvalidInput when there is no room for so many."""
        if not 0 <= count <= self.size:
            raise InvalidInput("count", f"must be 0 to {self.size}", count)
        return LoadArrays(resources=self.resources, **{name: getattr(self._all, name)[:count] for name in _COLUMNS})

    def row_of(self, amounts: ResourceList) -> IntArray:
        """Amounts as a row of the columns; resources that no rule looks at are left out."""
        row = np.zeros(len(self.resources), dtype=np.int64)
        for name, amount in amounts.items():
            column = self._column.get(name)
            if column is not None:
                row[column] = min(max(amount, 0), AMOUNT_MAX)
        return row


_COLUMNS: Final = tuple(field.name for field in fields(LoadArrays) if field.name != "resources")


def _empty(resources: tuple[str, ...], size: int) -> LoadArrays:
    def wide() -> IntArray:
        return np.zeros((size, len(resources)), dtype=np.int64, order="F")

    def flags() -> BoolArray:
        return np.zeros(size, dtype=np.bool_)

    return LoadArrays(
        resources=resources,
        updated_at_ms=np.full(size, NEVER_MS, dtype=np.int64),
        reported=flags(),
        measured=flags(),
        has_limits=flags(),
        has_prod_limits=flags(),
        capacity=wide(),
        filter_used=wide(),
        score_used=wide(),
        prod_used=wide(),
        limit_pct=wide(),
        prod_limit_pct=wide(),
    )


def usage_pct_of_rows(amount: IntArray, capacity: IntArray) -> IntArray:
    """amount / capacity in percent, rounded half up: floor((200 amount + capacity) / (2 capacity)), 0 without capacity.

    Any equal shapes.
    """
    pct: IntArray = np.where(capacity > 0, (200 * amount + capacity) // (2 * np.maximum(capacity, 1)), 0)
    return pct


def expired_rows(rows: LoadArrays, policy: LoadPolicy, now_ms: int) -> BoolArray:
    """`LoadPolicy.is_expired` of every row."""
    if policy.expiration_ms is None:
        return np.zeros(rows.updated_at_ms.shape, dtype=np.bool_)
    expired: BoolArray = rows.updated_at_ms == NEVER_MS
    if policy.expiration_ms > 0:
        expired = expired | (rows.updated_at_ms <= now_ms - policy.expiration_ms)
    return expired


def refusal_codes_of_rows(
    rows: LoadArrays, estimate: IntArray, band: PriorityBand, policy: LoadPolicy, now_ms: int
) -> IntArray:
    """Why each row must not take the newcomer, as PASSES, EXPIRED or FIRST_RESOURCE + column: int64, shape (nodes,).

    `estimate` is what the newcomer is expected to use: int64, an entry for each column. A node without a report passes:
    load-awareness improves a placement, it does not forbid one. So does every node where all thresholds are 0, an expired report
    too. A resource above its threshold already is named before one that only the newcomer takes above it; then by name.
    """
    codes = np.zeros(rows.updated_at_ms.shape, dtype=np.int64)
    by_prod, total, limit = _judged_by(rows, band)
    judged = rows.reported & (by_prod | rows.has_limits)
    measured = judged & rows.measured
    if policy.filter_expired:
        expired = judged & expired_rows(rows, policy, now_ms)
        measured = measured & ~expired
        if not policy.place_when_expired:
            codes[expired] = EXPIRED
    for amount in (np.minimum(total + estimate, AMOUNT_MAX), np.minimum(total, AMOUNT_MAX)):
        # What exceeds already is written last, so it wins over what would exceed with the newcomer.
        above = (limit > 0) & (usage_pct_of_rows(amount, rows.capacity) > limit) & measured[:, None]
        any_above = above.any(axis=1)
        codes[any_above] = FIRST_RESOURCE + np.argmax(above[any_above], axis=1)
    return codes


def _judged_by(rows: LoadArrays, band: PriorityBand) -> tuple[BoolArray, IntArray, IntArray]:
    """Which rows are judged by what prod work uses, and what is used and the thresholds by which each is."""
    by_prod = rows.has_prod_limits if band is PriorityBand.PROD else np.zeros_like(rows.has_prod_limits)
    if not by_prod.any():
        return by_prod, rows.filter_used, rows.limit_pct
    total = np.where(by_prod[:, None], rows.prod_used, rows.filter_used)
    return by_prod, total, np.where(by_prod[:, None], rows.prod_limit_pct, rows.limit_pct)


def overloads_of_rows(
    rows: LoadArrays, estimate: IntArray, band: PriorityBand, policy: LoadPolicy, now_ms: int
) -> tuple[IntArray, IntArray, IntArray]:
    """The codes of `refusal_codes_of_rows`, the load in percent that refuses each row, and its threshold (both 0 where none does);
    int64, each of shape (nodes,).
    """
    codes = refusal_codes_of_rows(rows, estimate, band, policy, now_ms)
    _, total, limit = _judged_by(rows, band)
    every, column = np.arange(codes.size), np.maximum(codes - FIRST_RESOURCE, 0)
    amount, capacity = total[every, column], rows.capacity[every, column]
    before = usage_pct_of_rows(np.minimum(amount, AMOUNT_MAX), capacity)
    after = usage_pct_of_rows(np.minimum(amount + estimate[column], AMOUNT_MAX), capacity)
    most = limit[every, column]
    busy = codes >= FIRST_RESOURCE
    return codes, np.where(busy, np.where(before > most, before, after), 0), np.where(busy, most, 0)


def loads_passing(
    rows: LoadArrays, estimate: IntArray, band: PriorityBand, policy: LoadPolicy, now_ms: int
) -> BoolArray:
    """Which rows may take the newcomer for their load: bool, shape (nodes,)."""
    passes: BoolArray = refusal_codes_of_rows(rows, estimate, band, policy, now_ms) == PASSES
    return passes


def scores_of_rows(
    rows: LoadArrays, estimate: IntArray, band: PriorityBand, policy: LoadPolicy, now_ms: int
) -> IntArray:
    """0 to 100 for every row with the newcomer on it, the less used the more; 0 where the report is missing, empty or expired.

    int64, shape (nodes,).
    """
    by_prod = policy.score_prod_usage and band is PriorityBand.PROD
    total = np.minimum((rows.prod_used if by_prod else rows.score_used) + estimate, AMOUNT_MAX)
    weighted = np.zeros(rows.updated_at_ms.shape, dtype=np.int64)
    lowest = np.full(rows.updated_at_ms.shape, 100, dtype=np.int64)
    for name in policy.scored:
        column = rows.resources.index(name)
        score = least_allocated_pct_of_rows(total[:, column], rows.capacity[:, column])
        weighted += policy.weights.get(name, 0) * score
        lowest = np.minimum(lowest, score)
    weight_sum = sum(policy.weights.values()) + policy.dominant_weight
    if weight_sum <= 0:
        return np.zeros_like(weighted)
    scores = (weighted + policy.dominant_weight * lowest) // weight_sum
    known = rows.reported & rows.measured & ~expired_rows(rows, policy, now_ms)
    return np.where(known, scores, 0)


def newcomers_in_row(
    rows: LoadArrays, row: int, estimate: IntArray, band: PriorityBand, policy: LoadPolicy, now_ms: int, most: int
) -> int:
    """How many equal newcomers `loads_passing` lets onto one node one after the other, at most `most`."""
    by_prod = band is PriorityBand.PROD and bool(rows.has_prod_limits[row])
    if not rows.reported[row] or not (by_prod or rows.has_limits[row]):
        return most
    if policy.filter_expired and _is_expired(rows, row, policy, now_ms):
        return most if policy.place_when_expired else 0
    if not rows.measured[row]:
        return most
    total, limits = (rows.prod_used, rows.prod_limit_pct) if by_prod else (rows.filter_used, rows.limit_pct)
    cells = zip(total[row].tolist(), estimate.tolist(), rows.capacity[row].tolist(), limits[row].tolist(), strict=True)
    for amount, step, capacity, limit in cells:
        if limit <= 0 or capacity <= 0:
            continue
        # The largest amount whose share, rounded half up, is not above the limit.
        largest = (capacity * (2 * limit + 1) - 1) // 200
        if largest >= AMOUNT_MAX:
            continue
        if amount > largest:
            return 0
        if step > 0:
            most = min(most, (largest - amount) // step)
    return most


def kept_rows(rows: LoadArrays, picked: Sequence[int]) -> LoadArrays:
    """A copy of these rows, in this order."""
    at = np.asarray(picked, dtype=np.int64)
    return LoadArrays(resources=rows.resources, **{name: getattr(rows, name)[at] for name in _COLUMNS})


def score_in_row(
    rows: LoadArrays, row: int, estimate: IntArray, band: PriorityBand, policy: LoadPolicy, now_ms: int
) -> int:
    """`scores_of_rows` of one row; `estimate` is of all newcomers together."""
    if not (rows.reported[row] and rows.measured[row]) or _is_expired(rows, row, policy, now_ms):
        return 0
    by_prod = policy.score_prod_usage and band is PriorityBand.PROD
    total = (rows.prod_used if by_prod else rows.score_used)[row].tolist()
    capacity, more = rows.capacity[row].tolist(), estimate.tolist()
    scores = {}
    for name in policy.scored:
        column = rows.resources.index(name)
        scores[name] = least_allocated_pct(min(total[column] + more[column], AMOUNT_MAX), capacity[column])
    return weigh(scores, policy.weights, policy.dominant_weight)


def _is_expired(rows: LoadArrays, row: int, policy: LoadPolicy, now_ms: int) -> bool:
    at_ms = int(rows.updated_at_ms[row])
    return policy.is_expired(None if at_ms == NEVER_MS else at_ms, now_ms)
