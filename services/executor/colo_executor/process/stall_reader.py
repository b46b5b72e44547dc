"""How long online work has waited for a CPU: the pressure files of the control groups that are not batch work."""

import contextlib
import os
from collections.abc import Collection
from typing import Final

from colo_executor.cgroup import CgroupTree
from colo_executor.process.online_groups import group_of_this_process, online_groups
from colo_executor.process.unseen_groups import UnseenGroups
from colo_executor.stall import OnlineStalls

__all__ = ["StallReader", "stall_reader", "unified_root"]

_GROUPS_MOST: Final = 64
_EVERY_MS: Final = 100
_LIST_EVERY_MS: Final = 1_000


def unified_root(cgroup_root: str) -> str | None:
    """The mount of cgroup v2: the root itself, or `unified` below it beside v1 controllers; None without one."""
    for path in (cgroup_root, os.path.join(cgroup_root, "unified")):
        if os.path.exists(os.path.join(path, "cgroup.controllers")):
            return path
    return None


def stall_reader(tree: CgroupTree, own: Collection[str], proc_root: str) -> "StallReader | None":
    """The reader for the machine of this tree, None where no cgroup v2 is mounted. `own` are the top-level groups of batch work."""
    unified = unified_root(tree.root)
    if unified is None:
        return None
    mounts = tree.hierarchy.mounts
    unseen = (
        UnseenGroups(mounts["cpu"], mounts["cpuacct"], unified, own, proc_root=proc_root) if tree.version == 1 else None
    )
    return StallReader(unified, own, proc_root=proc_root, unseen=unseen)


class StallReader:
    """Reads `cpu.pressure` of the groups of online work at most every 100 ms; lists the groups again every second.

    `own` are the top-level groups of batch work, `unseen` finds online work without a pressure file. At most 64 groups are read;
    processes of the root group have no pressure file.
    """

    def __init__(self, root: str, own: Collection[str], *, proc_root: str, unseen: UnseenGroups | None = None) -> None:
        self._root = root
        self._own = frozenset(own)
        self._proc_root = proc_root
        self._unseen = unseen
        self._fds: dict[str, int] = {}
        self._throttled_us: dict[str, int] = {}
        self._listed_at_ms: int | None = None
        self._last: OnlineStalls | None = None

    def read(self, now_ms: int) -> OnlineStalls | None:
        """The waits of every group; None when the kernel has no pressure files here. Never raises OSError."""
        if self._last is not None and 0 <= now_ms - self._last.at_ms < _EVERY_MS:
            return self._last
        if self._listed_at_ms is None or not 0 <= now_ms - self._listed_at_ms < _LIST_EVERY_MS:
            self._listed_at_ms = now_ms
            try:
                self._refresh()
            except OSError:
                self.close()
                return None
        before = dict(self._last.total_us) if self._last is not None else {}
        found = []
        for name, fd in list(self._fds.items()):
            try:
                total_us = _some_total_us(os.pread(fd, 256, 0))
            except (OSError, ValueError):
                self._drop(name)
                continue
            found.append((name, total_us))
            if before.get(name) != total_us:
                # A quota stops nobody whose threads did not wait, so a second file is read only of groups that did.
                self._throttled_us[name] = self._read_throttled_us(name)
        throttled = tuple((name, self._throttled_us[name]) for name, _ in found if self._throttled_us.get(name))
        unseen = () if self._unseen is None else self._unseen.read(now_ms)
        found_now = OnlineStalls(at_ms=now_ms, total_us=tuple(found), throttled_us=throttled, unseen=unseen)
        self._last = found_now if self._has_pressure() else None
        return self._last

    def __del__(self) -> None:
        # As a file object does: nobody closes files that only a forgotten reader knew.
        for fd in getattr(self, "_fds", {}).values():
            os.close(fd)

    def close(self) -> None:
        """Close the open files; the next reading opens them again."""
        for name in list(self._fds):
            self._drop(name)
        self._listed_at_ms = self._last = None

    def _has_pressure(self) -> bool:
        # A machine without any online group has nothing that could wait, which is not the same as a kernel that cannot tell.
        return bool(self._fds) or os.path.exists(os.path.join(self._proc_root, "pressure/cpu"))

    def _read_throttled_us(self, name: str) -> int:
        """For how long the group's quota stopped it; 0 where the group has no quota or its file says nothing."""
        with contextlib.suppress(OSError, ValueError), open(os.path.join(self._root, name, "cpu.stat"), "rb") as file:
            for line in file:
                if line.startswith(b"throttled_usec "):
                    return int(line.split()[1])
        return 0

    def _refresh(self) -> None:
        groups = online_groups(self._root, self._own, group_of_this_process(self._proc_root))
        wanted = set(sorted(groups)[:_GROUPS_MOST])
        for name in sorted(self._fds.keys() - wanted):
            self._drop(name)
        for name in sorted(wanted - self._fds.keys()):
            with contextlib.suppress(OSError):
                path = os.path.join(self._root, name, "cpu.pressure")
                self._fds[name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def _drop(self, name: str) -> None:
        with contextlib.suppress(OSError):
            self._throttled_us.pop(name, None)
            os.close(self._fds.pop(name))


def _some_total_us(text: bytes) -> int:
    """The total of the line "some avg10=0.00 avg60=0.00 avg300=0.00 total=123". Raises ValueError for another text."""
    line = text.split(b"\n", 1)[0]
    if not line.startswith(b"some "):
        raise ValueError(line)
    return int(line.rpartition(b" total=")[2])
