"""The clock of one simulated node: it shows the moment up to which the node was simulated."""

from colo_common.ports import Clock

__all__ = ["SteppedClock"]


class SteppedClock:
    """Shows the time of the simulated step, not that of the process, so that effects of a step happen at its time."""

    def __init__(self, process: Clock) -> None:
        self._process = process
        self._step_ms = process.now_ms()

    def step_to(self, at_ms: int) -> None:
        """Set the time to `at_ms`, unless that is earlier."""
        self._step_ms = max(self._step_ms, at_ms)

    def now_ms(self) -> int:
        """The time of the step."""
        return self._step_ms

    def wall_us(self) -> int:
        """The wall clock, because latencies are real."""
        return self._process.wall_us()

    def real_s(self, span_ms: int) -> float:
        """Real seconds in which `span_ms` pass."""
        return self._process.real_s(span_ms)
