"""A cgroup v2 hierarchy of plain files: making a group makes its files, as the kernel does; sets are checked by nobody."""

import os
import shutil
from pathlib import Path

import pytest

from colo_executor.cgroup import CgroupTree

__all__ = ["Cgroup2Files"]

_FILES = {
    "cgroup.controllers": "cpu cpuset memory pids\n",
    "cgroup.subtree_control": "cpu cpuset memory pids\n",
    "cgroup.procs": "",
    "cpu.weight": "100\n",
    "cpu.idle": "0\n",
    "cpu.max": "max 100000\n",
    "cpu.stat": "usage_usec 0\n",
    "cpuset.cpus": "\n",
    "cpuset.mems": "\n",
    "memory.max": "max\n",
    "memory.min": "0\n",
    "memory.low": "0\n",
    "memory.swap.max": "max\n",
    "memory.oom.group": "0\n",
    "memory.events": "oom_kill 0\n",
    "pids.max": "max\n",
}


_HUGETLB = {f"hugetlb.{size}{reserved}.max": "max\n" for size in ("2MB", "1GB") for reserved in ("", ".rsvd")}


class Cgroup2Files:
    """`root` is the mount point, `sys_root` the /sys of a machine of two zones with four CPUs each.

    `hugetlb`: the kernel can limit huge pages. Zone 0 has eight of 2 MiB, zone 1 has four, and one of 1 GiB.
    """

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, *, hugetlb: bool = False) -> None:
        self.root = directory / "cgroup"
        self._files = dict(_FILES)
        if hugetlb:
            controllers = "cpu cpuset memory pids hugetlb\n"
            self._files |= {"cgroup.controllers": controllers, "cgroup.subtree_control": controllers, **_HUGETLB}
        self.sys_root = directory / "sys"
        self.writes: list[str] = []
        self.root.mkdir(parents=True)
        self._fill(self.root)
        self._make_sys()
        mkdir, put = CgroupTree._mkdir, CgroupTree._put

        def make(tree: CgroupTree, path: str, name: str, parent_fd: int) -> None:
            mkdir(tree, path, name, parent_fd)
            self._fill(self.root / path)

        def note(tree: CgroupTree, mount: str, group: str | None, name: str, text: str) -> None:
            self.writes.append(f"{tree._shown(mount, group, name)} {text}")
            (Path(mount) / ("" if group is None else tree.name) / (group or "") / name).write_text("")
            put(tree, mount, group, name, text)

        def drop(tree: CgroupTree, mount: str, group: str) -> bool:
            shutil.rmtree(os.path.join(mount, tree.name, group), ignore_errors=True)
            return True

        monkeypatch.setattr(CgroupTree, "_mkdir", make)
        monkeypatch.setattr(CgroupTree, "_put", note)
        monkeypatch.setattr(CgroupTree, "_rmdir", drop)

    def cpus(self, group: str) -> str:
        """The CPU list of a group, by its path below the mount point."""
        return self.text(f"{group}/cpuset.cpus")

    def text(self, path: str) -> str:
        """What a file shows."""
        return (self.root / path).read_text().strip()

    def groups(self) -> list[str]:
        """Every group, by its path."""
        return sorted(str(path.parent.relative_to(self.root)) for path in self.root.glob("*/**/cgroup.procs"))

    def lacks(self, name: str) -> None:
        """Let the kernel have no such file, in no group."""
        self._files.pop(name)
        for path in self.root.rglob(name):
            path.unlink()

    def gains(self, name: str, text: str) -> None:
        """Let the kernel have such a file in every group, with this text in a new one."""
        self._files[name] = text
        for path in self.root.rglob("cgroup.procs"):
            (path.parent / name).write_text(text)

    def _fill(self, directory: Path) -> None:
        for name, text in self._files.items():
            (directory / name).write_text(text)

    def _make_sys(self) -> None:
        for path, text in {
            "devices/system/cpu/online": "0-7\n",
            "devices/system/node/has_memory": "0-1\n",
            "devices/system/node/node0/cpulist": "0-3\n",
            "devices/system/node/node1/cpulist": "4-7\n",
            "devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages": "8\n",
            "devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages": "4\n",
            "devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages": "1\n",
        }.items():
            (self.sys_root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.sys_root / path).write_text(text)
