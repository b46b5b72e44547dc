"""A service that somebody else started in a control group of its own, on the real kernel."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from colo_executor.cgroup import CgroupTree
from colo_executor.knob_table import Knob
from colo_executor.order import KnobWrite
from colo_executor.process.machine import online_cpus

__all__ = ["OtherService", "other_service"]

_ROOT = "/sys/fs/cgroup"


class OtherService:
    """The group `path`, in a top group that nobody else has, with one process."""

    def __init__(self, top: str, name: str = "web") -> None:
        self.path = f"{top}/{name}"
        self.name = name
        self.tree = CgroupTree(_ROOT, top)
        self.processes: list[subprocess.Popen[bytes]] = []
        self._make("")
        self.make()

    def make(self) -> None:
        """The group, with the values that the kernel gives, and all CPUs."""
        self._make(self.name)

    def start(self, script: str = "exec sleep 600") -> subprocess.Popen[bytes]:
        """One more process in the group."""
        process = subprocess.Popen(["sh", "-c", f"read go; {script}"], stdin=subprocess.PIPE)
        self.processes.append(process)
        self.tree.attach(self.name, process.pid)
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.close()
        return process

    def end(self) -> None:
        """End its processes and wait for them."""
        for process in self.processes:
            process.kill()
            process.wait()
        self.processes.clear()

    def remove(self) -> None:
        """The group goes, as systemd removes it after the unit's end."""
        self.end()
        assert self.tree.remove(self.name)

    def values(self) -> dict[str, bytes]:
        """Every file of the group that an executor might write, byte by byte."""
        names = (
            "cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.weight", "cpu.max", "cpu.idle", "cpu.bvt_warp_ns",
            "cpuset.cpus", "cpuset.mems", "memory.limit_in_bytes", "memory.max", "memory.min", "memory.low", "pids.max",
            "memory.memsw.limit_in_bytes", "memory.swap.max",
        )  # fmt: skip
        mounts = sorted(set(self.tree.hierarchy.mounts.values()))
        groups = (Path(mount, self.path) for mount in mounts)
        found = [group / name for group in groups for name in names]
        return {str(path): path.read_bytes() for path in found if path.exists()}

    def _make(self, group: str) -> None:
        self.tree.make(group)
        if self.tree.version == 1:
            zones = Path(_ROOT, "cpuset/cpuset.mems").read_text().strip()
            for knob, value in ((Knob.CPUSET_CPUS, online_cpus("/sys").format()), (Knob.CPUSET_MEMS, zones)):
                self.tree.write(KnobWrite(path=group, knob=knob, value=value))


@contextmanager
def other_service(top: str) -> Iterator[OtherService]:
    """The service, which is ended and removed whatever a test did."""
    service = OtherService(top)
    try:
        yield service
    finally:
        service.end()
        for group in (*service.tree.children(""), ""):
            service.tree.kill(group)
            assert service.tree.remove(group), f"{group} of {top} stayed"
