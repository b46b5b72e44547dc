"""How long replicas waited for their place, and what that says of one that waits now."""

from bisect import bisect_left, insort
from collections import deque
from typing import Final

from msgspec import Struct

from colo_common.model.duration import span_text
from colo_common.model.qos import QosClass

__all__ = ["Estimate", "Waits"]

_KEPT: Final = 64
_LEAST: Final = 5
_KINDS_MAX: Final = 1_000


class Estimate(Struct, frozen=True, kw_only=True):
    """How much longer a replica may wait. `rest_ms` None: there is no estimate, for the reason of `why_none`.

    `placed` replicas are behind it. `error_ms` is the median error of past estimates, None before the first; rounded down.
    """

    placed: int
    rest_ms: int | None = None
    why_none: str = ""
    error_ms: int | None = None


class _Recent:
    """The newest values in the order in which they came, and sorted."""

    __slots__ = ("_order", "ranked")

    def __init__(self) -> None:
        self._order: deque[int] = deque()
        self.ranked: list[int] = []

    def add(self, value: int) -> None:
        self._order.append(value)
        insort(self.ranked, value)
        if len(self._order) > _KEPT:
            del self.ranked[bisect_left(self.ranked, self._order.popleft())]


class Waits:
    """The waits of the newest 64 placements of each queue and QoS class. It is not stored: after a restart there are none.

    An estimate is the median of those waits that were longer than what the replica has waited already. Its error is measured: at
    each placement the median of the waits before it is compared with the real wait.
    """

    def __init__(self) -> None:
        self._waits: dict[tuple[str, QosClass], _Recent] = {}
        self._errors: dict[tuple[str, QosClass], _Recent] = {}

    def placed(self, queue: str, qos: QosClass, waited_ms: int) -> None:
        """Note that a replica got its place after that wait. At most 1,000 kinds are kept; further ones are not noted."""
        key = (queue, qos)
        waits = self._waits.get(key)
        if waits is None:
            if len(self._waits) >= _KINDS_MAX:
                return
            waits = self._waits[key] = _Recent()
            self._errors[key] = _Recent()
        if len(waits.ranked) >= _LEAST:
            self._errors[key].add(abs(_median(waits.ranked) - waited_ms))
        waits.add(waited_ms)

    def estimate(self, queue: str, qos: QosClass, waited_ms: int) -> Estimate:
        """The estimate for a replica of this kind that has waited so long."""
        waits, errors = self._waits.get((queue, qos)), self._errors.get((queue, qos))
        ranked = [] if waits is None else waits.ranked
        error_ms = _median(errors.ranked) if errors is not None and errors.ranked else None
        if len(ranked) < _LEAST:
            kind = f"class {qos.value} of queue {queue}"
            why = f"only {len(ranked)} of {kind} were placed lately, {_LEAST} are needed"
            return Estimate(placed=len(ranked), why_none=why, error_ms=error_ms)
        longer = [each for each in ranked if each > waited_ms]
        if not longer:
            longest = span_text(ranked[-1])
            why = f"it waits longer than each of the last {len(ranked)} that were placed (the longest waited {longest})"
            return Estimate(placed=len(ranked), why_none=why, error_ms=error_ms)
        return Estimate(placed=len(ranked), rest_ms=_median(longer) - waited_ms, error_ms=error_ms)


def _median(ranked: list[int]) -> int:
    """The middle value; the upper one of two."""
    return ranked[len(ranked) // 2]
