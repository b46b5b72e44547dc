"""CPUs that a reservation holds and no owner uses yet."""

from collections.abc import Iterable

from colo_common.model.cpuset import CpuSet

__all__ = ["cpus_left"]


def cpus_left(reserved: CpuSet, owners: Iterable[CpuSet]) -> CpuSet:
    """The CPUs of the reservation that no owner uses."""
    left = reserved
    for cpus in owners:
        left = left - cpus
    return left
