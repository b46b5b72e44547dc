"""The labels of all nodes as columns, in which a selector finds its nodes at once."""

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from colo_common.model.invalid import InvalidInput
from colo_common.model.node_selector import Selector, meets

__all__ = ["LABEL_KEYS_MAX", "LabelColumns"]

BoolArray = npt.NDArray[np.bool_]

LABEL_KEYS_MAX: Final = 1_024
"""How many different label keys are kept as columns."""
_ABSENT: Final = -1
_VALUES_SPARE: Final = 1_000


class _Column:
    """One label key: the values that occur, and for each row the number of its value, -1 for none."""

    def __init__(self, size: int) -> None:
        self.codes: npt.NDArray[np.int32] = np.full(size, _ABSENT, dtype=np.int32)
        self.numbers: dict[str, int] = {}

    def code(self, value: str) -> int:
        return self.numbers.setdefault(value, len(self.numbers))

    def in_use(self) -> "_Column":
        """The same with the values that some row has."""
        other = _Column(len(self.codes))
        names = list(self.numbers)
        used = np.unique(self.codes[self.codes != _ABSENT])
        new = np.full(len(names) + 1, _ABSENT, dtype=np.int32)
        new[used] = np.arange(used.size, dtype=np.int32)
        # The last entry answers for -1, a row without the label.
        other.codes = new[self.codes]
        other.numbers = {names[code]: number for number, code in enumerate(used.tolist())}
        return other


class LabelColumns:
    """The labels of all nodes, a column a key. Each requirement is asked once a value, not once a node."""

    def __init__(self, size: int = 64) -> None:
        self._size = max(size, 1)
        self._columns: dict[str, _Column] = {}
        self._keys: dict[int, tuple[str, ...]] = {}

    def check(self, labels: Mapping[str, str]) -> list[str]:
        """The keys among these that are new, sorted. Raises InvalidInput when there would be too many."""
        new = sorted(key for key in labels if key not in self._columns)
        if len(self._columns) + len(new) > LABEL_KEYS_MAX:
            raise InvalidInput("labels", f"at most {LABEL_KEYS_MAX} different keys are kept", new[0])
        return new

    def write(self, row: int, labels: Mapping[str, str]) -> None:
        """Replace the labels of a row. Raises InvalidInput, and changes nothing, when there would be too many keys."""
        new = self.check(labels)
        if row >= self._size:
            self._grow(max(row + 1, 2 * self._size))
        for key in new:
            self._columns[key] = _Column(self._size)
        for key in self._keys.get(row, ()):
            self._columns[key].codes[row] = _ABSENT
        for key, value in labels.items():
            column = self._columns[key]
            column.codes[row] = column.code(value)
        self._keys[row] = tuple(sorted(labels))

    def forget(self, row: int) -> None:
        """A row has no labels any more. Values that no row has are forgotten when they are most of all."""
        self.write(row, {})
        del self._keys[row]
        kept = sum(len(column.numbers) for column in self._columns.values())
        if kept > 2 * sum(len(keys) for keys in self._keys.values()) + _VALUES_SPARE:
            self._columns = {key: column for key in self._columns if (column := self._columns[key].in_use()).numbers}

    def _grow(self, size: int) -> None:
        for column in self._columns.values():
            codes = np.full(size, _ABSENT, dtype=np.int32)
            codes[: self._size] = column.codes
            column.codes = codes
        self._size = size

    def selected(self, selector: Selector, count: int) -> BoolArray:
        """`selects` of the first `count` rows: bool, shape (count,)."""
        passes: BoolArray = np.ones(count, dtype=np.bool_)
        for requirement in selector.demands:
            column = self._columns.get(requirement.key)
            if column is None:
                if not meets(requirement, None):
                    passes[:] = False
                continue
            # The last entry answers for -1, a row without the label.
            answers = np.array(
                [*(meets(requirement, v) for v in column.numbers), meets(requirement, None)], dtype=np.bool_
            )
            known = min(count, self._size)
            passes[:known] &= answers[column.codes[:known]]
            if not answers[_ABSENT]:
                passes[known:] = False
        return passes
