"""How long online work has waited for a CPU: the pressure files of the control groups that are not batch work, or their threads."""

import contextlib
import os
from collections.abc import Collection, Iterator
from typing import Final

from colo_executor.cgroup import CgroupTree
from colo_executor.process.busiest_groups import BusiestGroups
from colo_executor.process.group_zones import GroupZones
from colo_executor.process.online_groups import group_of_this_process, online_groups
from colo_executor.process.thread_waits import ThreadWaits, has_thread_waits
from colo_executor.process.unseen_groups import UnseenGroups, throttled_us
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


def stall_reader(
    tree: CgroupTree, own: Collection[str], proc_root: str, zones: GroupZones | None = None
) -> "StallReader | None":
    """The reader for the machine of this tree, None where the kernel shows nothing. `own` are the top groups of batch work."""
    unified, mounts = unified_root(tree.root), tree.hierarchy.mounts
    has_threads = has_thread_waits(proc_root)
    if unified is None and not has_threads:
        return None
    unseen = None
    # Under v2 every group has a pressure file, or none has.
    if tree.version == 1 or (has_threads and not _has_pressure(proc_root)):
        unseen = UnseenGroups(
            mounts["cpu"],
            mounts["cpuacct"],
            tree.version,
            unified,
            own,
            proc_root=proc_root,
            threads=ThreadWaits(mounts["cpu"], tree.version, proc_root=proc_root) if has_threads else None,
        )
    return StallReader(unified, own, proc_root=proc_root, unseen=unseen, has_threads=has_threads, zones=zones)


class StallReader:
    """Reads the waits of the groups of online work at most every 100 ms; lists the groups again every second.

    `root` is the hierarchy with pressure files (`cpu.pressure`), of which at most 64 are read: those of the groups with most CPU
    use; the others are unseen where they are busy. `own` are the top-level groups of batch work. `unseen` finds online work without
    a pressure file; `has_threads`: its waits are read from its threads, as far as that reaches. `zones` knows which groups run in
    one NUMA zone alone. Processes of the root group are no group's.
    """

    def __init__(
        self,
        root: str | None,
        own: Collection[str],
        *,
        proc_root: str,
        unseen: UnseenGroups | None = None,
        has_threads: bool = False,
        zones: GroupZones | None = None,
    ) -> None:
        self._root = root
        self._busiest = None if root is None else BusiestGroups(root, _GROUPS_MOST)
        self._own = frozenset(own)
        self._proc_root = proc_root
        self._unseen = unseen
        self._has_threads = has_threads
        self._zones = zones
        self._in_zones: tuple[tuple[str, int], ...] = ()
        self._fds: dict[str, int] = {}
        self._throttled_us: dict[str, int] = {}
        self._listed_at_ms: int | None = None
        self._last: OnlineStalls | None = None

    def read(self, now_ms: int) -> OnlineStalls | None:
        """The waits of every group; None when the kernel shows none here. Never raises OSError."""
        if self._last is not None and 0 <= now_ms - self._last.at_ms < _EVERY_MS:
            return self._last
        if self._listed_at_ms is None or not 0 <= now_ms - self._listed_at_ms < _LIST_EVERY_MS:
            self._listed_at_ms = now_ms
            try:
                self._refresh(now_ms)
            except OSError:
                self.close()
                return None
        before = dict(self._last.total_us) if self._last is not None else {}
        unseen = () if self._unseen is None else self._unseen.read(now_ms)
        by_threads = {} if self._unseen is None else dict(self._unseen.waits_us(now_ms))
        if self._busiest is not None and (left_out := self._busiest.left_out()):
            unseen = tuple(sorted({*unseen, *(name for name in left_out if name not in by_threads)}))
        found = {name: total_us for name, total_us in self._read_files() if name not in by_threads} | by_threads
        for name, total_us in found.items():
            if before.get(name) != total_us:
                # A quota stops nobody whose threads did not wait, so a second file is read only of groups that did.
                self._throttled_us[name] = self._read_throttled_us(name, is_by_threads=name in by_threads)
        for name in self._throttled_us.keys() - found.keys():
            del self._throttled_us[name]
        throttled = tuple((name, self._throttled_us[name]) for name in found if self._throttled_us.get(name))
        if self._zones is not None and self._listed_at_ms == now_ms:
            self._in_zones = self._zones.of(found)
        found_now = OnlineStalls(
            at_ms=now_ms,
            total_us=tuple(found.items()),
            throttled_us=throttled,
            unseen=unseen,
            by_threads=tuple(name for name in by_threads if name not in unseen),
            zones=self._in_zones,
        )
        self._last = found_now if self._fds or self._has_threads or _has_pressure(self._proc_root) else None
        return self._last

    def __del__(self) -> None:
        # As a file object does: nobody closes files that only a forgotten reader knew.
        for fd in getattr(self, "_fds", {}).values():
            os.close(fd)

    def close(self) -> None:
        """Close the open files; the next reading opens them again."""
        for name in list(self._fds):
            self._drop(name)
        if self._unseen is not None:
            self._unseen.close()
        self._listed_at_ms = self._last = None

    def _read_files(self) -> Iterator[tuple[str, int]]:
        """The groups with a pressure file and its total."""
        for name, fd in list(self._fds.items()):
            try:
                yield name, _some_total_us(os.pread(fd, 256, 0))
            except (OSError, ValueError):
                self._drop(name)

    def _read_throttled_us(self, name: str, *, is_by_threads: bool) -> int:
        if is_by_threads:
            return 0 if self._unseen is None else self._unseen.throttled_us(name)
        return 0 if self._root is None else throttled_us(os.path.join(self._root, name))

    def _refresh(self, now_ms: int) -> None:
        if self._root is None or self._busiest is None:
            return
        groups = online_groups(self._root, self._own, group_of_this_process(self._proc_root))
        if self._zones is not None:
            groups = self._zones.split(self._root, groups, _GROUPS_MOST)
        wanted = self._busiest.choose(groups, now_ms)
        for name in sorted(self._fds.keys() - wanted):
            self._drop(name)
        for name in sorted(wanted - self._fds.keys()):
            with contextlib.suppress(OSError):
                path = os.path.join(self._root, name, "cpu.pressure")
                self._fds[name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def _drop(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.close(self._fds.pop(name))


def _has_pressure(proc_root: str) -> bool:
    # A machine without any online group has nothing that could wait, which is not the same as a kernel that cannot tell.
    return os.path.exists(os.path.join(proc_root, "pressure/cpu"))


def _some_total_us(text: bytes) -> int:
    """The total of the line "some avg10=0.00 avg60=0.00 avg300=0.00 total=123". Raises ValueError for another text."""
    line = text.split(b"\n", 1)[0]
    if not line.startswith(b"some "):
        raise ValueError(line)
    return int(line.rpartition(b" total=")[2])
