"""Taints keep work off a node unless it tolerates them: NoSchedule and NoExecute refuse it, PreferNoSchedule is only counted."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from colo_common.model.constraints import Taint, Toleration
from colo_common.model.invalid import InvalidInput

__all__ = [
    "TAINTS_MAX",
    "TaintColumn",
    "refusing_taint",
    "soft_taints",
    "tolerates",
]

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

TAINTS_MAX: Final = 64
"""The most taints of one node."""
_SOFT: Final = "PreferNoSchedule"


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration covers a taint: its key or any, its value or any, its effect or any."""
    return (
        toleration.key in ("", taint.key)
        and toleration.value in (None, taint.value)
        and toleration.effect in ("", taint.effect)
    )


def refusing_taint(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """The first taint that refuses the work, None when it may come."""
    for taint in taints:
        if taint.effect == _SOFT:
            continue
        if not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None


def soft_taints(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> int:
    """How many PreferNoSchedule taints are not tolerated."""
    return sum(taint.effect == _SOFT and not any(tolerates(entry, taint) for entry in tolerations) for taint in taints)


class TaintColumn:
    """The taints of all nodes as one column. Nodes share few sets of taints, and each set is asked once."""

    def __init__(self, size: int = 64) -> None:
        self._sets: dict[tuple[Taint, ...], int] = {(): 0}
        self._codes: npt.NDArray[np.int32] = np.zeros(max(size, 1), dtype=np.int32)
        self.has_soft = False
        """Whether some row has ever had a PreferNoSchedule taint."""

    def write(self, row: int, taints: Sequence[Taint]) -> None:
        """Replace the taints of a row. Raises InvalidInput for more than TAINTS_MAX."""
        if len(taints) > TAINTS_MAX:
            raise InvalidInput("taints", f"must be at most {TAINTS_MAX}", len(taints))
        if row >= len(self._codes):
            codes = np.zeros(max(row + 1, 2 * len(self._codes)), dtype=np.int32)
            codes[: len(self._codes)] = self._codes
            self._codes = codes
        self.has_soft = self.has_soft or any(taint.effect == _SOFT for taint in taints)
        self._codes[row] = self._sets.setdefault(tuple(taints), len(self._sets))

    @property
    def is_empty(self) -> bool:
        """Whether no row has ever had a taint."""
        return len(self._sets) == 1

    def tolerated(self, tolerations: Sequence[Toleration], count: int) -> BoolArray:
        """`refusing_taint` is None, for the first `count` rows: bool, shape (count,)."""
        answers = np.array([refusing_taint(entry, tolerations) is None for entry in self._sets], dtype=np.bool_)
        passes: BoolArray = answers[self._of(count)]
        return passes

    def soft(self, tolerations: Sequence[Toleration], count: int) -> IntArray:
        """`soft_taints` of the first `count` rows: int64, shape (count,)."""
        answers = np.array([soft_taints(entry, tolerations) for entry in self._sets], dtype=np.int64)
        counts: IntArray = answers[self._of(count)]
        return counts

    def _of(self, count: int) -> npt.NDArray[np.int32]:
        codes = self._codes[:count]
        return codes if len(codes) == count else np.concatenate([codes, np.zeros(count - len(codes), dtype=np.int32)])
