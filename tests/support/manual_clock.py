"""A clock that a test advances by hand."""

from colo_common.model.invalid import InvalidInput


class ManualClock:
    """A clock that stands still between calls of `advance`."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def advance(self, span_ms: int) -> None:
        """Move forward. Raises InvalidInput for a negative span."""
        if span_ms < 0:
            raise InvalidInput("span_ms", "must not be negative", span_ms)
        self._now_ms += span_ms

    def now_ms(self) -> int:
        """The time it was set to."""
        return self._now_ms

    def wall_us(self) -> int:
        """`now_ms` in microseconds."""
        return self._now_ms * 1000

    def real_s(self, span_ms: int) -> float:
        """`span_ms` in seconds; at least 0."""
        return max(0.0, span_ms / 1000)
