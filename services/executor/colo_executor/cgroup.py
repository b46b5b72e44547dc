"""Control groups of one subtree, under cgroup v1 and v2: the only code that writes kernel files.

No path leaves the subtree: names are checked against a strict pattern, and directories are opened step by step without
following links.
"""

import contextlib
import errno
import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, TypeVar

from msgspec import Struct

from colo_common.events.enforcement import KnobValue
from colo_common.model.invalid import InvalidInput
from colo_executor.cgroup_hierarchy import CONTROLLERS, CgroupError, CgroupHierarchy, check_file_system, find_hierarchy
from colo_executor.device_fence import DeviceFence, has_sys_admin
from colo_executor.group_dirs import (
    DIR_FLAGS,
    check_name,
    exists_at,
    field_in,
    groups_in,
    open_in,
    processes_in,
    read_at,
    remove_below,
    thaw_below,
    write_at,
)
from colo_executor.group_signals import send
from colo_executor.knob_table import FENCE, PERIOD_US, UNLIMITED, Knob, file_of, page_bytes_of
from colo_executor.knobs import agrees, text_of, value_of, writes_of
from colo_executor.new_group import knobs_of_new_group
from colo_executor.order import KnobWrite
from colo_executor.refusal import error_name, what_refusal_means

__all__ = ["CgroupError", "CgroupTree", "Drifted"]

_T = TypeVar("_T")
_RETRY_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)


class Drifted(Struct, frozen=True, kw_only=True):
    """A kept file that another program changed: the write that belongs there, the path below the cgroup root, the value now.

    `shown` is empty for a file that can no longer be read.
    """

    write: KnobWrite
    file: str
    shown: str


class CgroupTree:
    """The executor's subtree `name`. Groups are named relative to it: "" is its top group, "batch" and "batch/TOKEN" are below it.

    `created` is called with the path of a directory before it is made. `changing` is called with path and old value of a file that
    this tree did not make, and its first write is done in the context that it returns, which sees the CgroupError of a refusal.
    Paths are relative to the cgroup root. `controllers` limits the subtree to the listed controllers of each cgroup version. Of
    the hierarchies without a controller of ours (v1) it has the top group only.
    """

    def __init__(
        self,
        root: str,
        name: str,
        *,
        created: Callable[[str], None] = lambda path: None,
        changing: Callable[[str, str], AbstractContextManager[None]] = lambda path, value: contextlib.nullcontext(),
        controllers: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        check_name(name, "subtree")
        self.root = os.path.realpath(root)
        self.name = name
        self.hierarchy = find_hierarchy(root)
        self.version = self.hierarchy.version
        if controllers is not None:
            mounts = {name: mount for name, mount in self.hierarchy.mounts.items() if name in controllers[self.version]}
            self.hierarchy = CgroupHierarchy(version=self.version, mounts=mounts)
        self._devices = {mount: os.stat(mount).st_dev for mount in self._mounts_of("")}
        self._created = created
        self._changing = changing
        self._own: set[str] = set()
        self._noted: set[str] = set()
        self._kept: dict[str, dict[tuple[Knob, int], KnobWrite]] = {}
        self._fence = DeviceFence()

    # ------------------------------------------------------------ directories

    def check_writable(self) -> None:
        """Raise CgroupError when this process may not make groups in the subtree, or the subtree itself."""
        for mount in self._mounts():
            top = os.path.join(mount, self.name)
            where = top if os.path.isdir(top) else mount
            if not os.access(where, os.W_OK | os.X_OK):
                raise CgroupError(f"this process may not make control groups below {where}; run it as root")

    def make(self, group: str) -> None:
        """Make the group under every controller, unless it exists. Its parent must exist."""
        for mount in self._mounts_of(group):
            with self._parent(mount, group) as (parent_fd, last):
                path = self._shown(mount, group)
                if self.version == 2:
                    self._delegate(mount, group)
                if path not in self._own and not exists_at(last, parent_fd):
                    self._created(path)
                with contextlib.suppress(FileExistsError):
                    self._mkdir(path, last, parent_fd)
                    self._own.add(path)

    def to_make(self, group: str) -> tuple[KnobValue, ...]:
        """What `make` would do; nothing is made. A group that is not there has the value "a control group"."""
        found = []
        for mount in self._mounts_of(group):
            if self._is_at(mount, group):
                continue
            if self.version == 2:
                with contextlib.suppress(FileNotFoundError):
                    above, wanted, before = self._to_delegate(mount, group)
                    if wanted:
                        path = self._shown(mount, above, "cgroup.subtree_control")
                        found.append(KnobValue(path=path, value=wanted, before=before))
            found.append(KnobValue(path=self._shown(mount, group), value="a control group", before=""))
        return tuple(found)

    def remove(self, group: str) -> bool:
        """Remove the group under every controller, waiting a bounded time for its last process; False when a directory stayed."""
        for wait_s in _RETRY_S:
            if self.remove_now(group):
                return True
            time.sleep(wait_s)
        return False

    def remove_now(self, group: str) -> bool:
        """Remove the group, and the groups that its processes made in it, under every controller; False when one stayed."""
        self._kept.pop(group, None)
        stayed = [mount for mount in self._mounts_of(group) if not self._rmdir(mount, group)]
        return not stayed

    def children(self, group: str) -> tuple[str, ...]:
        """Names of the groups directly below, in order, under any controller."""
        names: set[str] = set()
        for mount in self._mounts():
            with (
                contextlib.suppress(CgroupError, FileNotFoundError),
                self._dir(mount, group) as fd,
                os.scandir(fd) as entries,
            ):
                names.update(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        return tuple(sorted(names))

    def exists(self, group: str) -> bool:
        """Whether the group exists under the cpu controller."""
        return self._is_at(self.hierarchy.mounts["cpu"], group)

    def is_whole(self, group: str) -> bool:
        """Whether the group exists under every controller."""
        return all(self._is_at(mount, group) for mount in self._mounts_of(group))

    def _is_at(self, mount: str, group: str) -> bool:
        with contextlib.suppress(FileNotFoundError), self._dir(mount, group):
            return True
        return False

    def identity(self, group: str) -> int:
        """The kernel's number of the group, which no later group of that name has; 0 where it does not exist."""
        with contextlib.suppress(FileNotFoundError), self._dir(self.hierarchy.mounts["cpu"], group) as fd:
            return os.fstat(fd).st_ino
        return 0

    def lock(self) -> int:
        """A descriptor that locks the subtree to this process until it is closed, or -1 where the subtree does not exist.

        Raises CgroupError when another executor has it.
        """
        try:
            with self._dir(self.hierarchy.mounts["cpu"], "") as dir_fd:
                fd = os.dup(dir_fd)
        except FileNotFoundError:
            return -1
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise CgroupError(f"another executor uses the control group {self.name}") from error
        return fd

    def own(self, paths: list[str]) -> None:
        """Take over directories that an earlier executor of this subtree made."""
        self._own.update(paths)

    def own_group(self, group: str) -> tuple[str, ...]:
        """Take a group for this executor's own, where it exists: old values of its files need not be noted. Returns its paths."""
        paths = tuple(self._shown(mount, group) for mount in self._mounts_of(group) if self._is_at(mount, group))
        self._own.update(paths)
        return paths

    # ------------------------------------------------------------ files

    def has(self) -> frozenset[Knob]:
        """The knobs whose files the kernel has in the subtree's top group, or before it is made, will have there.

        Without rules of devices where the kernel takes none from this process.
        """
        by_program = frozenset([Knob.DEVICES] if self.version == 2 and not self.lacks_fence() else [])
        if self.version == 2 and not self.exists(""):
            with self._dir(self.hierarchy.mounts["cpu"], None) as fd:
                return knobs_of_new_group(fd, self.hierarchy.mounts, self.huge_page_sizes()) | by_program
        found = set()
        sizes = self.huge_page_sizes()
        for knob in Knob:
            place = file_of(knob, self.version, sizes[0] if sizes else 0)
            if place is None or place[0] not in self.hierarchy.mounts:
                continue
            with self._like_top(self.hierarchy.mounts[place[0]], place[0]) as fd:
                if exists_at(place[1], fd):
                    found.add(knob)
        if self.version == 1 and self.lacks_fence():
            found.discard(Knob.DEVICES)
        return by_program.union(found)

    def lacks_fence(self) -> str:
        """Why groups can be given no rules of devices here, "" when they can. Under v2 the kernel is asked once."""
        mount = self.hierarchy.mounts.get("devices")
        if mount is None:
            return "no devices controller that can be written is mounted"
        if self.version == 1:
            return "" if has_sys_admin() else "this process lacks CAP_SYS_ADMIN"
        with self._dir(mount, None) as fd:
            return self._fence.lacking(fd)

    @contextlib.contextmanager
    def _like_top(self, mount: str, controller: str) -> Iterator[int]:
        """The subtree's top group, or where it is not made the first sibling with files of the controller, or the mount."""
        with contextlib.ExitStack() as stack:
            try:
                fd = stack.enter_context(self._dir(mount, ""))
            except FileNotFoundError:
                fd = stack.enter_context(self._dir(mount, None))
                for name in groups_in(fd):
                    with contextlib.suppress(OSError):
                        sibling = os.open(name, DIR_FLAGS, dir_fd=fd)
                        stack.callback(os.close, sibling)
                        if any(file.startswith(f"{controller}.") for file in os.listdir(sibling)):
                            fd = sibling
                            break
            yield fd

    def huge_page_sizes(self) -> tuple[int, ...]:
        """The sizes of huge pages (bytes, ascending) that the kernel can limit in the subtree's top group."""
        mount = self.hierarchy.mounts.get("hugetlb")
        if mount is None:
            return ()
        with self._like_top(mount, "hugetlb") as fd:
            found = (page_bytes_of(name) for name in os.listdir(fd))
            return tuple(sorted({size for size in found if size is not None}))

    def write(self, write: KnobWrite) -> KnobValue:
        """Write a knob and read it back.

        Raises CgroupError when the value is outside the knob's range, when the kernel refuses it, or shows something else.
        """
        mount, name, path, text = self._target(write)
        before = self._read(mount, write.path, name)
        if agrees(write.knob, self.version, text, before):
            self.keep(write)
            return KnobValue(path=path, value=before, before=before)
        for file, part in writes_of(write.knob, name, text, before):
            # Only replicas have rules of devices, and of those no old value is put back.
            self._write(mount, write.path, file, part, before if write.knob is not Knob.DEVICES else None)
        shown = self._read(mount, write.path, name)
        if not agrees(write.knob, self.version, text, shown):
            raise CgroupError(f"{path} shows {shown!r} after writing {text!r}")
        self.keep(write)
        return KnobValue(path=path, value=shown, before=before)

    def observed(self, write: KnobWrite) -> KnobValue:
        """What `write` would do; nothing is written. `before` is empty where the group is still to be made."""
        mount, name, path, text = self._target(write)
        before = ""
        with contextlib.suppress(FileNotFoundError):
            before = self._read(mount, write.path, name)
            if agrees(write.knob, self.version, text, before):
                text = before
        return KnobValue(path=path, value=text, before=before)

    def _file_of(self, knob: Knob, page_bytes: int = 0) -> tuple[str, str]:
        """Mount and name of the knob's file. Raises CgroupError where the kernel has none."""
        place = file_of(knob, self.version, page_bytes)
        if place is None or place[0] not in self.hierarchy.mounts:
            raise CgroupError(f"cgroup v{self.version} here has no file for {knob.value}")
        return self.hierarchy.mounts[place[0]], place[1]

    def _target(self, write: KnobWrite) -> tuple[str, str, str, str]:
        """Mount, name and path of the file, and the text that sets it. Raises CgroupError where it cannot be written."""
        mount, name = self._file_of(write.knob, write.page_bytes)
        path = self._shown(mount, write.path, name)
        try:
            return mount, name, path, text_of(write.knob, self.version, write.value)
        except InvalidInput as error:
            raise CgroupError(f"{path} is not written: {error}") from error

    def keep(self, write: KnobWrite) -> None:
        """Let `drifted` compare the file with this value from now on. The newest value of a file counts, until `remove`."""
        kept = self._kept.setdefault(write.path, {})
        kept[write.knob, write.page_bytes] = write
        if write.knob is Knob.DEVICES and self.version == 2:
            self._fence.learn(str(write.value))
        if write.knob is Knob.CPU_IDLE and write.value == 1:
            # The kernel changes the weight of an idle group to one of its own.
            kept.pop((Knob.CPU_WEIGHT, 0), None)

    def note_again(self, is_known: Callable[[str], bool]) -> None:
        """Report old values to `changing` once more, but those of the paths that `is_known`."""
        self._noted = {path for path in self._noted if is_known(path)}

    def forget(self, group: str, knob: Knob) -> None:
        """Let `drifted` look at the file no more."""
        self._kept.get(group, {}).pop((knob, 0), None)

    def kept(self, knob: Knob) -> dict[str, KnobWrite]:
        """The kept write of that knob by group. Not for huge pages, which have several files a group."""
        return {path: found[knob, 0] for path, found in self._kept.copy().items() if (knob, 0) in found}

    def drifted(self, groups: Iterable[str] | None = None) -> tuple[Drifted, ...]:
        """The kept files of all groups, or of these, that show another value than the written one. A deleted group has none.

        Reads every kept file, a directory at a time. The groups above are opened once for all that are in them.
        """
        found = []
        with contextlib.ExitStack() as stack:
            opened: dict[tuple[str, str | None], int] = {}
            for group in tuple(self._kept) if groups is None else groups:
                above, _, name = group.rpartition("/") if group else (None, "", self.name)
                try:
                    for mount, files in self._kept_files(group).items():
                        if (mount, above) not in opened:
                            opened[mount, above] = stack.enter_context(self._dir(mount, above))
                        fd = open_in(opened[mount, above], name, os.path.join(mount, self.name))
                        try:
                            found += [drift for write, file in files if (drift := self._drift(mount, fd, write, file))]
                        finally:
                            os.close(fd)
                except FileNotFoundError:
                    self._kept.pop(group, None)
        return tuple(found)

    def _kept_files(self, group: str) -> dict[str, list[tuple[KnobWrite, str]]]:
        """The kept writes of a group with the names of their files, by mount."""
        by_mount: dict[str, list[tuple[KnobWrite, str]]] = {}
        for write in tuple(self._kept.get(group, {}).values()):
            place = file_of(write.knob, self.version, write.page_bytes)
            if place is not None and place[0] in self.hierarchy.mounts:
                by_mount.setdefault(self.hierarchy.mounts[place[0]], []).append((write, place[1]))
        return by_mount

    def _drift(self, mount: str, dir_fd: int, write: KnobWrite, name: str) -> Drifted | None:
        try:
            shown = self._text_at(name, dir_fd).strip()
        except OSError as error:
            # ENODEV comes from a group that is just being removed; any other error is a drift.
            if error.errno == errno.ENODEV:
                return None
            shown = ""
        knob, value = write.knob, write.value
        # A list that reads as it was written is not taken apart again.
        if shown == value or agrees(knob, self.version, text_of(knob, self.version, value), shown):
            return None
        return Drifted(write=write, file=self._shown(mount, write.path, name), shown=shown)

    def value(self, knob: Knob, group: str) -> str:
        """The text of the knob's file now."""
        mount, name = self._file_of(knob)
        return self._read(mount, group, name)

    def read(self, knob: Knob, group: str) -> int | str | None:
        """The value now in the unit of the knob, of those that this module can read back; None where the version has no file."""
        if knob is Knob.CPU_QUOTA:
            # Under v2 the period is part of the file: with another one the quota is none of ours.
            is_ours = self.version == 1 or self.value(knob, group).split()[1:] == [str(PERIOD_US)]
            return self.quota_us(group) if is_ours else 0
        place = file_of(knob, self.version)
        if place is None or place[0] not in self.hierarchy.mounts:
            return None
        return value_of(knob, self.version, self.value(knob, group))

    def quota_us(self, group: str) -> int:
        """The group's CPU quota in us for its period, or UNLIMITED."""
        quota = self.value(Knob.CPU_QUOTA, group).split()[0]
        return UNLIMITED if quota in ("max", "-1") else int(quota)

    def cpu_used_us(self, group: str) -> int:
        """CPU time in us that the group and its descendants used since they were made."""
        if self.version == 1:
            return int(self._read(self.hierarchy.mounts["cpuacct"], group, "cpuacct.usage")) // 1_000
        return int(field_in(self._read(self.hierarchy.mounts["cpu"], group, "cpu.stat"), "usage_usec"))

    def oom_kills(self, group: str) -> int:
        """The number of processes of the group that the kernel's OOM killer killed."""
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        return int(field_in(self._read(self.hierarchy.mounts["memory"], group, name), "oom_kill"))

    def memory_peak_bytes(self, group: str) -> int:
        """The most memory that the group had at once; 0 where the kernel does not count it."""
        name = "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"
        try:
            return int(self._read(self.hierarchy.mounts["memory"], group, name))
        except FileNotFoundError:
            return 0

    def memory_used_bytes(self, group: str) -> int:
        """The memory that the group uses now."""
        name = "memory.usage_in_bytes" if self.version == 1 else "memory.current"
        return int(self._read(self.hierarchy.mounts["memory"], group, name))

    def usage_path(self, group: str) -> str:
        """The file with the group's CPU time, for readers that keep it open: "cpuacct.usage" (v1, ns) or "cpu.stat" (v2, us)."""
        mount = self.hierarchy.mounts["cpuacct"]
        parts = [part for part in (self.name, *group.split("/")) if part] if group != "/" else []
        return os.path.join(mount, *parts, "cpuacct.usage" if self.version == 1 else "cpu.stat")

    def path_of(self, knob: Knob, group: str) -> str:
        """The knob's file, relative to the cgroup root; "" where the kernel has none."""
        place = file_of(knob, self.version)
        if place is None or place[0] not in self.hierarchy.mounts:
            return ""
        return self._shown(self.hierarchy.mounts[place[0]], group, place[1])

    def text_at(self, path: str) -> str:
        """What a file shows that `changing` reported."""
        return self._read(*self._place(path))

    def quota_path(self, group: str) -> str:
        """The file with the group's CPU quota: "cpu.cfs_quota_us" (v1) or "cpu.max" (v2)."""
        return os.path.join(self.root, self.path_of(Knob.CPU_QUOTA, group))

    def frozen_path(self, group: str) -> str:
        """The file that is written to freeze the group, under v1 not the one that shows it; "" where the kernel has no freezer."""
        mount, name = self.hierarchy.mounts.get("freezer"), "cgroup.freeze" if self.version == 2 else "freezer.state"
        return os.path.join(mount, self.name, group, name) if mount else ""

    @property
    def cpu_path(self) -> str:
        """The subtree's top group under the cpu controller, for readers that keep nothing open."""
        return os.path.join(self.hierarchy.mounts["cpu"], self.name)

    # ------------------------------------------------------------ processes

    def attach(self, group: str, pid: int) -> None:
        """Move the process into the group under every controller, and into the subtree's top group in every other hierarchy.

        Else it would be in the executor's own group there, and who ends that group, such as a kubelet a pod, would end it too.
        """
        for mount in self._mounts():
            self._write(mount, group, "cgroup.procs", str(pid), None)
        for mount in self.hierarchy.others:
            self._write(mount, "", "cgroup.procs", str(pid), None)

    def pids(self, group: str) -> tuple[int, ...]:
        """The processes of the group and of the groups in it, by the cpu controller; empty when the group does not exist.

        Raises CgroupError or OSError where they cannot be known, as when this process may open no more files.
        """
        return tuple(self._pids_at(self.hierarchy.mounts["cpu"], group))

    def _pids_at(self, mount: str, group: str) -> list[int]:
        with contextlib.suppress(FileNotFoundError), self._dir(mount, group) as fd:
            return processes_in(fd)
        return []

    def _pids_anywhere(self, group: str) -> set[int]:
        """The processes that keep a directory of the group from being removed: under v1 each controller has a list of its own."""
        return {pid for mount in self._mounts() for pid in self._pids_at(mount, group)}

    def terminate(self, group: str) -> None:
        """SIGTERM to every process of the group."""
        send(signal.SIGTERM, self.pids(group), lambda: self.pids(group))

    def freeze(self, group: str, *, is_frozen: bool) -> None:
        """Take all CPU from the group's processes, or give it back. Where the kernel has no freezer: SIGSTOP or SIGCONT to each.

        Raises CgroupError when the kernel refuses it, FileNotFoundError when the group does not exist.
        """
        if "freezer" in self.hierarchy.mounts:
            self.write(KnobWrite(path=group, knob=Knob.FROZEN, value=int(is_frozen)))
            return
        sent: set[int] = set()
        # A process may fork before the signal reaches it.
        for _ in _RETRY_S:
            pids = set(self.pids(group))
            if pids <= sent:
                return
            send(signal.SIGSTOP if is_frozen else signal.SIGCONT, pids - sent, lambda: self.pids(group))
            sent |= pids

    def kill(self, group: str) -> bool:
        """SIGKILL until the group is known to be empty; False when it was not for about a second and a half. Blocks."""
        for wait_s in (*_RETRY_S, 0):
            with contextlib.suppress(CgroupError, OSError):
                if self.kill_now(group):
                    return True
            time.sleep(wait_s)
        return False

    def kill_now(self, group: str) -> bool:
        """Whether the group, with the groups in it, has no process under any controller; else every one of them gets SIGKILL.

        Raises CgroupError or OSError where they cannot be known.
        """
        pids = self._pids_anywhere(group)
        if not pids:
            return True
        if self.version == 1:
            self._let_die(group)
        if self.version == 2:
            with contextlib.suppress(CgroupError, FileNotFoundError):
                self._write(self.hierarchy.mounts["cpu"], group, "cgroup.kill", "1", None)
        send(signal.SIGKILL, pids, lambda: self._pids_anywhere(group))
        return False

    def _let_die(self, group: str) -> None:
        """Thaw the group and the groups in it: under v1 a frozen process does not even die, whoever froze it."""
        with contextlib.suppress(CgroupError, OSError):
            if self.value(Knob.FROZEN, group) == "1":
                self.freeze(group, is_frozen=False)
            with self._dir(self.hierarchy.mounts["freezer"], group) as fd:
                thaw_below(fd)

    # ------------------------------------------------------------ putting back

    def put_back(self, path: str, value: str) -> None:
        """Write back the old value of a file that `changing` reported. Raises CgroupError when the kernel refuses it.

        A controller that was not handed down before, and that a group of others hands on by now, stays handed down.
        """
        mount, group, name = self._place(path)
        if name != "cgroup.subtree_control":
            self._try(path, f"write {value!r}", lambda: self._put(mount, group, name, value))
            return
        for controller in sorted(set(self._read(mount, group, name).split()) - set(value.split())):
            self._try(path, f"write '-{controller}'", partial(self._take_back, mount, group, controller))

    def _take_back(self, mount: str, group: str | None, controller: str) -> None:
        for wait_s in _RETRY_S:
            try:
                return self._put(mount, group, "cgroup.subtree_control", f"-{controller}")
            except OSError as error:
                # A group below hands it on: systemd, which takes such things back a moment after its units need them no more.
                if error.errno != errno.EBUSY:
                    raise
            time.sleep(wait_s)
        return None

    def holds(self, path: str) -> bool:
        """Whether the path, relative to the cgroup root, is in this subtree."""
        return any(f"{path}/".startswith(f"{self._shown(mount, '')}/") for mount in self._mounts_of(""))

    def top_of(self, path: str) -> str:
        """The top group that the path, relative to the cgroup root, is in; "" for files of the root itself."""
        for mount in self._mounts_of(""):
            prefix = self._shown(mount, None)
            rest = path if prefix == "." else path.removeprefix(f"{prefix}/")
            if (prefix == "." or rest != path) and "/" in rest:
                return rest.partition("/")[0]
        return ""

    def remove_path(self, path: str) -> bool:
        """Remove a directory that `created` reported; False when it stayed."""
        mount, group, _ = self._place(path + "/-")
        for wait_s in _RETRY_S if group is not None else ():
            if self._rmdir(mount, group or ""):
                return True
            time.sleep(wait_s)
        return group is None

    # ------------------------------------------------------------ inside

    def _mounts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.hierarchy.mounts[name] for name in self._controllers()))

    def _mounts_of(self, group: str) -> tuple[str, ...]:
        return self._mounts() if group else (*self._mounts(), *self.hierarchy.others)

    def _controllers(self) -> tuple[str, ...]:
        return tuple(name for name in CONTROLLERS if name in self.hierarchy.mounts)

    def _shown(self, mount: str, group: str | None, name: str = "") -> str:
        parts = [mount] if group is None else [mount, self.name, group]
        return os.path.relpath(os.path.join(*[part for part in (*parts, name) if part]), self.root)

    def _place(self, path: str) -> tuple[str, str | None, str]:
        """Mount, group (None: the mount itself) and file name of a path that `_shown` made. Raises CgroupError for others."""
        for mount in self._mounts_of(""):
            for group in (None, ""):
                prefix = self._shown(mount, group)
                rest = path if prefix == "." else path.removeprefix(prefix + "/")
                if rest == path and prefix != ".":
                    continue
                if group is None and "/" not in rest:
                    return mount, None, rest
                if group == "":
                    directory, _, name = rest.rpartition("/")
                    return mount, directory, name
        raise CgroupError(f"{path} is not below {self.name}")

    @contextlib.contextmanager
    def _dir(self, mount: str, group: str | None) -> Iterator[int]:
        fd = os.open(mount, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if (device := os.fstat(fd).st_dev) != self._devices[mount]:
                check_file_system(mount, "/proc")
                self._devices[mount] = device
            for part in [] if group is None else [self.name, *group.split("/")] if group else [self.name]:
                inner = open_in(fd, part, os.path.join(mount, self.name))
                os.close(fd)
                fd = inner
            yield fd
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def _parent(self, mount: str, group: str) -> Iterator[tuple[int, str]]:
        above, _, last = group.rpartition("/")
        if last:
            check_name(last)
        with self._dir(mount, above if last else None) as fd:
            yield fd, last or self.name

    def _read(self, mount: str, group: str | None, name: str) -> str:
        path = self._shown(mount, group, name)
        with self._dir(mount, group) as dir_fd:
            return self._try(path, "read", lambda: self._text_at(name, dir_fd)).strip()

    def _text_at(self, name: str, dir_fd: int) -> str:
        return self._fence.read(dir_fd) if name == FENCE else read_at(name, dir_fd)

    def _write(self, mount: str, group: str | None, name: str, text: str, before: str | None) -> None:
        path = self._shown(mount, group, name)
        is_known = before is None or self._shown(mount, group) in self._own or path in self._noted
        with contextlib.nullcontext() if is_known else self._changing(path, before or ""):
            self._try(path, f"write {text!r}", lambda: self._put(mount, group, name, text))
        if not is_known:
            self._noted.add(path)

    def _put(self, mount: str, group: str | None, name: str, text: str) -> None:
        with self._dir(mount, group) as dir_fd:
            if name == FENCE:
                self._fence.write(dir_fd, text)
                return
            write_at(name, dir_fd, text)

    def _delegate(self, mount: str, group: str) -> None:
        """Enable the controllers (v2) for the group that is about to be made."""
        above, wanted, before = self._to_delegate(mount, group)
        if wanted:
            self._write(mount, above, "cgroup.subtree_control", wanted, before)

    def _to_delegate(self, mount: str, group: str) -> tuple[str | None, str, str]:
        """The group above, what enables the controllers there that it lacks, and which it has."""
        above: str | None = group.rpartition("/")[0] if group else None
        present = set(self._read(mount, above, "cgroup.controllers").split())
        before = self._read(mount, above, "cgroup.subtree_control")
        wanted = [name for name in self._controllers() if name in present and name not in before.split()]
        return above, " ".join(f"+{name}" for name in wanted), before

    def _mkdir(self, path: str, name: str, parent_fd: int) -> None:
        self._try(path, "mkdir", lambda: os.mkdir(name, 0o755, dir_fd=parent_fd))

    def _rmdir(self, mount: str, group: str) -> bool:
        path = self._shown(mount, group)
        try:
            with self._dir(mount, group) as fd:
                remove_below(fd)
            with self._parent(mount, group) as (fd, last):
                os.rmdir(last, dir_fd=fd)
        except FileNotFoundError:
            pass
        except OSError:
            return False
        self._own.discard(path)
        return True

    def _try(self, path: str, what: str, act: Callable[[], _T]) -> _T:
        try:
            return act()
        except (FileExistsError, FileNotFoundError):
            raise
        except OSError as error:
            if error.errno == errno.ENODEV:
                # The group was removed after its file was opened.
                raise FileNotFoundError(errno.ENOENT, "the group was removed meanwhile", path) from error
            means = what_refusal_means(os.path.basename(path), name := error_name(error.errno), what)
            raise CgroupError(f"{path}: {what} refused with {name} ({error.strerror}): {means}") from error
