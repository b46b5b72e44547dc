"""Which CPUs of LSE and LSR work groups of others run on, too: a look at every group under the cpuset controller."""

import contextlib
import os
from collections.abc import Mapping
from typing import Final

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_executor.cgroup import CgroupTree
from colo_executor.group_dirs import DIR_FLAGS, groups_in, read_at
from colo_executor.knob_table import Knob
from colo_executor.open_cpus import OpenCpus
from colo_executor.process.found import class_of

__all__ = ["open_cpus", "own_cpus_of"]

_EFFECTIVE: Final = {1: "cpuset.effective_cpus", 2: "cpuset.cpus.effective"}
_NAMED_MOST: Final = 10
_DEPTH_MOST: Final = 16
_KUBELET: Final = "kubepods"
_NOBODY: Final[Mapping[str, CpuSet]] = {}


def own_cpus_of(online: CgroupTree) -> CpuSet:
    """The CPUs that the groups of LSE and LSR replicas in the online tier have, for who knows no placements."""
    cpus = CpuSet()
    for group in online.children(""):
        found = class_of(group)
        if found is not None and found[0].has_own_cpus:
            with contextlib.suppress(OSError, InvalidInput):
                cpus = cpus | CpuSet.parse(online.value(Knob.CPUSET_CPUS, group).strip())
    return cpus


def open_cpus(tree: CgroupTree, own: CpuSet, proc_root: str, attached: Mapping[str, CpuSet] = _NOBODY) -> OpenCpus:
    """The CPUs of `own` on which processes may run that are in no group of the executor, whose subtree is `tree`.

    `attached` are groups of others whose own CPUs these are, because LSE or LSR work is attached to them.
    """
    mount = tree.hierarchy.mounts.get("cpuset")
    if mount is None:
        return OpenCpus()
    found: dict[str, CpuSet] = {}
    with contextlib.suppress(OSError, InvalidInput):
        root = os.open(mount, DIR_FLAGS & ~os.O_NOFOLLOW)
        try:
            _Look(_EFFECTIVE[tree.version], tree.name, proc_root, attached, found).at(root, (), own)
        finally:
            os.close(root)
    cpus = CpuSet()
    for each in found.values():
        cpus = cpus | each
    return OpenCpus(cpus=cpus, groups=tuple(sorted(found))[:_NAMED_MOST])


class _Look:
    def __init__(
        self, file: str, ours: str, proc_root: str, attached: Mapping[str, CpuSet], found: dict[str, CpuSet]
    ) -> None:
        self._file = file
        self._ours = ours
        self._proc_root = proc_root
        self._attached = attached
        self._found = found

    def at(self, dir_fd: int, path: tuple[str, ...], above: CpuSet) -> None:
        """Note the CPUs of `above` that the group has, if it has processes, and those of the groups in it."""
        here = above - self._attached.get("/".join(path), CpuSet())
        with contextlib.suppress(FileNotFoundError):
            # A group without the controller has what the one has that it is in.
            here = here & CpuSet.parse(read_at(self._file, dir_fd).strip())
        if not here:
            return
        if self._has_processes(dir_fd, is_root=not path):
            label = "/".join(path[: 2 if path and path[0].startswith(_KUBELET) else 1]) or "/"
            self._found[label] = self._found.get(label, CpuSet()) | here
        for inner in groups_in(dir_fd) if len(path) < _DEPTH_MOST else ():
            if not path and (inner == self._ours or inner.startswith(f"{self._ours}-")):
                continue
            with contextlib.suppress(OSError):
                fd = os.open(inner, DIR_FLAGS, dir_fd=dir_fd)
                try:
                    self.at(fd, (*path, inner), here)
                finally:
                    os.close(fd)

    def _has_processes(self, dir_fd: int, *, is_root: bool) -> bool:
        """Whether the group itself has a process; threads of the kernel, which are in the root only, are none."""
        with contextlib.suppress(OSError):
            pids = read_at("cgroup.procs", dir_fd).split()
            return any(map(self._has_command, pids)) if is_root else bool(pids)
        return False

    def _has_command(self, pid: str) -> bool:
        try:
            with open(f"{self._proc_root}/{pid}/cmdline", "rb") as file:
                return bool(file.read(1))
        except OSError:
            return False
