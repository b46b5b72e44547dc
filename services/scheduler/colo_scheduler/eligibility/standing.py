"""Whether a node's facts are fresh enough to add to it, and which QoS classes it serves."""

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from colo_common.model.freshness import Freshness
from colo_common.model.qos import QosClass

__all__ = ["ALL_CLASSES", "may_grow", "may_grow_rows", "qos_bit", "served_bits", "serves", "serves_rows"]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_BITS: Final = {qos: 1 << number for number, qos in enumerate(QosClass)}
ALL_CLASSES: Final = sum(_BITS.values())


def may_grow(freshness: Freshness, facts_at_ms: int, now_ms: int, age_max_ms: int) -> bool:
    """Whether work may be added: the node is fresh and its newest facts are not older than `age_max_ms` (0: whatever their age)."""
    return freshness.may_grow and (age_max_ms == 0 or now_ms - facts_at_ms <= age_max_ms)


def may_grow_rows(is_fresh: BoolArray, facts_at_ms: IntArray, now_ms: int, age_max_ms: int) -> BoolArray:
    """`may_grow` of every row; `is_fresh` is `Freshness.may_grow`, both of shape (nodes,)."""
    if age_max_ms == 0:
        return is_fresh.copy()
    passes: BoolArray = is_fresh & (now_ms - facts_at_ms <= age_max_ms)
    return passes


def qos_bit(qos: QosClass) -> int:
    """The bit of a class in a node's set of classes served."""
    return _BITS[qos]


def served_bits(classes: Iterable[QosClass]) -> int:
    """A set of classes as one integer."""
    bits = 0
    for qos in classes:
        bits |= _BITS[qos]
    return bits


def serves(served: int, qos: QosClass) -> bool:
    """Whether a node serves a class; `served` as `served_bits` gives it."""
    return bool(served & _BITS[qos])


def serves_rows(served: IntArray, qos: QosClass) -> BoolArray:
    """`serves` of every row: int64 bits in, bool out, shape (nodes,)."""
    passes: BoolArray = (served & _BITS[qos]) != 0
    return passes
