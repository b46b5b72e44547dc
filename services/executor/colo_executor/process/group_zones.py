"""In which NUMA zone a group of online work runs, where it is one alone, by the CPUs that the kernel lets it have."""

import contextlib
import os
from collections.abc import Callable, Collection, Mapping
from typing import Final

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_executor.cgroup import CgroupTree

__all__ = ["GroupZones"]

_V2_FILES: Final = ("cpuset.cpus.effective",)
_V1_FILES: Final = ("cpuset.effective_cpus", "cpuset.cpus")


class GroupZones:
    """Knows the zone of groups by their effective CPU sets. Never raises OSError; reads nothing on a machine of one zone.

    `tree` is that of batch work; `online` is the name of the top group of colo's own online work. `zones` returns the CPUs of each
    zone, none on a machine of one. Under cgroup v2 a group without a CPU set has that of the nearest group above it; under v1 one
    that the cpuset controller does not have is in no zone alone. Threads that keep to some CPUs by themselves are not seen.
    """

    def __init__(self, tree: CgroupTree, online: str, zones: Callable[[], Mapping[int, CpuSet]]) -> None:
        self._root = tree.hierarchy.mounts.get("cpuset", "")
        self._is_v2 = tree.version == 2
        self._online = online
        self._zones = zones

    def split(self, root: str, groups: set[str], most: int) -> set[str]:
        """The groups with colo's own online work as one group for each replica, where there are not more than `most` then.

        `root` is the hierarchy that lists them. Together they would be in all zones.
        """
        if len(self._zones()) < 2 or self._online not in groups:
            return groups
        replicas: set[str] = set()
        with contextlib.suppress(OSError), os.scandir(os.path.join(root, self._online)) as entries:
            replicas = {f"{self._online}/{entry.name}" for entry in entries if entry.is_dir(follow_symlinks=False)}
        found = groups - {self._online} | replicas
        return found if replicas and len(found) <= most else groups

    def of(self, groups: Collection[str]) -> tuple[tuple[str, int], ...]:
        """The groups that run in one zone alone, with that zone, in the order of their names."""
        zones = self._zones()
        if len(zones) < 2 or not self._root:
            return ()
        found = []
        for name in sorted(groups):
            cpus = self._cpus_of(name)
            zone = next((zone for zone, its in zones.items() if cpus and cpus <= its), None)
            if zone is not None:
                found.append((name, zone))
        return tuple(found)

    def _cpus_of(self, group: str) -> CpuSet:
        """The CPUs that the group may use; empty where nobody says so."""
        while True:
            for name in _V2_FILES if self._is_v2 else _V1_FILES:
                with (
                    contextlib.suppress(OSError, InvalidInput),
                    open(os.path.join(self._root, group, name), encoding="ascii") as file,
                ):
                    return CpuSet.parse(file.read().strip(), group)
            if not group or not self._is_v2:
                return CpuSet()
            group = group.rpartition("/")[0]
