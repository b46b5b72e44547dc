"""A node that just evicted work of a class is avoided by that class for a while: a penalty that halves again and again.

Integer arithmetic throughout, so a decision can be repeated anywhere: p(t) = floor(p x 2^(-t / half-life)), with whole half-lives
as shifts and the rest from a table of 64 steps.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from colo_common.model.invalid import InvalidInput

__all__ = [
    "PENALTY_FULL",
    "EvictionPenalties",
    "EvictionPenaltyPolicy",
    "decayed",
    "decayed_of_rows",
    "penalty_after",
    "recent_eviction",
]

IntArray = npt.NDArray[np.int64]

PENALTY_FULL: Final = 100_000
"""Penalties are in thousandths of a point; this one takes the whole score."""
_POINT: Final = 1_000
_STEPS: Final = 64
_BITS: Final = 30
_FACTORS: Final = tuple(round(2 ** (_BITS - step / _STEPS)) for step in range(_STEPS))
_FACTOR_ROW: Final = np.array(_FACTORS, dtype=np.int64)
#: After so many half-lives the largest penalty is below one thousandth.
_HALVINGS_MAX: Final = 30
#: After so many half-lives a whole score's penalty is below a tenth of a point, and the node is forgiven.
_FORGIVEN_AFTER: Final = 10
_FEW: Final = 64


class EvictionPenaltyPolicy(Struct, frozen=True, kw_only=True):
    """Each eviction adds `points` of 100; a penalty halves every `half_life_ms`. `classes_max` classes are remembered."""

    half_life_ms: int = 60_000
    points: int = 50
    classes_max: int = 64

    def validate(self) -> None:
        """Raise InvalidInput for the first value that breaks a rule."""
        if not 1 <= self.half_life_ms <= 1 << 40:
            raise InvalidInput("half_life_ms", "must be 1 to 2^40", self.half_life_ms)
        if not 0 <= self.points <= 100:
            raise InvalidInput("points", "must be 0 to 100", self.points)
        if not 1 <= self.classes_max <= 10_000:
            raise InvalidInput("classes_max", "must be 1 to 10000", self.classes_max)


def decayed(penalty: int, elapsed_ms: int, half_life_ms: int) -> int:
    """A penalty (thousandths of a point) after the decay of a span of time; a negative span counts as none."""
    halvings, rest_ms = divmod(max(0, elapsed_ms), half_life_ms)
    if halvings > _HALVINGS_MAX:
        return 0
    return (penalty * _FACTORS[rest_ms * _STEPS // half_life_ms] >> _BITS) >> halvings


def penalty_after(penalty: int, points: int) -> int:
    """A penalty with one more eviction, at most PENALTY_FULL."""
    return min(PENALTY_FULL, penalty + points * _POINT)


def decayed_of_rows(penalty: IntArray, elapsed_ms: IntArray, half_life_ms: int) -> IntArray:
    """`decayed` of every row: int64, shape (nodes,)."""
    halvings, rest_ms = np.divmod(np.maximum(elapsed_ms, 0), half_life_ms)
    factors = _FACTOR_ROW[rest_ms * _STEPS // half_life_ms]
    left = (penalty * factors >> _BITS) >> np.minimum(halvings, _HALVINGS_MAX)
    return np.where(halvings > _HALVINGS_MAX, 0, left)


def recent_eviction(penalty: IntArray) -> IntArray:
    """floor(100 - penalty) of every row, 100 for a node that evicted nothing lately: int64, shape (nodes,)."""
    return (PENALTY_FULL - np.minimum(penalty, PENALTY_FULL)) // _POINT


class EvictionPenalties:
    """The penalty of every node and class, as columns that are allocated when a class is first evicted.

    A class is any text, for example a job's name or a request class. Above `classes_max` the class with the oldest newest eviction
    is forgotten.
    """

    def __init__(self, policy: EvictionPenaltyPolicy, size: int = 64) -> None:
        policy.validate()
        self.policy = policy
        self._size = max(size, 1)
        self._penalty: dict[str, IntArray] = {}
        self._at_ms: dict[str, IntArray] = {}
        self._rows: dict[str, dict[int, None]] = {}

    def evicted(self, name: str, row: int, now_ms: int) -> None:
        """Note that work of a class was evicted from the node of that row."""
        if row >= self._size:
            self._grow(max(row + 1, 2 * self._size))
        penalty = self._penalty.pop(name, None)
        at_ms = self._at_ms.pop(name, None)
        if penalty is None or at_ms is None:
            while len(self._penalty) >= self.policy.classes_max:
                oldest = next(iter(self._penalty))
                del self._penalty[oldest], self._at_ms[oldest], self._rows[oldest]
            penalty, at_ms = np.zeros(self._size, dtype=np.int64), np.zeros(self._size, dtype=np.int64)
        # The newest class stands last.
        self._penalty[name], self._at_ms[name] = penalty, at_ms
        left = decayed(int(penalty[row]), now_ms - int(at_ms[row]), self.policy.half_life_ms)
        penalty[row], at_ms[row] = penalty_after(left, self.policy.points), now_ms
        rows = self._rows.setdefault(name, {})
        rows[row] = None
        if len(rows) > 2 * _FEW:
            self._rows[name] = dict.fromkeys(self._remembered(name, now_ms))

    def clear_row(self, row: int) -> None:
        """The node of the row is gone."""
        for name, rows in self._rows.items():
            rows.pop(row, None)
            if row < self._size:
                self._penalty[name][row] = self._at_ms[name][row] = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever evicted."""
        return not self._rows

    def is_remembered(self, name: str, now_ms: int) -> bool:
        """Whether some node is not forgiven yet an eviction of that class."""
        if name not in self._rows:
            return False
        self._rows[name] = dict.fromkeys(self._remembered(name, now_ms))
        return bool(self._rows[name])

    def _remembered(self, name: str, now_ms: int) -> list[int]:
        # What is below a tenth of a point would still cost a point of the whole score: it is forgotten.
        at_ms, horizon_ms = self._at_ms[name], _FORGIVEN_AFTER * self.policy.half_life_ms
        return [row for row in self._rows[name] if now_ms - int(at_ms[row]) < horizon_ms]

    def scores(self, name: str, count: int, now_ms: int) -> IntArray:
        """`recent_eviction` of the first `count` rows for a class: int64 0 to 100, shape (count,)."""
        scores = np.full(count, 100, dtype=np.int64)
        penalty = self._penalty.get(name)
        if penalty is not None:
            rows = np.array([row for row in self._remembered(name, now_ms) if row < count], dtype=np.int64)
            left = decayed_of_rows(penalty[rows], now_ms - self._at_ms[name][rows], self.policy.half_life_ms)
            scores[rows] = recent_eviction(left)
        return scores

    def _grow(self, size: int) -> None:
        for columns in (self._penalty, self._at_ms):
            for name, old in columns.items():
                columns[name] = np.zeros(size, dtype=np.int64)
                columns[name][: self._size] = old
        self._size = size
