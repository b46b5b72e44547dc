"""Who fits a request class and the bounds of their keys, kept between turns: a class that comes again looks only at what changed.

A pass over all nodes is cheap where many replicas share it. Where a turn places a few it is most of what they cost, and the nodes
that changed since the class was decided last are few. Their numbers are written again by the same operations as a whole pass, so
nothing here can differ from one. Only a class that comes again with little changed is kept; one that comes once costs nothing more.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from colo_common.events.placement import ReasonCount
from colo_common.model.invalid import InvariantBroken
from colo_scheduler.cluster.facts import BoolArray
from colo_scheduler.cluster.pool import CPU_BITS, RANK_BITS, FloatArray, Pool
from colo_scheduler.cluster.snapshot import View
from colo_scheduler.numa.zones import IntArray, rows_holding_together
from colo_scheduler.placement.scores import FitRows
from colo_scheduler.placement.stack import Scoring, counts_of, usable
from colo_scheduler.requests.request_class import RequestClass

__all__ = ["ClassCache", "bounds_of", "rows_in_one_zone", "class_cache_of"]

# A whole pass is as quick when more than this part of all rows changed, of so many rows at least.
_FEW_PART: Final = 8
_ROWS_LEAST: Final = 256
# So many classes are kept; each takes nine bytes a node.
_CLASSES_MAX: Final = 32
_ONE_ZONE: Final = np.float32(100)
# What is said of a row: how many of the four were true in this order, the facts, CPU, memory and the zones.
_FITS: Final = 4

_CodeArray = npt.NDArray[np.int8]


class ClassCache:
    """What is known of one class, of all rows: `bounds` of their keys, below 0 where it does not fit, and how many rows `fit`.

    `counts`: how many rows each reason refuses. Read only.
    """

    __slots__ = ("_codes", "_facts_at", "_numbers", "_pool_at", "_refused", "bounds", "count", "counts", "scoring")

    def __init__(self, view: View, request: RequestClass, pool: Pool, scoring: Scoring) -> None:
        self.scoring, self.count = scoring, view.count
        self._pool_at, self._facts_at = pool.log.end, view.facts.log_end
        passing, self._refused = usable(view, request)
        self._codes, self.bounds = _judged(view, request, pool, scoring, passing, slice(0, view.count))
        self._numbers: list[int] = np.bincount(self._codes, minlength=_FITS + 1).tolist()
        self.counts = self._counted(request)

    @property
    def fitting(self) -> int:
        """How many rows fit."""
        return self._numbers[_FITS]

    def follow(self, view: View, request: RequestClass, pool: Pool) -> bool:
        """Look again at the rows that changed; False when they are too many, or nobody knows which."""
        rows = _changed(pool, view, self._pool_at, self._facts_at)
        if rows is None:
            return False
        passing: BoolArray | None = None
        if view.facts.log_end != self._facts_at:
            passing, self._refused = usable(view, request)
        if rows:
            at = np.array(rows, dtype=np.int64)
            before = self._codes[at]
            # While no facts change their verdict is known.
            admitted = before > 0 if passing is None else passing[at]
            if passing is None and before.min() == _FITS and _all_in_one_zone(pool, request, rows):
                # As most do, who fitted still does, and nothing is to be counted again.
                self.bounds[at] = bounds_of(pool, request, self.scoring, at, _ONE_ZONE)
                self._pool_at = pool.log.end
                return True
            codes, self.bounds[at] = _judged(view, request, pool, self.scoring, admitted, at)
            if passing is not None or (codes != before).any():
                self._codes[at] = codes
                gone, come = (np.bincount(each, minlength=_FITS + 1).tolist() for each in (before, codes))
                self._numbers = [n - old + new for n, old, new in zip(self._numbers, gone, come, strict=True)]
                self.counts = self._counted(request)
        elif passing is not None:
            self.counts = self._counted(request)
        self._pool_at, self._facts_at = pool.log.end, view.facts.log_end
        return True

    def _counted(self, request: RequestClass) -> tuple[ReasonCount, ...]:
        return counts_of([*self._refused, *self._numbers[1:_FITS]], request)


class _Seen(NamedTuple):
    """A class that came once, and where the logs ended then."""

    pool_at: int
    facts_at: int


def class_cache_of(view: View, request: RequestClass, pool: Pool, scoring: Scoring) -> ClassCache | None:
    """What is known of the class now, None where a pass over all rows is to be made. The pool's arrays are up to date."""
    # Whoever looks at more than facts and free amounts sees what no log tells.
    is_limited = view.inventory_index.limited > 0 and not request.is_prod
    if not scoring.is_of_room or request.avoid or is_limited or request.is_detailed or view.signals.refuses(request):
        return None
    classes = view.class_caches
    kept = classes.get(request)
    if isinstance(kept, ClassCache):
        classes.move_to_end(request)
        if kept.scoring is scoring and kept.count == view.count and kept.follow(view, request, pool):
            return kept
    elif isinstance(kept, _Seen) and _changed(pool, view, *kept) is not None:
        class_cache = classes[request] = ClassCache(view, request, pool, scoring)
        classes.move_to_end(request)
        return class_cache
    classes[request] = _Seen(pool.log.end, view.facts.log_end)
    if len(classes) > _CLASSES_MAX:
        classes.popitem(last=False)
    return None


def _all_in_one_zone(pool: Pool, request: RequestClass, rows: list[int]) -> bool:
    """Whether one zone, and all of them together, hold the request in each of these rows; of a few it is quickly seen so."""
    wanted_cpu, wanted_memory, kept = request.cpu_mcpu, request.memory_bytes, pool.rows
    for number in rows:
        row = kept[number]
        cpu, memory = row.cpu, row.memory
        if sum(cpu) < wanted_cpu or sum(memory) < wanted_memory:
            return False
        for slot, free_cpu in enumerate(cpu):
            if free_cpu >= wanted_cpu and memory[slot] >= wanted_memory:
                break
        else:
            return False
    return True


def _changed(pool: Pool, view: View, pool_at: int, facts_at: int) -> list[int] | None:
    """The rows that changed since, ascending; None when they are too many, or nobody knows which."""
    most = max(view.count, _ROWS_LEAST) // _FEW_PART
    rows = pool.log.since(pool_at, most)
    if rows is None:
        return None
    if view.facts.log_end != facts_at:
        told = view.facts.changed_since(facts_at)
        if told is None or told.size > most:
            return None
        rows.update(told.tolist())
    return sorted(rows)


def _judged(
    view: View, request: RequestClass, pool: Pool, scoring: Scoring, passing: BoolArray, rows: "slice | IntArray"
) -> tuple[_CodeArray, IntArray]:
    """What is said of these rows, of which facts admit those `passing`, and the bounds of their keys."""
    has_cpu = passing & (pool.node_free_cpu[rows] >= request.cpu_mcpu)
    has_memory = has_cpu & (pool.node_free_memory[rows] >= request.memory_bytes)
    single = rows_in_one_zone(pool, request, rows)
    fits = has_memory & single
    zone_score: FloatArray | np.float32 = _ONE_ZONE
    split = np.flatnonzero(has_memory & ~single)
    if split.size:
        at = split if isinstance(rows, slice) else rows[split]
        fits[split] = rows_holding_together(request.cpu_mcpu, request.memory_bytes, pool.free_cpu, pool.free_memory, at)
        alone = single.astype(np.float32)
        alone *= _ONE_ZONE
        zone_score = np.maximum(alone, view.facts.split_score[rows], out=alone)
    codes: _CodeArray = passing.astype(np.int8)
    for holds in (has_cpu, has_memory, fits):
        codes += holds
    bounds = bounds_of(pool, request, scoring, rows, zone_score)
    if split.size or not fits.all():
        bounds |= (~fits).astype(np.int64) << 63
    return codes, bounds


def rows_in_one_zone(pool: Pool, request: RequestClass, rows: "slice | IntArray") -> BoolArray:
    """Of which of these rows one zone holds the request."""
    found: BoolArray = np.zeros(0, dtype=np.bool_)
    for slot in range(pool.columns):
        holds = pool.free_cpu[rows, slot] >= request.cpu_mcpu
        holds &= pool.free_memory[rows, slot] >= request.memory_bytes
        if slot == 0:
            found = holds
        else:
            found |= holds
    return found


def bounds_of(
    pool: Pool,
    request: RequestClass,
    scoring: Scoring,
    rows: "slice | IntArray",
    zone_score: FloatArray | np.float32,
) -> IntArray:
    """The bounds of the keys of these rows, if they fit; all too high by the CPU that is asked for."""
    bounds = scoring.above(FitRows(pool, rows, request, _no_cost), zone_score)
    bounds <<= CPU_BITS + RANK_BITS
    # Not cut as the key is: where CPU exceeds its bits the bound only grows.
    bounds += pool.tie[rows]
    return bounds


def _no_cost() -> IntArray:
    """Nobody who asks for bounds alone may ask how many zones are taken."""
    raise InvariantBroken("a bound was asked how many zones are taken")
