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
    "memory.oom.group": "0\n",
    "memory.events": "oom_kill 0\n",
    "pids.max": "max\n",
}


class Cgroup2Files:
    """`root` is the mount point, `sys_root` the /sys of a machine of two zones with four CPUs each."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = directory / "cgroup"
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

    @staticmethod
    def _fill(directory: Path) -> None:
        for name, text in _FILES.items():
            (directory / name).write_text(text)

    def _make_sys(self) -> None:
        for path, text in {
            "devices/system/cpu/online": "0-7\n",
            "devices/system/node/has_memory": "0-1\n",
            "devices/system/node/node0/cpulist": "0-3\n",
            "devices/system/node/node1/cpulist": "4-7\n",
        }.items():
            (self.sys_root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.sys_root / path).write_text(text)
