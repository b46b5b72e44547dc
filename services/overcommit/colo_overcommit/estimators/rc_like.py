"""The sum of what each workload is expected to use by itself: the predictor like Resource Central's.

Source: Cortez et al., "Resource Central", SOSP 2017, as Bashir et al. compare it in "Take it to the limit", EuroSys 2021, and
googleinterns/cluster-resource-forecast computes it (simulator/per_vm_percentile_predictor.py): the 99th percentile of what each
task used of its limit in two hours, times its limit of now. There a use above the limit cannot be; here the request of online
work is no ceiling, and its use counts as it is.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from colo_overcommit.estimators.states import RcLikeState, WorkState
from colo_overcommit.estimators.steps import STEP_MS

__all__ = ["WORKS_MOST", "WorkPart", "RcLikeEstimator"]

WORKS_MOST: Final = 128
"""The most workloads of a zone that are followed one by one. The use of the others counts together, with unreported work."""
_STEPS: Final = 24
_MILLION: Final = 1_000_000
_PERCENTILE: Final = 0.99
_REST: Final = ""


class WorkPart(NamedTuple):
    """What one workload uses of what it may use, in one unit. Where `is_requested` the latter is its request; else nobody knows
    what it asked for, and it is what the zone has.
    """

    work: str
    used: int
    limit: int
    is_requested: bool


class _Work:
    """The largest values of the last 24 steps in which it was seen all along, in millionths of the limit, and what they say."""

    __slots__ = ("_of", "expected", "largest", "most", "values")

    def __init__(self, of: float, values: Sequence[int] = (), largest: int = -1) -> None:
        self._of = of
        self.values: deque[int] = deque(values, maxlen=_STEPS)
        self.largest = largest
        #: None while it is too new.
        self.expected: int | None = None
        self.most = 0
        self._expect()

    def close(self) -> None:
        """The step is over."""
        self.values.append(self.largest)
        self.largest = -1
        self._expect()

    def _expect(self) -> None:
        self.most = max(self.values, default=0)
        if len(self.values) == _STEPS:
            # Of 24 values the 99th percentile is 77 % of the way between the two largest, at 0.99 * 23 = 22.77.
            ordered, place = sorted(self.values), round(self._of * (_STEPS - 1), 6)
            below = int(place)
            above = ordered[min(below + 1, _STEPS - 1)]
            self.expected = ordered[below] + math.ceil(round((above - ordered[below]) * (place - below), 6))


class RcLikeEstimator:
    """The sum over the workloads of now of a percentile (0.99) of what each used in 24 steps of five minutes, rounded up.

    A workload that is not known for so long counts with its request, or the largest use that it had if that is more; one of which
    nobody knows what it asked for with the largest use alone. What is no workload's counts like one of these. Who leaves does not
    count from the next sample on, and is forgotten with the first whole step without it. None before the first sample.
    """

    __slots__ = ("_expected", "_of", "_step", "_works")

    def __init__(self, percentile: float = _PERCENTILE) -> None:
        self._of = percentile
        self._works: dict[str, _Work] = {_REST: _Work(percentile)}
        self._step = -1
        self._expected: int | None = None

    def add(self, at_ms: int, value: int, parts: Sequence[WorkPart] = ()) -> None:
        """Take the newest measured value and, of that, what each workload uses. A limit of 0 counts as 1."""
        step = at_ms // STEP_MS
        if step < self._step - 1:
            self._works, self._step = {_REST: _Work(self._of)}, -1
        if step > self._step:
            self._close()
            self._step = step
        expected, rest, works = 0, value, self._works
        for part in parts:
            known = works.get(part.work)
            if known is None:
                if len(works) > WORKS_MOST:
                    continue
                known = works[part.work] = _Work(self._of)
            rest -= part.used
            limit = part.limit or 1
            share = -(-part.used * _MILLION // limit)
            if share > known.largest:
                known.largest = share
            reached = known.expected
            if reached is None:
                reached = known.largest if known.largest > known.most else known.most
                if part.is_requested and reached < _MILLION:
                    reached = _MILLION
            expected += -(-reached * limit // _MILLION)
        others = works[_REST]
        others.largest = max(others.largest, rest, 0)
        self._expected = expected + (max(others.most, others.largest) if others.expected is None else others.expected)

    def expected(self) -> int | None:
        """The value to expect."""
        return self._expected

    def state(self) -> RcLikeState:
        """The state of the estimator, for `restore`."""
        works = (
            WorkState(work=name, values=tuple(work.values), largest=work.largest) for name, work in self._works.items()
        )
        return RcLikeState(step=self._step, works=tuple(works), expected=self._expected)

    def restore(self, state: RcLikeState) -> None:
        """Replace the state by one that `state` returned."""
        self._works = {each.work: _Work(self._of, each.values, each.largest) for each in state.works}
        self._works.setdefault(_REST, _Work(self._of))
        self._step, self._expected = state.step, state.expected

    def _close(self) -> None:
        """End the step that is not over, and forget the workloads that were not seen in it."""
        works = self._works
        for name in [name for name, work in works.items() if work.largest < 0 and name != _REST]:
            del works[name]
        for work in works.values():
            if work.largest >= 0:
                work.close()
