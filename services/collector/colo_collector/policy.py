"""The marks at which stall is published at once, when the topology is published again, and the SLO of latencies."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from colo_common.model.invalid import InvalidInput
from colo_common.model.slo import check_latency_slo

__all__ = ["CollectorPolicy", "Signal", "Threshold"]

Signal = Literal["cpu_some", "cpu_full", "memory_some", "memory_full", "io_some", "io_full"]

_WINDOW_MS_MIN: Final = 1_000
_WINDOW_MS_MAX: Final = 300_000
_TRIGGER_WINDOW_MS_MAX: Final = 10_000
_TOPOLOGY_AGAIN_MS_MIN: Final = 60_000


class Threshold(Struct, frozen=True, kw_only=True):
    """Crossed upwards when the stall share reaches `above_pct`, downwards when it falls to `below_pct` or less."""

    signal: Signal
    above_pct: int
    below_pct: int


class CollectorPolicy(Struct, frozen=True, kw_only=True):
    """The watched signals, each at most once, over one window.

    The topology is published again every `topology_again_ms`: the bus keeps it, and a service that forgot a node that was away for
    long learns it again. The mark of `cpu_some` is high, because waiting for a CPU is normal on a full machine; that of
    `memory_full` is low, because a full memory stall never is. `online_latency_slo_ms` is the SLO of latencies that declare none,
    where the colocation policy gives none for the node.
    """

    window_ms: int = 10_000
    topology_again_ms: int = 3_600_000
    online_latency_slo_ms: int = 100
    thresholds: tuple[Threshold, ...] = (
        Threshold(signal="cpu_some", above_pct=60, below_pct=40),
        Threshold(signal="memory_full", above_pct=10, below_pct=5),
        Threshold(signal="io_full", above_pct=40, below_pct=20),
    )

    def triggers(self) -> dict[str, tuple[str, str]]:
        """The kernel's trigger of each signal: "pressure cpu_some" -> file and what is written to it.

        The kernel's longest window is ten seconds; a longer one is left to the samples.
        """
        if self.window_ms > _TRIGGER_WINDOW_MS_MAX:
            return {}
        found = {}
        for one in self.thresholds:
            resource, _, line = one.signal.partition("_")
            stall_us = max(self.window_ms * 1_000 * one.above_pct // 100, 1)
            found[f"pressure {one.signal}"] = (
                f"/proc/pressure/{resource}",
                f"{line} {stall_us} {self.window_ms * 1_000}",
            )
        return found

    def validate(self) -> None:
        """Raise InvalidInput for the first value that is out of its range or contradicts another."""
        if not _WINDOW_MS_MIN <= self.window_ms <= _WINDOW_MS_MAX:
            raise InvalidInput("window_ms", f"must be {_WINDOW_MS_MIN} to {_WINDOW_MS_MAX}", self.window_ms)
        if self.topology_again_ms < _TOPOLOGY_AGAIN_MS_MIN:
            rule = f"must be at least {_TOPOLOGY_AGAIN_MS_MIN}"
            raise InvalidInput("topology_again_ms", rule, self.topology_again_ms)
        check_latency_slo(self.online_latency_slo_ms, "online_latency_slo_ms")
        seen: set[str] = set()
        for one in self.thresholds:
            if one.signal in seen:
                raise InvalidInput(f"thresholds.{one.signal}", "a signal may be watched once", one.signal)
            seen.add(one.signal)
            if not 1 <= one.above_pct <= 100:
                raise InvalidInput(f"thresholds.{one.signal}.above_pct", "must be 1 to 100", one.above_pct)
            if not 0 <= one.below_pct < one.above_pct:
                raise InvalidInput(
                    f"thresholds.{one.signal}.below_pct", "must be at least 0 and below above_pct", one.below_pct
                )
