"""How rubik answers pressure, as a peer to compare with (openeuler-mirror/rubik:pkg/services/psi).

When any online pod's some avg10 is strictly above the threshold, the largest user of that resource among the offline
pods goes. There is no duration and no cool-down.

For comparing with what others decide: no service answers pressure so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

RESOURCES: Final = ("cpu", "memory", "io")
_TIE: Final = 1e-9
_PROTECTED_NAMESPACE: Final = "kube-system"


@dataclass(frozen=True, slots=True, kw_only=True)
class RubikPod:
    """A pod as rubik sees it: usage in cores and bytes, start time in any unit that grows."""

    name: str
    is_online: bool
    some_avg10_pct: Mapping[str, float] = field(default_factory=dict)
    cpu_cores: float = 0.0
    memory_bytes: float = 0.0
    start: float = 0.0
    namespace: str = "default"


@dataclass(frozen=True, slots=True)
class RubikVerdict:
    """Which resource was over the threshold, None for none, and which offline pod is evicted for it, if there is one."""

    resource: str | None
    evicted: str | None


def is_valid_config(interval_s: float, threshold_pct: float, resources: Sequence[str]) -> bool:
    """Say whether rubik accepts the settings: interval 10..30 s, threshold 5..100, at least one known resource."""
    if not 10 <= interval_s <= 30 or not 5 <= threshold_pct <= 100:
        return False
    return bool(resources) and all(resource in RESOURCES for resource in resources)


def rubik_verdict(threshold_pct: float, resources: Sequence[str], pods: Sequence[RubikPod]) -> RubikVerdict:
    """Return what rubik does in one round; resources are tried in the configured order."""
    online = [pod for pod in pods if pod.is_online]
    for resource in resources:
        if any(pod.some_avg10_pct.get(resource, 0.0) > threshold_pct for pod in online):
            return RubikVerdict(resource, _victim(resource, pods))
    return RubikVerdict(None, None)


def _victim(resource: str, pods: Sequence[RubikPod]) -> str | None:
    chosen: RubikPod | None = None
    for pod in pods:
        if pod.is_online or pod.namespace == _PROTECTED_NAMESPACE:
            continue
        if chosen is None or _goes_before(resource, pod, chosen):
            chosen = pod
    return None if chosen is None else chosen.name


def _goes_before(resource: str, pod: RubikPod, other: RubikPod) -> bool:
    mine, theirs = (p.memory_bytes if resource == "memory" else p.cpu_cores for p in (pod, other))
    if abs(mine - theirs) < _TIE:
        return pod.start > other.start
    return mine > theirs
