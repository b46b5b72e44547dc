"""Which nodes may take a request whatever is free on them: one verdict a node for all requests of the same shape, kept up to date.

Verdicts change when facts change, which is rare beside decisions: a shape that is asked for again looks only at the rows that the
log of the facts names since the last time. A verdict is the place in `filters.ORDER` of the first of STATIC_FILTERS that refuses.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from colo_scheduler.cluster.facts import BoolArray, NodeFacts
from colo_scheduler.numa.zones import IntArray
from colo_scheduler.placement.filters import CODE_OF, PASSES, STATIC_FILTERS, VACANT, Shape

__all__ = ["StaticFilterCache", "StaticVerdicts", "VerdictArray"]

_SHAPES_MAX: Final = 256
VerdictArray = npt.NDArray[np.int8]


class StaticVerdicts(NamedTuple):
    """`codes`: the verdict on each row, int8 of shape (rows,); `passing`: the rows with PASSES, bool of the same shape.

    `numbers[code]`: how many rows have that verdict, PASSES included. Read only.
    """

    codes: VerdictArray
    passing: BoolArray
    numbers: tuple[int, ...]


class _Kept:
    def __init__(self, count: int) -> None:
        self.position = -1
        self.codes: VerdictArray = np.full(count, PASSES, dtype=np.int8)
        self.verdicts: StaticVerdicts | None = None


class StaticFilterCache:
    """The verdicts of the shapes asked for last, at most 256; the one unused for longest is forgotten."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Shape, _Kept] = OrderedDict()

    def of(self, shape: Shape, facts: NodeFacts, count: int) -> StaticVerdicts:
        """The verdicts on the first `count` rows."""
        kept = self._kept.get(shape)
        if kept is None or kept.codes.size != count:
            kept = self._kept[shape] = _Kept(count)
            if len(self._kept) > _SHAPES_MAX:
                self._kept.popitem(last=False)
        self._kept.move_to_end(shape)
        if kept.verdicts is not None and kept.position == facts.log_end:
            return kept.verdicts
        changed = facts.changed_since(kept.position)
        if changed is None:
            changed = np.arange(count, dtype=np.int64)
        if changed.size or kept.verdicts is None:
            # Verdicts that were given away are not changed any more.
            codes = kept.codes.copy()
            codes[changed] = _judge(facts, changed, shape)
            numbers = tuple(np.bincount(codes, minlength=VACANT + 1)[:VACANT].tolist())
            kept.codes, kept.verdicts = codes, StaticVerdicts(codes, codes == PASSES, numbers)
        kept.position = facts.log_end
        return kept.verdicts


def _judge(facts: NodeFacts, rows: IntArray, shape: Shape) -> VerdictArray:
    codes: VerdictArray = np.full(rows.size, PASSES, dtype=np.int8)
    for each in reversed(STATIC_FILTERS):
        codes[~each.passes(facts, rows, shape)] = CODE_OF[each.reason]
    codes[~facts.taken[rows]] = VACANT
    return codes
