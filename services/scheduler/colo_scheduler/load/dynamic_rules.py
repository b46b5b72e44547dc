"""The operator's rules of placement by averages and maxima of load: limits, weights, and when a node is hot.

The names are those of crane-scheduler's policy. What nodes report is the average of five minutes, and for an hour and a day the
highest average over five minutes, as a share of the machine.
"""

from typing import Final

from msgspec import Struct, field

from colo_common.events.node import LoadSummary
from colo_common.model.invalid import InvalidInput
from colo_common.model.resource_list import CPU, MEMORY

__all__ = ["METRICS", "DynamicRules", "MetricSource"]

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
_WEIGHT_MOST: Final = 1_000


class MetricSource(Struct, frozen=True):
    """Where a metric stands in a report: the resource, the window, and whether it is the peak within it or the average."""

    resource: str
    window_ms: int
    is_peak: bool

    @property
    def unit(self) -> str:
        """The unit of a share of the machine above its limit."""
        window = {5 * _MINUTE_MS: "5m", _HOUR_MS: "1h"}.get(self.window_ms, "1d")
        return f"{self.resource}-load-{window}-pct"

    def amount(self, load: LoadSummary) -> int | None:
        """The report's amount in the resource's unit; None when it lacks the window."""
        if self.is_peak:
            amounts = [(each.cpu_mcpu, each.memory_bytes) for each in load.peaks if each.window_ms == self.window_ms]
        else:
            windows = [each for each in load.windows if each.window_ms == self.window_ms]
            amounts = [(each.cpu_avg_mcpu, each.memory_avg_bytes) for each in windows]
        return amounts[0][self.resource == MEMORY] if amounts else None


METRICS: Final = {
    f"{name}_usage_{metric}": MetricSource(resource, window_ms, is_peak)
    for resource, name in ((CPU, "cpu"), (MEMORY, "mem"))
    for metric, window_ms, is_peak in (
        ("avg_5m", 5 * _MINUTE_MS, False),
        ("max_avg_1h", _HOUR_MS, True),
        ("max_avg_1d", 24 * _HOUR_MS, True),
    )
}
"""Every metric that can be named, in the order in which limits are looked at."""


def _weights() -> dict[str, int]:
    return {name: {"5m": 20, "1h": 30, "1d": 50}[name.rpartition("_")[2]] for name in METRICS}


class DynamicRules(Struct, frozen=True, kw_only=True):
    """`limits_pct`: a node with a metric above that percentage of the machine takes no work at all; crane-scheduler ships 65
    for `..._avg_5m` and 75 for `..._max_avg_1h`. `weights` of the metrics in the score, as it ships them.

    `hot_1m`, `hot_5m`: the number of arrivals within that time that makes a node hotter by one, which takes ten points of its
    score; 0: never. A metric refuses no node and adds nothing when its report is older than 8 minutes (avg_5m), 20 minutes
        (max_avg_1h) or 3 hours and 5 minutes (max_avg_1d).
    """

    limits_pct: dict[str, int] = {}
    weights: dict[str, int] = field(default_factory=_weights)
    hot_1m: int = 2
    hot_5m: int = 5

    def validate(self, field: str) -> None:
        """Raise InvalidInput for the first value that breaks a rule."""
        for section, most in (("limits_pct", 100), ("weights", _WEIGHT_MOST)):
            for name, value in sorted(getattr(self, section).items()):
                if name not in METRICS:
                    rule = f"is nothing that nodes report; known are {' '.join(METRICS)}"
                    raise InvalidInput(f"{field}_{section}.{name}", rule, name)
                if not 0 <= value <= most:
                    raise InvalidInput(f"{field}_{section}.{name}", f"must be 0 to {most}", value)
        for name in ("hot_1m", "hot_5m"):
            if not 0 <= getattr(self, name) <= 1_000_000:
                raise InvalidInput(f"{field}_{name}", "must be 0 to 1000000", getattr(self, name))
