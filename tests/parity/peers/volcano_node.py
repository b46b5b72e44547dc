"""What Volcano's agent writes on a node, and when it evicts. All arithmetic is of integers and cuts.

(volcano-sh/volcano:pkg/agent/events/probes/nodemonitor, pkg/agent/events/handlers, pkg/agent/utils/pod)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

__all__ = [
    "BatchContainer",
    "OfflinePod",
    "Watermarks",
    "bursts_us",
    "memory_values",
    "pressure_ticks",
    "throttle_mcpu",
    "victim_of",
    "weights_of",
]

_TICKS_TO_EVICT: Final = 6
_WEIGHT_LEAST, _WEIGHT_MOST = 1, 10_000
_ALL_PCT: Final = 100


def throttle_mcpu(target_mcpu: int, last_mcpu: int, jitter_pct: int, recover_pct: int) -> int | None:
    """The quota that is sent at a tick, None for none. `last_mcpu` -1: nothing was sent yet.

    A rise is limited to a share of the last quota, so that one below ten never rises, and one of zero rises at once.
    """
    quota = max(target_mcpu, 0)
    if last_mcpu < 0:
        return quota
    if last_mcpu == 0:
        return quota or None
    quota = min(quota, last_mcpu + last_mcpu * recover_pct // 100)
    return quota if abs(quota - last_mcpu) >= last_mcpu * jitter_pct // 100 else None


class Watermarks(Struct, frozen=True, kw_only=True):
    """Percentages of a node by resource: above `high` for long it evicts, below all `low` it takes work again."""

    high: Mapping[str, int]
    low: Mapping[str, int]


def pressure_ticks(marks: Watermarks, samples: Sequence[Mapping[str, int]]) -> Iterator[tuple[list[str], bool]]:
    """For each sample the resources to evict for, and whether the node takes work again."""
    ticks = dict.fromkeys(marks.high, 0)
    for sample in samples:
        for name, high in marks.high.items():
            ticks[name] = ticks[name] + 1 if sample[name] >= high else 0
        evicts = [name for name, count in ticks.items() if count >= _TICKS_TO_EVICT]
        yield evicts, all(sample[name] <= low for name, low in marks.low.items())


class OfflinePod(Struct, frozen=True, kw_only=True):
    """A pod of the node with its request of the resource in question."""

    name: str
    level: int
    request: int
    is_critical: bool


def victim_of(pods: Sequence[OfflinePod]) -> str | None:
    """The offline pod with the largest request that is not critical."""
    found = [pod for pod in pods if pod.level < 0 and not pod.is_critical]
    return max(found, key=lambda pod: pod.request).name if found else None


class BatchContainer(Struct, frozen=True, kw_only=True):
    """What a container asks of the extended resources; None where it names none, 0 for a limit that is none."""

    name: str
    request_mcpu: int | None
    limit_mcpu: int | None
    limit_bytes: int | None


def weights_of(request_mcpu: int) -> int:
    """The weight of cgroup v2: a tenth of the request in milli-CPU."""
    return min(max(request_mcpu // 10, _WEIGHT_LEAST), _WEIGHT_MOST)


def bursts_us(wanted_us: int | None, quotas_us: Mapping[str, int]) -> dict[str, int]:
    """The burst of each container that has a quota: what was asked for, at most the quota; the quota where nothing was asked."""
    return {name: min(wanted_us or quota, quota) for name, quota in quotas_us.items() if quota > 0}


def memory_values(
    limit_bytes: int, request_bytes: int, high_pct: int, low_pct: int, min_pct: int
) -> dict[str, int | str]:
    """memory.high of the limit, memory.low and memory.min of the request."""
    has_high = limit_bytes > 0 and high_pct < _ALL_PCT
    return {
        "memory.high": limit_bytes * high_pct // 100 if has_high else "max",
        "memory.low": request_bytes * low_pct // 100,
        "memory.min": request_bytes * min_pct // 100,
    }
