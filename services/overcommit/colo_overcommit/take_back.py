"""The measured take-back time: how long it takes until batch work that has to leave has left."""

from collections import OrderedDict, deque
from typing import Final

from colo_common.events.eviction import EvictionFinished, EvictionRequested
from colo_common.model.percentile import percentile

__all__ = ["TakeBack"]

#: Before so many evictions were measured the take-back time is this one: a hold, a grace period and a restart of the agent.
_MEASURED_LEAST: Final = 20
_UNMEASURED_MS: Final = 90_000
_LEAST_MS: Final = 10_000
_MOST_MS: Final = 3_600_000
_KEPT: Final = 200


class TakeBack:
    """The 95th percentile of the last 200 evictions, from the crossing of the threshold (`held_ms` before the request) to the end.

    At least 10 s and at most an hour; 90 s before 20 evictions were measured. Evictions that a person or another service asked for
    say nothing about pressure, but the time from request to end is theirs as well.
    """

    def __init__(self) -> None:
        self._held_ms: OrderedDict[str, int] = OrderedDict()
        self._took_ms: deque[int] = deque(maxlen=_KEPT)
        self.ms = _UNMEASURED_MS

    def hear(self, event: EvictionRequested | EvictionFinished) -> None:
        """Take one eviction's request or end; an end whose request was not heard counts from the request alone."""
        if isinstance(event, EvictionRequested):
            self._held_ms[event.eviction] = event.held_ms
            if len(self._held_ms) > _KEPT:
                self._held_ms.popitem(last=False)
            return
        self._took_ms.append(self._held_ms.pop(event.eviction, 0) + event.took_ms)
        if len(self._took_ms) >= _MEASURED_LEAST:
            self.ms = min(max(percentile(self._took_ms, 95), _LEAST_MS), _MOST_MS)
