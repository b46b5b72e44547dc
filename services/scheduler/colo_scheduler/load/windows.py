"""Usage of one node over time, and its aggregates: average and percentiles over windows that end at the newest sample."""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from colo_common.model.invalid import InvalidInput
from colo_scheduler.load.policy import AGGREGATE_KINDS
from colo_scheduler.load.usage import Aggregate, Amounts

__all__ = ["UsageHistory", "aggregate_of"]

_SAMPLES_MAX: Final = 10_000


class _Sample(NamedTuple):
    at_ms: int
    amounts: Amounts


def aggregate_of(values: Sequence[int], kind: str) -> int:
    """One aggregate of at least one value, as an integer.

    "avg": floor(sum / count). "p95": nearest rank, the ceil(0.95 count)-th smallest value, so always a value that was measured.
    """
    if not values:
        raise InvalidInput("values", "at least one is needed", values)
    if kind == "avg":
        return sum(values) // len(values)
    if kind not in AGGREGATE_KINDS:
        raise InvalidInput("kind", f"must be one of {' '.join(AGGREGATE_KINDS)}", kind)
    rank = -(-int(kind[1:]) * len(values) // 100)
    return sorted(values)[max(rank, 1) - 1]


class UsageHistory:
    """The newest samples of one node: one for each `step_ms`, the newest of its step, as far back as `keep_ms`."""

    def __init__(self, keep_ms: int = 300_000, step_ms: int = 10_000) -> None:
        if step_ms < 1:
            raise InvalidInput("step_ms", "must be at least 1", step_ms)
        if not step_ms <= keep_ms <= step_ms * _SAMPLES_MAX:
            raise InvalidInput("keep_ms", f"must be 1 to {_SAMPLES_MAX} steps", keep_ms)
        self.keep_ms = keep_ms
        self.step_ms = step_ms
        self._samples: deque[_Sample] = deque()

    def add(self, at_ms: int, amounts: Amounts) -> None:
        """Take a sample; one that is older than the newest is left out."""
        if self._samples and at_ms < self._samples[-1].at_ms:
            return
        if self._samples and at_ms // self.step_ms == self._samples[-1].at_ms // self.step_ms:
            self._samples.pop()
        self._samples.append(_Sample(at_ms, amounts))
        while self._samples[0].at_ms <= at_ms - self.keep_ms:
            self._samples.popleft()

    def aggregate(self, window_ms: int, kinds: Sequence[str] = AGGREGATE_KINDS) -> Aggregate | None:
        """All aggregates over the samples younger than the window at the newest sample; None before the first sample.

        A resource that a sample does not name is 0 in it.
        """
        if not self._samples:
            return None
        oldest_ms = self._samples[-1].at_ms - window_ms
        amounts = [sample.amounts for sample in self._samples if sample.at_ms > oldest_ms]
        if not amounts:
            return None
        resources = sorted({name for entry in amounts for name in entry})
        values = {name: [entry.get(name, 0) for entry in amounts] for name in resources}
        usage = {kind: {name: aggregate_of(values[name], kind) for name in resources} for kind in kinds}
        return Aggregate(window_ms=window_ms, usage=usage)
