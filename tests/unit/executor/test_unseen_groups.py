"""Busy pods of cgroup v1 that have no pressure file: over files that look like a hybrid machine, and on this machine's kernel."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from colo_executor.cgroup import CgroupTree
from colo_executor.process.stall_reader import stall_reader
from colo_executor.process.unseen_groups import UnseenGroups
from tests.support.waiting import eventually_blocking

POD = "kubepods/burstable"
ROOT = "/sys/fs/cgroup"


class Hybrid:
    """The mounts of cpu, cpuacct and cgroup v2, each with directories of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for mount in ("cpu", "cpuacct", "unified"):
            (directory / mount).mkdir()
        (directory / "proc/self").mkdir(parents=True)
        (directory / "proc/self/cgroup").write_text("2:cpuacct:/\n1:cpu:/agents/executor\n0::/elsewhere\n")

    def set(self, group: str, used_ms: int, *, has_pressure: bool = False) -> None:
        for mount in ("cpu", "cpuacct", *(["unified"] if has_pressure else [])):
            (self.directory / mount / group).mkdir(parents=True, exist_ok=True)
        (self.directory / "cpuacct" / group / "cpuacct.usage").write_text(f"{used_ms * 1_000_000}\n")
        if has_pressure:
            (self.directory / "unified" / group / "cpu.pressure").write_text("some total=1\n")

    def reader(self) -> UnseenGroups:
        mounts = (str(self.directory / mount) for mount in ("cpu", "cpuacct", "unified"))
        return UnseenGroups(*mounts, ("colo", "colo-leaving"), proc_root=str(self.directory / "proc"))


@pytest.fixture
def hybrid(tmp_path: Path) -> Hybrid:
    return Hybrid(tmp_path)


def test_a_busy_pod_without_a_pressure_file_is_unseen_and_one_that_idles_is_not(hybrid: Hybrid) -> None:
    for group in (POD, "kubepods/besteffort", "kubepods/pod1", "colo", "agents/executor", "agents/other"):
        hybrid.set(group, 1_000)
    hybrid.set("system.slice", 1_000, has_pressure=True)
    reader = hybrid.reader()
    assert reader.read(0) == ()
    for group in (POD, "kubepods/besteffort", "colo", "agents/executor", "system.slice"):
        hybrid.set(group, 1_050, has_pressure=group == "system.slice")
    hybrid.set("kubepods/pod1", 1_049)
    assert reader.read(999) == ()
    assert reader.read(1_000) == (POD,)


def test_it_counts_for_a_minute_after_it_was_busy_or_until_it_is_gone(hybrid: Hybrid) -> None:
    hybrid.set(POD, 0)
    reader = hybrid.reader()
    reader.read(0)
    hybrid.set(POD, 500)
    assert reader.read(1_000) == (POD,)
    assert reader.read(60_999) == (POD,)
    assert reader.read(62_000) == ()
    hybrid.set(POD, 5_000)
    assert reader.read(63_000) == (POD,)
    # Whoever gives it a group of cgroup v2 lets it be seen.
    hybrid.set(POD, 6_000, has_pressure=True)
    assert reader.read(64_000) == ()


def test_what_a_new_group_used_before_and_a_clock_that_steps_back_make_nothing_busy(hybrid: Hybrid) -> None:
    reader = hybrid.reader()
    assert reader.read(10_000) == ()
    hybrid.set(POD, 9_000)
    assert reader.read(11_000) == ()
    hybrid.set(POD, 9_900)
    assert reader.read(1_000) == ()
    hybrid.set(POD, 9_990)
    assert reader.read(2_000) == (POD,)


@pytest.mark.kernel
def test_a_group_under_the_cpu_controller_alone_has_no_pressure_file_on_this_kernel(tmp_path: Path) -> None:
    pod = CgroupTree(ROOT, f"colo-unseen-{os.getpid()}", controllers={1: ("cpu", "cpuacct"), 2: ("cpu",)})
    pod.make("")
    reader = stall_reader(pod, (), "/proc")
    assert reader is not None
    process = subprocess.Popen(["sh", "-c", "while :; do :; done"])
    try:
        pod.attach("", process.pid)

        def unseen() -> bool:
            stalls = reader.read(time.monotonic_ns() // 1_000_000)
            return stalls is not None and pod.name in stalls.unseen

        if pod.version == 1:
            eventually_blocking(unseen, "the busy group without a pressure file")
        else:
            assert not unseen()
    finally:
        process.kill()
        process.wait()
        reader.close()
        assert pod.remove("")
