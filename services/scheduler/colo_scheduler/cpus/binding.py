"""The words of a request for CPUs of its own: how they lie on cores, what they keep away from, and why there are none."""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from colo_common.model.reasons import Reason

__all__ = [
    "FAILED",
    "NOT_ENOUGH",
    "BindPolicy",
    "ExclusivePolicy",
    "NoCpus",
    "NumaStrategy",
]


class BindPolicy(StrEnum):
    """How CPUs are laid on physical cores (koordinator-sh/koordinator:apis/extension/resource.go)."""

    FULL_PCPUS = "FullPCPUs"
    """Whole cores, filled one after the other."""
    SPREAD_BY_PCPUS = "SpreadByPCPUs"
    """One thread of each core first."""


class ExclusivePolicy(StrEnum):
    """The cores or zones that a workload prefers not to share with workloads of the same policy. It is a preference, never a
    condition.
    """

    NONE = "None"
    PCPU_LEVEL = "PCPULevel"
    """No core shared with another holder of this policy."""
    NUMA_NODE_LEVEL = "NUMANodeLevel"
    """No zone shared with another holder of this policy."""


class NumaStrategy(StrEnum):
    """Which zone or socket comes first among those with room."""

    MOST_ALLOCATED = "MostAllocated"
    """The one with the fewest free CPUs, so that others stay whole."""
    LEAST_ALLOCATED = "LeastAllocated"
    """The one with the most free CPUs."""


class NoCpus(Struct, frozen=True, kw_only=True):
    """Why no CPUs were chosen. `detail` says it with the words of the system whose rule it is; `short_count` is how many CPUs were
    missing, 0 when their number was not the reason.
    """

    reason: Reason
    detail: str
    short_count: int = 0


NOT_ENOUGH: Final = "not enough cpus available to satisfy request"
FAILED: Final = "failed to allocate cpus"
