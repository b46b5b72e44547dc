"""Which NUMA zone each domain of resctrl's L3 monitoring belongs to."""

import contextlib
import os
from collections.abc import Mapping
from typing import Final

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput

__all__ = ["zone_of_l3"]

_INDEXES_MOST: Final = 8


def zone_of_l3(sys_root: str, zones: Mapping[int, CpuSet]) -> dict[int, int]:
    """The zone of each last-level cache by the kernel's id of it, which may have gaps; on a machine of several zones.

    A cache that CPUs of several zones share is left out, and so is one without an id.
    """
    found: dict[int, int] = {}
    shared: set[int] = set()
    for zone, cpus in zones.items():
        left = cpus
        while left:
            cpu = next(iter(left))
            left = left - CpuSet.from_iterable([cpu])
            with contextlib.suppress(OSError, ValueError, InvalidInput):
                cache, users = _l3_of(sys_root, cpu)
                left = left - users
                if found.setdefault(cache, zone) != zone:
                    shared.add(cache)
    return {cache: zone for cache, zone in found.items() if cache not in shared}


def _l3_of(sys_root: str, cpu: int) -> tuple[int, CpuSet]:
    """The id of the CPU's last-level cache and the CPUs that share it. Raises OSError or ValueError where there is none."""
    for index in range(_INDEXES_MOST):
        directory = os.path.join(sys_root, f"devices/system/cpu/cpu{cpu}/cache/index{index}")
        if _text(directory, "level") == "3":
            return int(_text(directory, "id")), CpuSet.parse(_text(directory, "shared_cpu_list"), "shared_cpu_list")
    raise ValueError("no cache of level 3")


def _text(directory: str, name: str) -> str:
    with open(os.path.join(directory, name), encoding="ascii") as file:
        return file.read().strip()
