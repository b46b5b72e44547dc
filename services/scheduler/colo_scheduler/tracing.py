"""Times the stages of decisions on the wall clock and emits them as spans of each placement's own trace."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from colo_common.events.job import PlacementRequest
from colo_common.events.trace import trace_is_sampled
from colo_common.model.placement import Attempt
from colo_common.ports import SpanSink

__all__ = ["StageTimes"]

_TIMED_MAX: Final = 10_000


class _Timed(NamedTuple):
    placement_request: PlacementRequest
    filter_us: int
    score_us: int
    done_us: int


class StageTimes:
    """The stage observer of a core. Equal placement requests are decided at once and share the times.

    `wall_us_at` gives the wall clock at a time of the service's clock.
    """

    def __init__(self, wall_us: Callable[[], int], wall_us_at: Callable[[int], int], span: SpanSink) -> None:
        self._wall_us = wall_us
        self._wall_us_at = wall_us_at
        self._span = span
        self._marks: dict[str, int] = {}
        self._timed: dict[Attempt, _Timed] = {}

    def mark(self, stage: str) -> None:
        """Note that this stage begins now."""
        self._marks[stage] = self._wall_us()

    def decided(self, placement_requests: Sequence[PlacementRequest]) -> None:
        """Give these requests the times of the last marks. Only sampled requests are timed, at most 10,000 at once."""
        times = (self._marks["filter"], self._marks["score"], self._marks["done"])
        for placement_request in placement_requests:
            if trace_is_sampled(placement_request.traceparent) and len(self._timed) < _TIMED_MAX:
                self._timed[(placement_request.replica, placement_request.attempt)] = _Timed(placement_request, *times)

    @property
    def is_timing(self) -> bool:
        """Whether a timed decision waits for its commit."""
        return bool(self._timed)

    def committed(self, attempt: Attempt, node: str, start_us: int, end_us: int, *, error: str = "") -> None:
        """The ledger answered: emit the spans queue.wait, decide with filter and score, and commit."""
        timed = self._timed.pop(attempt, None)
        if timed is None:
            return
        parent = timed.placement_request.traceparent
        names = {"replica": timed.placement_request.replica, "attempt": str(timed.placement_request.attempt)}
        queued_at_ms = timed.placement_request.queued_at_ms
        queued_us = self._wall_us_at(queued_at_ms) if queued_at_ms else 0
        if 0 < queued_us <= timed.filter_us:
            self._say("queue.wait", parent, queued_us, timed.filter_us, names)
        decide = self._say("decide", parent, timed.filter_us, timed.done_us, names | {"node": node})
        self._say("filter", decide, timed.filter_us, timed.score_us, {})
        self._say("score", decide, timed.score_us, timed.done_us, {})
        self._say("commit", parent, start_us, end_us, names | {"node": node}, error)

    def _say(
        self, name: str, parent: str, start_us: int, end_us: int, attributes: dict[str, str], error: str = ""
    ) -> str:
        return self._span(name, parent=parent, start_us=start_us, end_us=end_us, attributes=attributes, error=error)
