"""The cgroup hierarchies that a machine has mounted, v1, v2 or both, and the mount of each controller."""

from __future__ import annotations

import re
from typing import Final, Literal

from msgspec import Struct

from colo_collector.kernel_text import numbered_lines, unsigned, where
from colo_common.model.invalid import InvalidInput

__all__ = ["ControllerMount", "Hierarchy", "parse_controllers", "parse_hierarchy", "parse_self_cgroup", "unified_point"]

CgroupVersion = Literal["none", "v1", "v2", "hybrid"]

V1_CONTROLLERS: Final = frozenset(
    {
        "blkio",
        "cpu",
        "cpuacct",
        "cpuset",
        "devices",
        "freezer",
        "hugetlb",
        "memory",
        "misc",
        "net_cls",
        "net_prio",
        "perf_event",
        "pids",
        "rdma",
    }
)
"""The options of a v1 mount that name controllers; every other option is a flag of the mount."""

_OCTAL: Final = re.compile(r"\\([0-7]{3})", re.ASCII)
_NAME: Final = re.compile(r"[a-z0-9_]{1,32}", re.ASCII)


class ControllerMount(Struct, frozen=True, kw_only=True):
    """The mount of one controller. `self_path` is this process's group below the mount point ("/" is the root group)."""

    controller: str
    version: Literal["v1", "v2"]
    mount_point: str
    self_path: str = "/"


class Hierarchy(Struct, frozen=True, kw_only=True):
    """All cgroup mounts. `unified` is the mount point of v2, "" without one; it is set even when every controller is on v1."""

    version: CgroupVersion
    controllers: tuple[ControllerMount, ...] = ()
    unified: str = ""

    def controller(self, name: str) -> ControllerMount | None:
        """The mount of that controller, or None. v2 has no "cpuacct": its "cpu" controller answers for it."""
        by_name = {mount.controller: mount for mount in self.controllers}
        cpu = by_name.get("cpu")
        if name == "cpuacct" and name not in by_name and cpu is not None and cpu.version == "v2":
            return cpu
        return by_name.get(name)


def parse_controllers(path: str, text: str) -> tuple[str, ...]:
    """The names in a cgroup.controllers file, sorted. Raises InvalidInput for a word that is no controller name."""
    names = text.split()
    for name in names:
        if _NAME.fullmatch(name) is None:
            raise InvalidInput(where(path, 1), "must be controller names separated by blanks", name)
    return tuple(sorted(set(names)))


def parse_self_cgroup(text: str, path: str = "/proc/self/cgroup") -> dict[str, str]:
    """This process's group by controller; v2 under the key "", a named v1 hierarchy under "name=...".

    Raises InvalidInput for a malformed line.
    """
    found: dict[str, str] = {}
    for number, line in numbered_lines(path, text):
        parts = line.split(":", 2)
        if len(parts) != 3 or not parts[2].startswith("/"):
            raise InvalidInput(where(path, number), 'must read "id:controllers:/path"', line)
        unsigned(parts[0], where(path, number))
        for controller in parts[1].split(","):
            found.setdefault(controller, parts[2])
    return found


def parse_hierarchy(mounts: str, self_cgroup: str, unified_controllers: str | None) -> Hierarchy:
    """The hierarchy from the texts of /proc/mounts, /proc/self/cgroup and the v2 root's cgroup.controllers (None: unreadable).

    The first mount of a controller counts. Version "hybrid" means that v1 and v2 are mounted; a controller is on v2 only if no v1
    mount has it, as in the kernel. Raises InvalidInput for a malformed line.
    """
    own = parse_self_cgroup(self_cgroup)
    found: dict[str, ControllerMount] = {}
    unified = ""
    for number, line in numbered_lines("/proc/mounts", mounts):
        words = line.split(" ")
        if len(words) < 4:
            raise InvalidInput(where("/proc/mounts", number), 'must read "device point type options ..."', line)
        point, kind, options = _unescaped(words[1]), words[2], words[3]
        if kind == "cgroup2" and not unified:
            unified = point
        if kind == "cgroup":
            for name in options.split(","):
                if name in V1_CONTROLLERS and name not in found:
                    own_path = own.get(name, "/")
                    found[name] = ControllerMount(controller=name, version="v1", mount_point=point, self_path=own_path)
    has_v1 = bool(found)
    if unified and unified_controllers is not None:
        for name in parse_controllers(f"{unified}/cgroup.controllers", unified_controllers):
            mount = ControllerMount(controller=name, version="v2", mount_point=unified, self_path=own.get("", "/"))
            found.setdefault(name, mount)
    version: CgroupVersion = "hybrid" if has_v1 and unified else "v1" if has_v1 else "v2" if unified else "none"
    return Hierarchy(version=version, controllers=tuple(found[name] for name in sorted(found)), unified=unified)


def unified_point(mounts: str) -> str:
    """The first cgroup2 mount point in /proc/mounts, "" without one; its cgroup.controllers is an input of parse_hierarchy."""
    for line in mounts.split("\n"):
        words = line.split(" ")
        if len(words) >= 4 and words[2] == "cgroup2":
            return _unescaped(words[1])
    return ""


def _unescaped(word: str) -> str:
    """The path of a mount point: the kernel writes blank, tab, newline and backslash as three octal digits."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), word)
