"""The violation rate of online work: the share of the values of its own latency that broke their SLO.

One figure for everybody: the reflex of the executor, the evictor, `colo status`, the verdict of a lab and the metric
`openfuyao_qos_violation_rate` all take it from the sample, by this function. A workload that has no metric of its own, or has been
silent for long, is in no figure: what nobody knows is neither kept nor broken.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from msgspec import Struct

from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import ONLINE_CLASSES, QosClass

__all__ = [
    "LATENCY_SLO_MS_MOST",
    "VIOLATION_HARD_PCT",
    "VIOLATION_SOFT_PCT",
    "OnlineViolation",
    "check_latency_slo",
    "worst_online_violation",
]

LATENCY_SLO_MS_MOST: Final = 3_600_000

VIOLATION_SOFT_PCT: Final = 10
VIOLATION_HARD_PCT: Final = 20
"""Marks of the violation rate: from the soft one on batch work grows no further, at the hard one it has to give way."""
_SAMPLES_LEAST: Final = 5
"""With fewer values in the window one slow request would decide."""


def check_latency_slo(slo_ms: int, field: str) -> None:
    """Raise InvalidInput for an SLO of a latency that is not 1 ms to an hour."""
    if not 1 <= slo_ms <= LATENCY_SLO_MS_MOST:
        raise InvalidInput(field, f"must be 1 to {LATENCY_SLO_MS_MOST}", slo_ms)


class OnlineViolation(Struct, frozen=True, kw_only=True):
    """How often one online workload broke its SLO in the window: `above` of `samples` values.

    `breaks_slo`: its newest value does. `age_ms` is the age of that value.
    """

    workload: str
    window_ms: int
    samples: int
    above: int
    breaks_slo: bool = False
    age_ms: int = 0

    @property
    def violation_pct(self) -> int:
        """The violation rate in whole percent, rounded down: a threshold is reached by a whole percent."""
        return self.above * 100 // self.samples

    @property
    def violation_ratio(self) -> float:
        """The violation rate, 0 to 1."""
        return self.above / self.samples


class _Window(Protocol):
    @property
    def window_ms(self) -> int: ...
    @property
    def samples(self) -> int: ...
    @property
    def above(self) -> int: ...


class _Metric(Protocol):
    @property
    def age_ms(self) -> int: ...
    @property
    def breaks_slo(self) -> bool: ...
    @property
    def violations(self) -> Sequence[_Window]: ...


class _Measured(Protocol):
    @property
    def workload(self) -> str: ...
    @property
    def qos(self) -> QosClass: ...
    @property
    def business(self) -> _Metric | None: ...


def worst_online_violation(workloads: Iterable[_Measured]) -> OnlineViolation | None:
    """The online workload that broke its SLO most often in the shortest window (five minutes); None where nobody's rate is known.

    A rate is known from five values on. Of two that broke it as often the one whose newest value does comes first, then the first
    name.
    """
    worst: OnlineViolation | None = None
    for one in workloads:
        metric = one.business
        if metric is None or not metric.violations or one.qos not in ONLINE_CLASSES:
            continue
        window = metric.violations[0]
        if window.samples < _SAMPLES_LEAST:
            continue
        found = OnlineViolation(
            workload=one.workload,
            window_ms=window.window_ms,
            samples=window.samples,
            above=window.above,
            breaks_slo=metric.breaks_slo,
            age_ms=metric.age_ms,
        )
        if worst is None or _order(found) < _order(worst):
            worst = found
    return worst


def _order(one: OnlineViolation) -> tuple[float, bool, str]:
    return (-one.violation_ratio, not one.breaks_slo, one.workload)
