"""The clock of one simulated node: it stands at the moment up to which the node has been simulated."""

from colo_common.ports import Clock

__all__ = ["SteppedClock"]


class SteppedClock:
    """Shows the step, not the time of the process: what happens in a step happens at its moment, however late it is worked out."""

    def __init__(self, process: Clock) -> None:
        self._process = process
        self._step_ms = process.now_ms()

    def step_to(self, at_ms: int) -> None:
        """Stand at `at_ms`; never goes back."""
        self._step_ms = max(self._step_ms, at_ms)

    def now_ms(self) -> int:
        """The moment of the step."""
        return self._step_ms

    def wall_us(self) -> int:
        """The wall clock: spans are real."""
        return self._process.wall_us()

    def real_s(self, span_ms: int) -> float:
        """Real seconds in which `span_ms` pass."""
        return self._process.real_s(span_ms)
