"""What Koordinator's agent does around the formula and the choice that colo shares with it: whose use counts, and its steps.

Source: koordinator-sh/koordinator:pkg/koordlet/qosmanager/plugins/cpusuppress and qosmanager/helpers/calculator.go. In place of
the steps here colo's reflex has bands, holds and a reversal budget of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

__all__ = ["UNSET", "HostApplication", "MeteredPod", "Use", "grown", "quota_us", "use_of"]

UNSET: Final = -1
_PERIOD_US: Final = 100_000
_LEAST_QUOTA_US: Final = 2_000
_STEP: Final = 0.1
_BYPASS: Final = 0.01


class MeteredPod(Struct, frozen=True, kw_only=True):
    """A pod that the node knows. `counts`: its use is among what the caller adds up."""

    uid: str
    counts: bool


class HostApplication(Struct, frozen=True, kw_only=True):
    """A process of the host. `used_cores` None: there is no sample of it."""

    counts: bool
    used_cores: float | None


class Use(Struct, frozen=True, kw_only=True):
    """The use of a node in cores: the counted pods, the counted host applications, and what is neither pod nor application."""

    pods_cores: float
    applications_cores: float
    system_cores: float


def use_of(
    node_cores: float,
    reserved_cores: float,
    pods: Iterable[MeteredPod],
    used_cores: Mapping[str, float],
    applications: Iterable[HostApplication],
) -> Use:
    """Split the node's use. The use of a pod that the node does not know counts; the system has at least what is reserved."""
    counts = {pod.uid: pod.counts for pod in pods}
    sampled = [(app.counts, app.used_cores) for app in applications if app.used_cores is not None]
    rest = node_cores - sum(used_cores.values()) - sum(used for _, used in sampled)
    return Use(
        pods_cores=sum(used for uid, used in used_cores.items() if counts.get(uid, True)),
        applications_cores=sum(used for is_counted, used in sampled if is_counted),
        system_cores=max(rest, reserved_cores, 0.0),
    )


def quota_us(target_mcpu: int, capacity_cores: int, current_us: int) -> int:
    """The quota in force afterwards: small changes are left out, a growth is at most a tenth of the node, and 2 ms is the least."""
    quota = max(target_mcpu * _PERIOD_US // 1_000, _LEAST_QUOTA_US)
    whole_us = capacity_cores * _PERIOD_US
    if abs(quota - current_us) < _BYPASS * whole_us and quota != _LEAST_QUOTA_US:
        return current_us
    if current_us != UNSET and quota - current_us > _STEP * whole_us:
        return current_us + int(_STEP * whole_us)
    return quota


def grown(count: int, held: int, cpus: int) -> int:
    """The number of CPUs after a change from `held` towards `count`: a growth is at most a tenth of the machine, rounded up."""
    return min(count, held - (-cpus // 10))
