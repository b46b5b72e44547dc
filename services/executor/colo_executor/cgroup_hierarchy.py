"""Which control groups this machine has: cgroup v1 or v2, and where each controller is mounted."""

import os
from typing import Final

from msgspec import Struct

__all__ = ["CONTROLLERS", "CgroupError", "CgroupHierarchy", "check_file_system", "file_systems_of", "find_hierarchy"]

CONTROLLERS: Final[tuple[str, ...]] = ("cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "freezer", "devices")
_MAY_BE_READ_ONLY: Final = ("freezer", "devices")
"""Controllers that are done without where they are mounted for reading only."""
_NEEDED: Final = {1: ("cpu", "cpuacct", "memory"), 2: ("cpu", "memory")}


class CgroupError(Exception):
    """The kernel refused a control group operation. The text is one sentence with file, value and error name."""


class CgroupHierarchy(Struct, frozen=True, kw_only=True):
    """The mount of each controller. `version` 1: one directory a controller; 2: the same directory for all controllers.

    `others` are the further hierarchies of cgroup v1, those without a controller among them, in which nothing is limited.
    """

    version: int
    mounts: dict[str, str]
    others: tuple[str, ...] = ()


def find_hierarchy(root: str) -> CgroupHierarchy:
    """The cgroup hierarchy below `root`. Raises CgroupError when it lacks a needed controller."""
    unified = os.path.join(root, "cgroup.controllers")
    if os.path.exists(unified):
        with open(unified, encoding="ascii") as file:
            names = set(file.read().split())
        mounts = {name: os.path.realpath(root) for name in CONTROLLERS if name in names}
        if "cpu" in mounts:
            # No controllers of their own: what they are asked for is in every group.
            mounts["cpuacct"] = mounts["freezer"] = mounts["devices"] = mounts["cpu"]
        hierarchy = CgroupHierarchy(version=2, mounts=mounts)
    else:
        found = ((name, os.path.join(root, name)) for name in CONTROLLERS)
        mounts = {
            name: os.path.realpath(path)
            for name, path in found
            if os.path.exists(os.path.join(path, "cgroup.procs"))
            and (name not in _MAY_BE_READ_ONLY or os.access(path, os.W_OK))
        }
        hierarchy = CgroupHierarchy(version=1, mounts=mounts, others=_others(root))
    lacking = [name for name in _NEEDED[hierarchy.version] if name not in hierarchy.mounts]
    if lacking:
        raise CgroupError(f"cgroup v{hierarchy.version} below {root} lacks the controllers {', '.join(lacking)}")
    return hierarchy


def _others(root: str) -> tuple[str, ...]:
    """The hierarchies that this process may write and none of whose controllers is one of ours: blkio, systemd's, unified ..."""
    known = {os.path.realpath(os.path.join(root, name)) for name in CONTROLLERS}
    found = {os.path.realpath(entry.path) for entry in os.scandir(root) if entry.is_dir()}
    return tuple(
        path
        for path in sorted(found - known)
        if os.path.exists(os.path.join(path, "cgroup.procs")) and os.access(path, os.W_OK)
    )


def check_file_system(directory: str, proc_root: str) -> None:
    """Raise CgroupError unless the directory is of a control group file system, by the table of mounts of this process."""
    kinds = file_systems_of(directory, proc_root)
    if not kinds <= {"cgroup", "cgroup2"} or not kinds:
        kind = " ".join(sorted(kinds)) or "of an unknown kind"
        raise CgroupError(f"{directory} is {kind} and no control group file system")


def file_systems_of(directory: str, proc_root: str) -> frozenset[str]:
    """The kinds of file system that have the directory, by the table of mounts of this process. Raises OSError where it is not."""
    found = os.stat(directory).st_dev
    device = f"{os.major(found)}:{os.minor(found)}"
    with open(os.path.join(proc_root, "self/mountinfo"), encoding="utf-8", errors="replace") as file:
        # "36 35 98:0 /root /mount options - type source options"
        return frozenset(line.partition(" - ")[2].split(" ", 1)[0] for line in file if line.split(" ", 3)[2] == device)
