"""How Katalyst finds out how much CPU and memory it may offer: regions, memory by NUMA node, the guard, OOM order.

(kubewharf/katalyst-core:pkg/agent/sysadvisor/plugin/qosaware, pkg/metaserver/agent/metric/helper, pkg/util)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

_OOM_LEVELS: Final = {
    "reclaimed_cores": (-100, -1, -100),
    "shared_cores": (0, 99, 0),
    "dedicated_cores": (100, 199, 100),
    "system_cores": (200, 299, 200),
}
_OOM_NEVER: Final = 300
_OOM_UNKNOWN: Final = -100
_CPU_BUFFER: Final = 1.25
_CPU_UNKNOWN: Final = 4.0
_MEMORY_BUFFER: Final = 1.1
_MEMORY_UNKNOWN: Final = 8 << 30


class Utilisation(NamedTuple):
    """The options of the headroom by utilisation; 0 for `rate`, `capacity_rate` or `most` turns that bound off."""

    target: float
    most: float
    rate: float
    capacity_rate: float


def supply_of(reclaim_cpus: float, pool_used: float, used: float, quota: float, period: float) -> float:
    """The CPUs that best-effort work can have: what its CPUs leave idle and what it uses, within its quota."""
    supply = max(reclaim_cpus - pool_used, 0.0) + used
    return min(supply, quota / period) if quota > 0 else supply


def headroom_by_use(supply: float, used: float, last: float, cpus: float, options: Utilisation) -> float:
    """What is reported when it follows the use: more while work uses less than the target, less above the bound."""
    if supply <= 0:
        return 0.0
    share, over = used / supply, 0.0
    if options.target > share:
        over = supply * (options.target - share)
    elif options.most > 0 and share > options.most:
        over = supply * (options.most - share)
    found = max(last + over, supply)
    if options.rate > 0:
        found = min(found, supply * options.rate)
    if options.capacity_rate > 0:
        found = min(found, options.capacity_rate * cpus)
    return max(found, 0.0)


def cpu_estimate(is_reclaimed: bool, used: float, load_1m: float, load_5m: float, requested: float) -> float:
    """What a container needs: its use with a buffer, or its load; its request where nothing may be reclaimed; else 4 CPUs."""
    found = max(used * _CPU_BUFFER, load_1m, load_5m) if is_reclaimed else requested
    return found if found > 0 else _CPU_UNKNOWN


def memory_estimate(level: str, is_reclaimed: bool, rss: float, cache: float, shmem: float, requested: float) -> float:
    """What a container needs in bytes; work that only gets what is reclaimed needs nothing."""
    if level == "reclaimed_cores":
        return 0.0
    if not is_reclaimed and level != "system_cores":
        found = requested
    else:
        found = rss if level == "system_cores" else (rss + cache + shmem) * _MEMORY_BUFFER
    return found if found > 0 else float(_MEMORY_UNKNOWN)


def guard_limit(nodes: Sequence[tuple[float, float]], critical: float) -> int:
    """The limit of best-effort memory: what it uses in each NUMA node and what is free there above a watermark (used, free)."""
    return int(sum(used + max(free - critical, 0.0) for used, free in nodes))


def evicted(pods: Sequence[Mapping[str, float | str]], supply: float, most: float, least_s: float) -> list[str]:
    """Who leaves because best-effort work asks for far more than there is, in this order: larger, less important, later name."""
    left = {str(pod["name"]): float(pod["request"]) for pod in pods}
    victims: list[str] = []
    by_name = sorted(pods, key=lambda pod: str(pod["name"]), reverse=True)
    for pod in sorted(by_name, key=lambda pod: (-float(pod["request"]), float(pod["priority"]))):
        tolerance = pod.get("tolerance")
        bound = most if tolerance is None else min(float(tolerance), most)
        rate = math.ceil(sum(left.values())) / supply if supply > 0 else math.inf
        if left and rate > bound and float(pod["over_for_s"]) > least_s:
            victims.append(str(pod["name"]))
            del left[str(pod["name"])]
    return victims


def oom_priority(level: str, wished: int | None) -> int:
    """The order in which the kernel kills: the wish within the range of its level, 300 never."""
    if wished == _OOM_NEVER:
        return _OOM_NEVER
    if level not in _OOM_LEVELS:
        return _OOM_UNKNOWN
    least, most, default = _OOM_LEVELS[level]
    return default if wished is None else min(max(wished, least), most)
